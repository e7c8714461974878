"""Settings of a pre-training run: plain, frozen, validated data. Imports no torch."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from pydantic import Field

from bertkit.data.examples.masking import Unit
from bertkit.data.examples.pairs import Objective
from bertkit.errors import ConfigError
from bertkit.system.validated_settings import Settings

#: Steps of a run without a limit of steps or time.
DEFAULT_STEPS = 10_000
#: More steps than any run takes: if only the clock ends it.
UNLIMITED_STEPS = 10**12
#: Settings that may change when a run is resumed. Of these ``max_tokens``, ``compile`` and ``parallel`` affect rounding
#: and dropout; with the others the run stays bit for bit the same.
FREE_SETTINGS = frozenset(
    "checkpoint_every_s keep_checkpoints curve tensorboard parallel gradient_checkpointing compile num_workers dev "
    "max_tokens".split()
)

Optimizer = Literal["adamw", "adam-weight-decay", "lamb", "muon"]
Shape = Literal["linear", "polynomial", "trapezoid", "original"]


class Phase(NamedTuple):
    """One part of a run: maximum tokens and targets of an example (None: no limit), examples per optimizer step, steps.

    If the clock ends the phase, ``num_steps`` is a maximum.
    """

    max_seq_length: int
    max_predictions: int | None
    batch_size: int
    num_steps: int


class PretrainConfig(Settings):
    """Settings of one pre-training run. The defaults suit a small encoder on one machine.

    Raises:
        ConfigError: an unknown setting (with the nearest known one) or a value out of bounds.
    """

    objective: Objective = Field(
        default="mlm+nsp", description="mlm+nsp as in the paper, mlm as RoBERTa, mlm+sop as ALBERT"
    )
    protocol: Literal["bertkit", "original"] = Field(
        default="bertkit", description="original: fixed examples in memory, as in the 2018 code; for small corpora"
    )
    dupe_factor: int = Field(default=10, ge=1, le=1000, description="copies of the corpus (protocol original)")
    max_seq_length: int = Field(default=128, ge=8, description="maximum tokens of an example")
    short_seq_length: int | None = Field(
        default=None, ge=8, description="maximum tokens in the first part of the run; default: one length"
    )
    short_share: float = Field(
        default=0.9, gt=0, lt=1, description="share of the steps or time with short_seq_length; paper: 0.9"
    )
    short_batch_size: int | None = Field(
        default=None, ge=1, description="examples per step of that part; default: batch_size"
    )
    batch_size: int = Field(default=256, ge=1, description="examples per optimizer step")
    max_tokens: int = Field(
        default=8192, ge=8, description="tokens in memory at once; affects only rounding and dropout"
    )
    max_steps: int | None = Field(
        default=None, ge=1, description="optimizer steps; default 10,000, or as many as the time allows"
    )
    max_seconds: float | None = Field(default=None, gt=0, description="time budget; the rate falls to 0 at its end")
    optimizer: Optimizer = Field(
        default="adamw", description="adam-weight-decay is the original's; lamb for large batches; muon is experimental"
    )
    adam_beta2: float = Field(default=0.999, gt=0, lt=1, description="decay of the running mean of squared gradients")
    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="peak rate")
    schedule: Shape = Field(
        default="linear", description="how the rate falls; original: as published, starting at exactly 0"
    )
    warmup: float = Field(default=0.01, ge=0, lt=1, description="share of the run in which the rate rises")
    power: float = Field(default=1.0, gt=0, description="exponent of schedule polynomial")
    end_rate: float = Field(default=0.0, ge=0, lt=1, description="final share of the peak rate (schedule polynomial)")
    cooldown: float = Field(
        default=0.2, gt=0, le=1, description="share of the run in which the rate falls (schedule trapezoid)"
    )
    weight_decay: float = Field(default=0.01, ge=0, le=1, description="decay of weights, except LayerNorm and bias")
    max_grad_norm: float = Field(default=1.0, gt=0, description="longer gradients are scaled down to this norm")
    masking: Unit = Field(default="token", description="what is masked at a time")
    masked_lm_prob: float = Field(default=0.15, gt=0, lt=1, description="share of the tokens that are targets")
    max_predictions_per_seq: int | None = Field(
        default=None, ge=1, description="maximum targets of an example; default: no limit"
    )
    short_seq_prob: float = Field(default=0.1, ge=0, le=1, description="share of examples with a random shorter length")
    dev_masked_lm_prob: float = Field(default=0.15, gt=0, lt=1, description="masked share of the held-out text")
    dev_examples: int = Field(default=2048, ge=1, description="held-out examples per evaluation")
    eval_every_steps: int | None = Field(
        default=None, ge=1, description="steps between evaluations; default: after each epoch"
    )
    seed: int = Field(default=0, ge=0, lt=2**31, description="of weights, pairs, masks, order, dropout")
    checkpoint_every_s: float = Field(default=120.0, ge=0, description="seconds between checkpoints")
    output_bias: Literal["zero", "unigram"] = Field(
        default="zero", description="initial bias of a new masked-LM head; unigram: token frequencies"
    )
    word_embeddings: Literal["random", "cooccurrence"] = Field(
        default="random", description="initial ones of a new model; cooccurrence: from co-occurrence counts"
    )
    dropout: float | None = Field(
        default=None, ge=0, lt=1, description="of hidden vectors and attention; default: that of the model"
    )
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        default="fp32", description="number format of matrix products; weights stay fp32"
    )
    gradient_checkpointing: bool = Field(
        default=False, description="recompute layers for the backward pass: less memory, more time, same result"
    )
    compile: bool = Field(default=False, description="compile parts of the layers with torch.compile; for GPUs")
    parallel: Literal["ddp", "fsdp"] | None = Field(
        default=None, description="under torchrun: whole weights on each device, or parts"
    )
    num_workers: int | None = Field(
        default=None, ge=0, le=64, description="threads that prefetch batches; default: 1 with a GPU, else 0"
    )
    curve: bool = Field(default=True, description="draw loss.png if matplotlib is installed")
    tensorboard: bool = Field(default=False, description="also write RUN/tensorboard; needs the extra tensorboard")
    keep_checkpoints: int = Field(default=2, ge=1, description="checkpoints kept; older ones are deleted")

    @property
    def num_steps(self) -> int:
        """Maximum optimizer steps."""
        if self.max_steps is not None:
            return self.max_steps
        return DEFAULT_STEPS if self.max_seconds is None else UNLIMITED_STEPS

    @property
    def phases(self) -> list[Phase]:
        """The parts of the run: two if there are two lengths, otherwise one."""
        whole = Phase(self.max_seq_length, self.max_predictions_per_seq, self.batch_size, self.num_steps)
        if self.short_seq_length is None or self.short_seq_length == self.max_seq_length:
            return [whole]
        short_steps = min(max(1, round(self.short_share * self.num_steps)), self.num_steps - 1)
        limit = self.max_predictions_per_seq
        if limit is not None:
            limit = math.ceil(limit * self.short_seq_length / self.max_seq_length)
        short = Phase(self.short_seq_length, limit, self.short_batch_size or self.batch_size, short_steps)
        return [short, whole._replace(num_steps=self.num_steps - short_steps)]

    def replace(self, **changes: Any) -> PretrainConfig:
        """A validated copy with some fields changed."""
        return PretrainConfig(**{**self.model_dump(include=self.model_fields_set), **changes})

    def check(self) -> None:
        """Check that the settings are consistent.

        Not done in the constructor, because a recipe and command-line options are combined first.

        Raises:
            ConfigError: they contradict each other.
        """
        if self.schedule == "trapezoid" and self.warmup + self.cooldown > 1 + 1e-9:
            raise ConfigError(f"warmup={self.warmup} and cooldown={self.cooldown} must be at most 1 together")
        if self.max_seconds is not None and self.schedule in ("original", "polynomial"):
            raise ConfigError(
                f"schedule {self.schedule!r} counts steps; with a time budget (max_seconds, --max-time) use linear or "
                "trapezoid"
            )
        if self.protocol == "original" and (self.objective != "mlm+nsp" or self.masking == "span"):
            raise ConfigError(
                "protocol 'original' has the objective mlm+nsp and masks tokens or whole words, got "
                f"objective={self.objective!r}, masking={self.masking!r}"
            )
        if len(self.phases) == 2:
            self._check_phases()
        elif self.short_batch_size is not None:
            raise ConfigError(
                f"short_batch_size={self.short_batch_size} applies to the part of a run with short_seq_length; give "
                "that too, or only batch_size"
            )

    def _check_phases(self) -> None:
        short = self.phases[0].max_seq_length
        if short > self.max_seq_length:
            raise ConfigError(
                f"short_seq_length={short} is for the first part of the run and may be at most "
                f"max_seq_length={self.max_seq_length}; the paper has 128, then 512"
            )
        if self.num_steps < 2:
            raise ConfigError("two lengths (short_seq_length) need max_steps of at least 2, got 1")
