"""What a pre-training run can be told: plain, frozen, checked data. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertkit.config import explain_validation
from bertkit.data.pairs import Objective
from bertkit.errors import ConfigError


class PretrainConfig(BaseModel):
    """Settings of one pre-training run. The defaults suit a small encoder on one machine.

    Raises:
        ConfigError: an unknown setting (with the nearest known one) or a value out of bounds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    objective: Annotated[Objective, Field(description="mlm+nsp as the paper, mlm as RoBERTa, mlm+sop as ALBERT")] = (
        "mlm+nsp"
    )
    max_seq_length: Annotated[int, Field(ge=8, description="tokens of the longest example")] = 128
    batch_size: Annotated[int, Field(ge=1, description="examples in one optimizer step")] = 256
    max_tokens: Annotated[
        int, Field(ge=8, description="tokens in memory at once; the result does not depend on it")
    ] = 8192
    max_steps: Annotated[int, Field(ge=1, description="optimizer steps")] = 10_000
    learning_rate: Annotated[float, Field(gt=0, le=1, description="peak rate")] = 1e-4
    warmup: Annotated[float, Field(ge=0, lt=1, description="share of the steps in which the rate rises")] = 0.01
    weight_decay: Annotated[float, Field(ge=0, le=1, description="decay of weights, not of LayerNorm and bias")] = 0.01
    max_grad_norm: Annotated[float, Field(gt=0, description="gradients longer than this are scaled down to it")] = 1.0
    masked_lm_prob: Annotated[float, Field(gt=0, lt=1, description="share of the tokens that are targets")] = 0.15
    short_seq_prob: Annotated[float, Field(ge=0, le=1, description="share of examples of a random shorter length")] = (
        0.1
    )
    dev_examples: Annotated[int, Field(ge=1, description="held-out examples that an evaluation reads")] = 2048
    seed: Annotated[int, Field(ge=0, lt=2**31, description="weights, pairs, masks, order, dropout")] = 0
    checkpoint_every_s: Annotated[float, Field(ge=0, description="seconds between two saved training states")] = 120.0

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain_validation(error, PretrainConfig.model_fields)) from None
