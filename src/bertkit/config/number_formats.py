"""The number formats of training."""

from typing import Literal

#: Of the forward and backward pass; weights and optimizer state are always fp32. ``tf32`` is fp32 whose products on a
#: GPU take their inputs with 10 bits behind the point.
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
