"""A linear layer with two kernels: torch's own, and for CPU inference a product with prepacked weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.model.kernels.products import linear, onednn


class Linear(nn.Linear):
    """``x @ weight.T + bias``, and optionally GELU (erf form) in the same pass.

    After :meth:`prepack`, calls in eval mode without gradients, on a CPU in fp32, use a copy of the weight in oneDNN's
    blocked layout; the results differ from ``torch.nn.functional.linear`` by rounding only.
    """

    #: Of the standard deviation of new weights; see :func:`bertkit.model.configured_model.initialize`.
    init_scale: float = 1.0
    _packed: Tensor | None = None
    _packed_from: tuple[int, int] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: How often it was put into training mode: optimizers with ``fused=True`` do not say that they change a weight.
        self.num_trainings = 0

    def prepack(self) -> None:
        """Prepack the weight for CPU inference, at the cost of a copy. Does nothing where that cannot help.

        The copy is dropped in training mode, and renewed when the weight was replaced or changed by an ordinary
        in-place operation. Changes through ``weight.data`` are not noticed: call this again after one.
        """
        weight, operations = self.weight, onednn()
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and operations is not None:
            self._packed = operations._reorder_linear_weight(weight.detach())
            self._packed_from = self._source()

    @property
    def is_prepacked(self) -> bool:
        """Whether there is a copy, of this weight or of one before it."""
        return self._packed is not None

    @contextmanager
    def unpacked(self) -> Iterator[None]:
        """Inside the block, calls use the weight, not the copy of :meth:`prepack`."""
        packed, self._packed = self._packed, None
        try:
            yield
        finally:
            self._packed = packed

    def _source(self) -> tuple[int, int]:
        return self.weight.data_ptr(), -1 if self.weight.is_inference() else self.weight._version

    def forward(self, x: Tensor, activation: Literal["none", "gelu"] = "none") -> Tensor:
        """``(..., in)`` to ``(..., out)``."""
        if self._packed is not None and not torch.is_grad_enabled() and x.dtype == torch.float32 and x.numel():
            if self._packed_from != self._source():
                self.prepack()
            product: Tensor = onednn()._linear_pointwise(x, self._packed, self.bias, activation, [], "none")
            return product
        out = linear(x, self.weight, self.bias)
        return F.gelu(out) if activation == "gelu" else out

    def rows(self, x: Tensor, part: slice) -> Tensor:
        """The outputs of some rows of the weight: ``(..., in)`` to ``(..., rows)``."""
        return F.linear(x, self.weight[part], None if self.bias is None else self.bias[part])

    def train(self, mode: bool = True) -> Linear:
        if mode:
            self._packed = self._packed_from = None
            self.num_trainings += 1
        super().train(mode)
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> Linear:
        # Moving the module to another device or type makes the copy useless.
        self._packed = self._packed_from = None
        super()._apply(*args, **kwargs)
        return self

    def __getstate__(self) -> dict[str, object]:
        # The blocked copy can be neither pickled nor deep-copied.
        return {**self.__dict__, "_packed": None, "_packed_from": None}
