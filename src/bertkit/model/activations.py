"""The functions between linear layers, by the names of configs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

#: "gelu" is the erf form, which the published PyTorch weights expect; "gelu_new" is the tanh form of the TF code.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
}
