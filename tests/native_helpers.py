"""An encoder in numpy and float64, random weights for it, and the C libraries that this machine can build and run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import erf

from bertkit.engine.native.build import NATIVE, PLAIN, VARIANTS, family, variants_here
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.system.processor import level
from bertkit.weights.parts import Activation, ByteMatrix, FloatMatrix, Layer, Shape, WeightType

Array = np.ndarray[Any, np.dtype[Any]]
#: Rows to rows.
Product = Callable[[Array], Array]

#: Variants by name, the plain one and that of this very processor among them.
INSTRUCTION_SETS: dict[str, tuple[str, ...]] = {
    NATIVE: variants_here(level()).get(NATIVE, ()),
    **VARIANTS.get(family(), {PLAIN: ("-DBERTKIT_PLAIN_C",)}),
}
ACTIVATIONS: dict[Activation, Product] = {
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),
    "gelu_new": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.where(x < 0.0, 0.0, x),
}
#: How far results may be from float64's, by what the weights are kept as.
TOLERANCES: dict[WeightType, float] = {"float32": 1e-5, "float24": 1e-4, "float16": 2e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Weights:
    """Of one layer, as the papers have them: products ``x W^T + b`` in float32 and both normalizations."""

    matrices: tuple[tuple[Array, Array], ...]
    norms: tuple[tuple[Array, Array], ...]


def shape_of(
    width: int, heads: int, inner: int, activation: Activation = "gelu", order: Sequence[int] = (0, 1)
) -> Shape:
    return Shape(tuple(order), width, heads, inner, activation, 1e-12)


def random_weights(shape: Shape, seed: int = 0) -> list[Weights]:
    """Random numbers with which every layer matters, and attention looks here and there."""
    chance = np.random.default_rng(seed)
    width, inner = shape.width, shape.inner

    def matrix(outputs: int, inputs: int) -> tuple[Array, Array]:
        weight = chance.normal(0.0, 1.0 / math.sqrt(inputs), (outputs, inputs))
        return weight.astype(np.float32), chance.normal(0.0, 0.3, outputs).astype(np.float32)

    def norm() -> tuple[Array, Array]:
        return chance.uniform(0.5, 1.5, width).astype(np.float32), chance.normal(0.0, 0.3, width).astype(np.float32)

    sizes = ((3 * width, width), (width, width), (inner, width), (width, inner))
    return [Weights(tuple(matrix(*size) for size in sizes), (norm(), norm())) for _ in range(max(shape.order) + 1)]


def random_rows(width: int, *lengths: int, seed: int = 1) -> tuple[Array, Array]:
    """Rows of sequences end to end, and where each begins."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return np.random.default_rng(seed).normal(0.0, 1.0, (sum(lengths), width)).astype(np.float32), starts


def kept(weight: Array, bias: Array, kept_as: WeightType, factor: Array | None = None) -> FloatMatrix:
    """The matrix as the library takes it, each output times its factor."""
    if factor is not None:
        weight, bias = (weight * factor[:, None]).astype(np.float32), (bias * factor).astype(np.float32)
    if kept_as == "float16":
        return FloatMatrix((weight * 1024.0).astype(np.float16), bias, kept_as, unit=1.0 / 1024.0)
    if kept_as == "bfloat16":
        bits = weight.view(np.uint32)
        return FloatMatrix(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16).view(np.int16), bias, kept_as)
    return FloatMatrix(weight, bias, kept_as)


def query_factor(shape: Shape) -> Array:
    """What the library wants the outputs of the first matrix multiplied with: scores are powers of two there."""
    factor = np.ones(3 * shape.width, np.float32)
    factor[: shape.width] = math.log2(math.e) / math.sqrt(shape.width // shape.heads)
    return factor


def native_layers(shape: Shape, weights: Sequence[Weights], kept_as: WeightType = "float32") -> list[Layer]:
    factors = (query_factor(shape), None, None, None)
    return [
        Layer(
            tuple(kept(*matrix, kept_as, factor) for matrix, factor in zip(one.matrices, factors, strict=True)),
            one.norms,
        )
        for one in weights
    ]


def native_encoder(library: Any, shape: Shape, weights: Sequence[Weights], kept_as: WeightType = "float32") -> Any:
    return NativeEncoder(library, shape, native_layers(shape, weights, kept_as))


def with_matrix(layer: Layer, place: int, matrix: FloatMatrix | ByteMatrix) -> Layer:
    """The layer with another matrix there."""
    return layer._replace(matrices=(*layer.matrices[:place], matrix, *layer.matrices[place + 1 :]))


def product_of(weight: Array, bias: Array) -> Product:
    return lambda x: x @ weight.astype(np.float64).T + bias.astype(np.float64)


def products_of(weights: Weights) -> tuple[Product, ...]:
    return tuple(product_of(*matrix) for matrix in weights.matrices)


def rounded_products(shape: Shape, weights: Weights, kept_as: WeightType) -> tuple[Product, ...]:
    """With the numbers that the library keeps: of float24 16 significant bits, of float16 and bfloat16 11 and 8."""
    bits = {"float32": 24, "float24": 16, "float16": 11, "bfloat16": 8}[kept_as]
    factors = (query_factor(shape)[:, None], 1.0, 1.0, 1.0)
    found = []
    for (weight, bias), factor in zip(weights.matrices, factors, strict=True):
        fraction, exponent = np.frexp((weight * factor).astype(np.float32).astype(np.float64))
        found.append(product_of(np.ldexp(np.round(fraction * 2.0**bits), exponent - bits) / factor, bias))
    return tuple(found)


def normalized(x: Array, norm: tuple[Array, Array], eps: float) -> Array:
    centered = x - x.mean(axis=1, keepdims=True)
    scale, shift = norm
    return centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + eps) * scale + shift


def attended(qkv: Array, heads: int) -> Array:
    """Of one sequence: ``(s, 3 D)`` to ``(s, D)``."""
    query, key, value = (part.reshape(len(qkv), heads, -1) for part in np.split(qkv, 3, axis=1))
    scores = np.einsum("qhd,khd->hqk", query, key) / math.sqrt(query.shape[2])
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.einsum("hqk,khd->qhd", powers / powers.sum(axis=2, keepdims=True), value).reshape(len(qkv), -1)


def encode(
    shape: Shape,
    weights: Sequence[Weights],
    x: Array,
    starts: Array,
    products: Sequence[Sequence[Product]] | None = None,
) -> Array:
    """What the layers make of the rows, each sequence by itself, in float64; ``products`` in place of the matrices."""
    act = ACTIVATIONS[shape.activation]
    found = []
    for start, end in pairwise(starts):
        rows = x[start:end].astype(np.float64)
        for number in shape.order:
            qkv, out, up, down = products[number] if products else products_of(weights[number])
            after_attention, after_ffn = weights[number].norms
            rows = normalized(rows + out(attended(qkv(rows), shape.heads)), after_attention, shape.eps)
            rows = normalized(rows + down(act(up(rows))), after_ffn, shape.eps)
        found.append(rows)
    return np.concatenate(found)
