"""The settings for adapting a model to a task's text."""

from __future__ import annotations

import math

from bertkit.system.validated_settings import Field, Settings
from bertkit.training.pretraining.pretrain_settings import PretrainConfig

#: Default passes over the text (Gururangan et al. 2020 make 100 with 256 examples per step), and the most
#: steps of this rule.
DEFAULT_EPOCHS, MOST_STEPS = 20, 5000


class AdaptConfig(Settings):
    """Settings of continued masked-LM training on a task's own text."""

    adapt_epochs: int | None = Field(
        None, ge=1, le=10_000, description="passes over the text; default 20, fewer on long texts"
    )
    adapt_steps: int | None = Field(None, ge=1, description="optimizer steps, instead of passes over the text")
    adapt_learning_rate: float = Field(1e-4, gt=0, le=1, description="peak rate of the masked-LM training")
    adapt_batch_size: int = Field(32, ge=1, description="examples in a masked-LM step")
    adapt_length: int = Field(128, ge=8, description="tokens of the longest masked-LM example")
    compare: bool = Field(True, description="also fine-tune without, and report both")

    def num_steps(self, num_tokens: int, length: int) -> int:
        """Optimizer steps for a text of ``num_tokens`` in examples of ``length``, two special tokens included."""
        if self.adapt_steps is not None:
            return self.adapt_steps
        examples = max(1, math.ceil(num_tokens / max(1, length - 2)))
        per_epoch = math.ceil(examples / self.adapt_batch_size)
        if self.adapt_epochs is not None:
            return self.adapt_epochs * per_epoch
        return max(per_epoch, min(DEFAULT_EPOCHS * per_epoch, MOST_STEPS))

    def pretraining(self, num_tokens: int, *, seed: int, longest: int) -> PretrainConfig:
        """The settings of the masked-LM run on a text of ``num_tokens``; ``longest`` bounds the length of examples."""
        length = min(self.adapt_length, longest)
        return PretrainConfig(
            objective="mlm",
            max_steps=self.num_steps(num_tokens, length),
            learning_rate=self.adapt_learning_rate,
            batch_size=self.adapt_batch_size,
            max_seq_length=length,
            warmup=0.06,
            seed=seed,
            dev_examples=512,
            output_bias="unigram",  # of a new head only: saves the steps that learn token frequencies
        )
