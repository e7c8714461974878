"""Random matrices of 8 bits, as the library takes them and as :class:`ByteLinear` computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from bertkit.model.kernels.byte_linear import ByteLinear
from bertkit.weights.parts import ByteMatrix, Layer, Shape
from native_helpers import Array, Product, Weights, query_factor

#: Inputs that stay in float32: few, and in wide matrices more than the library takes at once.
APART, MANY_APART = 2, 17


def in_bytes(
    weight: Array,
    bias: Array,
    *,
    one_sided: bool = False,
    narrow: bool = False,
    factor: Array | None = None,
    num_apart: int = APART,
) -> ByteMatrix:
    """The matrix in 8 bits, 7 if ``narrow``, with some inputs apart, some smoothing, each output times its factor."""
    if factor is not None:
        weight, bias = weight * factor[:, None], bias * factor
    outputs, inputs = weight.shape
    chance, steps = np.random.default_rng(outputs + inputs), 63 if narrow else 127
    smooth = chance.uniform(0.7, 1.4, inputs).astype(np.float32)
    apart = np.sort(chance.choice(inputs, num_apart, replace=False)).astype(np.int32)
    rest = (weight / smooth).astype(np.float32)
    rest[:, apart] = 0.0
    smooth[apart] = 0.0
    scale = (np.abs(rest).max(axis=1) / steps).astype(np.float32)
    whole = np.round(rest / scale[:, None]).clip(-steps, steps).astype(np.int8)
    shift = chance.uniform(1.0, 2.0, inputs).astype(np.float32) * (smooth > 0) if one_sided else None
    if shift is not None:
        bias = bias - (whole * scale[:, None]) @ shift
    apart_weights = np.ascontiguousarray(weight[:, apart].T, np.float32)
    return ByteMatrix(whole, scale, bias.astype(np.float32), smooth, shift, apart, apart_weights, narrow)


def byte_layers(shape: Shape, weights: Sequence[Weights]) -> list[Layer]:
    """Layers of such matrices; the last one's inputs have a least value, and its weights 7 bits."""
    layers = []
    for one in weights:
        qkv, out, up, down = one.matrices
        matrices = (
            in_bytes(*qkv, factor=query_factor(shape)),
            in_bytes(*out),
            in_bytes(*up, narrow=True, num_apart=MANY_APART),
            in_bytes(*down, one_sided=True),
        )
        layers.append(Layer(matrices, one.norms))
    return layers


def byte_linear(matrix: ByteMatrix) -> ByteLinear:
    """The module that defines what the matrix means."""
    outputs, inputs = matrix.weight.shape
    module = ByteLinear(inputs, outputs, len(matrix.apart), one_sided=matrix.shift is not None)
    parts = {name: getattr(matrix, name) for name in ("weight", "scale", "bias", "smooth", "shift", "apart")}
    parts["apart_weight"] = matrix.apart_weights
    module.load_state_dict({name: torch.from_numpy(part) for name, part in parts.items() if part is not None})
    return module


def byte_product(matrix: ByteMatrix, factor: Array | None = None) -> Product:
    """Rows to rows as the module computes them in float32, each output divided by its factor."""
    module = byte_linear(matrix)

    def product(x: Array) -> Array:
        with torch.inference_mode():
            out = module(torch.from_numpy(x.astype(np.float32))).numpy().astype(np.float64)
        return out if factor is None else out / factor

    return product
