"""What a pre-training run can be told: plain, frozen, checked data. Imports no torch."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from bertkit.data.examples.masking import Unit
from bertkit.data.examples.pairs import Objective
from bertkit.errors import ConfigError
from bertkit.system.validated_settings import Settings

#: Steps of a run that is told neither steps nor time.
DEFAULT_STEPS = 10_000
#: More steps than any run takes: where only the clock ends it.
UNLIMITED_STEPS = 10**12
#: Settings that a resumed run may change: they say how a run is watched and saved, and on what it runs. Of these
#: ``max_tokens``, ``compile`` and ``parallel`` change how sums are rounded and which values dropout leaves out;
#: with the others a run that goes on is bit for bit what it would have been.
FREE_SETTINGS = frozenset(
    """
    checkpoint_every_s keep_checkpoints curve tensorboard parallel gradient_checkpointing compile num_workers dev
    max_tokens
    """.split()
)

Optimizer = Literal["adamw", "adam-weight-decay", "lamb", "muon"]
Shape = Literal["linear", "polynomial", "trapezoid", "original"]


class Phase(NamedTuple):
    """One part of a run.

    max_seq_length: tokens of its longest example.
    max_predictions: most targets of an example, or None.
    batch_size: examples in one of its optimizer steps.
    num_steps: how many these are, at most where the clock ends the phase.
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

    objective: Annotated[Objective, Field(description="mlm+nsp as the paper, mlm as RoBERTa, mlm+sop as ALBERT")] = (
        "mlm+nsp"
    )
    protocol: Annotated[
        Literal["bertkit", "original"],
        Field(description="original: fixed examples made in memory, as the 2018 code does; for small corpora"),
    ] = "bertkit"
    dupe_factor: Annotated[int, Field(ge=1, le=1000, description="copies of the corpus, of protocol original")] = 10
    max_seq_length: Annotated[int, Field(ge=8, description="tokens of the longest example")] = 128
    short_seq_length: Annotated[
        int | None,
        Field(ge=8, description="tokens of the longest example in the first part of the run; default: one length"),
    ] = None
    short_share: Annotated[
        float,
        Field(gt=0, lt=1, description="share of the steps or of the time with short_seq_length; paper: 0.9"),
    ] = 0.9
    short_batch_size: Annotated[
        int | None, Field(ge=1, description="examples in one step of that part; default: batch_size")
    ] = None
    batch_size: Annotated[int, Field(ge=1, description="examples in one optimizer step")] = 256
    max_tokens: Annotated[
        int, Field(ge=8, description="tokens in memory at once; changes only rounding and the draws of dropout")
    ] = 8192
    max_steps: Annotated[
        int | None, Field(ge=1, description="optimizer steps; default 10,000, or as many as the time allows")
    ] = None
    max_seconds: Annotated[
        float | None, Field(gt=0, allow_inf_nan=False, description="time budget; the rate falls to 0 at its end")
    ] = None
    optimizer: Annotated[
        Optimizer, Field(description="adam-weight-decay is the original's; lamb for large batches; muon an experiment")
    ] = "adamw"
    adam_beta2: Annotated[float, Field(gt=0, lt=1, description="decay of the running mean of squared gradients")] = (
        0.999
    )
    learning_rate: Annotated[float, Field(gt=0, le=1, description="peak rate")] = 1e-4
    schedule: Annotated[
        Shape, Field(description="how the rate falls; original: as published, from a rate of exactly 0")
    ] = "linear"
    warmup: Annotated[float, Field(ge=0, lt=1, description="share of the run in which the rate rises")] = 0.01
    power: Annotated[float, Field(gt=0, description="of schedule polynomial")] = 1.0
    end_rate: Annotated[
        float, Field(ge=0, lt=1, description="share of the peak rate at the end, of schedule polynomial")
    ] = 0.0
    cooldown: Annotated[float, Field(gt=0, le=1, description="share of the run that falls, of schedule trapezoid")] = (
        0.2
    )
    weight_decay: Annotated[float, Field(ge=0, le=1, description="decay of weights, not of LayerNorm and bias")] = 0.01
    max_grad_norm: Annotated[float, Field(gt=0, description="gradients longer than this are scaled down to it")] = 1.0
    masking: Annotated[Unit, Field(description="what is hidden at a time")] = "token"
    masked_lm_prob: Annotated[float, Field(gt=0, lt=1, description="share of the tokens that are targets")] = 0.15
    max_predictions_per_seq: Annotated[
        int | None, Field(ge=1, description="most targets of an example; default: no limit but their share")
    ] = None
    short_seq_prob: Annotated[float, Field(ge=0, le=1, description="share of examples of a random shorter length")] = (
        0.1
    )
    dev_masked_lm_prob: Annotated[float, Field(gt=0, lt=1, description="masked share of the held-out text")] = 0.15
    dev_examples: Annotated[int, Field(ge=1, description="held-out examples that an evaluation reads")] = 2048
    eval_every_steps: Annotated[
        int | None, Field(ge=1, description="steps between two evaluations; default: one after each epoch")
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**31, description="weights, pairs, masks, order, dropout")] = 0
    checkpoint_every_s: Annotated[float, Field(ge=0, description="seconds between two saved training states")] = 120.0
    output_bias: Annotated[
        Literal["zero", "unigram"],
        Field(description="first bias of a new masked-LM head; unigram: guess frequencies from the first step"),
    ] = "zero"
    word_embeddings: Annotated[
        Literal["random", "cooccurrence"],
        Field(description="first ones of a new model; cooccurrence: from which tokens stand near each other"),
    ] = "random"
    dropout: Annotated[
        float | None, Field(ge=0, lt=1, description="of hidden vectors and attention; default: the model's own")
    ] = None
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"], Field(description="number format of the products; weights stay fp32")
    ] = "fp32"
    gradient_checkpointing: Annotated[
        bool,
        Field(description="compute layers again for their gradients: less memory, more time, same result"),
    ] = False
    compile: Annotated[bool, Field(description="run parts of the layers through torch.compile; for GPUs")] = False
    parallel: Annotated[
        Literal["ddp", "fsdp"] | None, Field(description="under torchrun: whole weights on each device, or parts")
    ] = None
    num_workers: Annotated[
        int | None, Field(ge=0, le=64, description="threads that make batches ahead; default: 1 with a GPU, else 0")
    ] = None
    curve: Annotated[bool, Field(description="draw loss.png, where matplotlib is installed")] = True
    tensorboard: Annotated[bool, Field(description="write RUN/tensorboard too; needs the extra tensorboard")] = False
    keep_checkpoints: Annotated[int, Field(ge=1, description="training states kept; older ones are deleted")] = 2

    @property
    def num_steps(self) -> int:
        """Most optimizer steps of the run."""
        if self.max_steps is not None:
            return self.max_steps
        return DEFAULT_STEPS if self.max_seconds is None else UNLIMITED_STEPS

    @property
    def phases(self) -> list[Phase]:
        """The parts of the run: two where there are two lengths, else one."""
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
        """A copy with some fields changed, checked as a new one is."""
        return PretrainConfig(**{**self.model_dump(include=self.model_fields_set), **changes})

    def check(self) -> None:
        """See that the settings agree with each other.

        This is not done when they are made: a recipe and the flags beside it are two halves of one set of settings.

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
                f"short_batch_size={self.short_batch_size} is for the part of a run that has short_seq_length; give "
                "that too, or batch_size alone"
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
