"""The number formats of training, and whether it compiles."""

from typing import Literal

#: Of the forward and backward pass; weights and optimizer state are always fp32. ``tf32`` is fp32 whose products on a
#: GPU take their inputs with 10 bits behind the point.
Precision = Literal["fp32", "tf32", "bf16", "fp16"]

#: Parts of the layers by ``torch.compile``; ``auto``: on a GPU, if the run is long enough to gain.
Compile = Literal["auto", "on", "off"]
