"""The number formats of training."""

from typing import Literal

#: Of the forward and backward pass; weights and optimizer state are always fp32.
Precision = Literal["fp32", "bf16", "fp16"]
