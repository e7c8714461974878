"""Matrices in 8 bits in C beside the module that defines what they mean."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.weights.parts import ByteMatrix, FloatMatrix, Layer, Shape
from byte_matrix_helpers import byte_layers, byte_product, in_bytes
from native_helpers import (
    Array,
    Product,
    encode,
    normalized,
    product_of,
    query_factor,
    random_rows,
    random_weights,
    shape_of,
)

pytestmark = pytest.mark.slow

INNER = 45


def one_product(width: int) -> tuple[Shape, Layer]:
    """A layer that is ``norm(x + relu(up(x)))``, first outputs only, of rows that are normal already."""
    shape = Shape((0,), width, 2, INNER, "relu", 0.0)
    (weights,) = random_weights(shape)
    none = [FloatMatrix(np.zeros((size, width), np.float32), np.zeros(size, np.float32)) for size in (3 * width, width)]
    down = FloatMatrix(np.eye(width, INNER, dtype=np.float32), np.zeros(width, np.float32))
    as_it_is = (np.ones(width, np.float32), np.zeros(width, np.float32))
    up = FloatMatrix(*weights.matrices[2])
    return shape, Layer((*none, up, down), (as_it_is, as_it_is))


def rows_between_steps(matrix: ByteMatrix, count: int) -> Array:
    """Rows of mean 0 and variance 1 with no input half-way between two bytes, where rounding could go either way.

    The second half of a row is the first one with the other sign; the inputs apart fill the variance up.
    """
    width = matrix.weight.shape[1]
    half, chance = width // 2, np.random.default_rng(0)
    steps = 255.0 if matrix.shift is not None else 254.0
    places = chance.integers(1, 255 if matrix.shift is not None else 254, (count, half)) + chance.uniform(
        -0.3, 0.3, (count, half)
    )
    places[:, 1] = steps  # the largest of a row says what a step is
    values = places / steps * 2.0 - 1.0
    if matrix.shift is None:
        values = (np.round(places) - 127.0 + chance.uniform(-0.3, 0.3, (count, half))) / 127.0
        values[:, 1] = 1.0
    values /= 2.0
    x = np.concatenate([values, -values], axis=1) / np.where(matrix.smooth > 0, matrix.smooth, 1.0)
    first, second = matrix.apart
    x[:, first] = np.sqrt((width - (x**2).sum(axis=1) + x[:, first] ** 2 + x[:, second] ** 2) / 2.0)
    x[:, second] = -x[:, first]
    return x.astype(np.float32)


def prepared(width: int, *, one_sided: bool, narrow: bool, extreme: bool) -> ByteMatrix:
    half, chance = width // 2, np.random.default_rng(width)
    weight = chance.normal(0.0, 0.2, (INNER, width)).astype(np.float32)
    matrix = in_bytes(weight, chance.normal(0.0, 0.3, INNER).astype(np.float32), narrow=narrow)
    smooth = np.tile(chance.uniform(0.8, 1.4, half), 2).astype(np.float32)
    apart = np.array([0, half], np.int32)
    smooth[apart] = 0.0
    whole = matrix.weight.copy()
    if extreme:  # neighbours whose products with the largest bytes would leave 16 bits together
        least, most = (-63, 63) if narrow else (-128, 127)
        whole[::2] = np.where(chance.random((len(whole[::2]), width)) < 0.5, least, most)
        whole[0] = most
    whole[:, apart] = 0
    shift = np.where(smooth > 0, 0.5, 0.0).astype(np.float32) if one_sided else None
    return matrix._replace(weight=whole, smooth=smooth, apart=apart, shift=shift)


@pytest.mark.parametrize("width", [26, 64, 312])
@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("extreme", [False, True])
def test_a_product_is_that_of_the_module(
    any_library: NativeLibrary, width: int, one_sided: bool, narrow: bool, extreme: bool
) -> None:
    shape, layer = one_product(width)
    matrix = prepared(width, one_sided=one_sided, narrow=narrow, extreme=extreme)
    x = rows_between_steps(matrix, 50)
    np.testing.assert_allclose([x.mean(axis=1), x.var(axis=1)], [np.zeros(50), np.ones(50)], atol=1e-5)
    before, after = layer.matrices[:2], layer.matrices[3:]
    encoder = NativeEncoder(any_library, shape, [Layer((*before, matrix, *after), layer.norms)])
    starts = np.array([0, 20, 50], np.int32)

    def expected(product: Product) -> Array:
        inner = product(x).clip(0.0)
        filled = np.zeros((50, width))
        filled[:, :INNER] = inner[:, :width]
        return normalized(x + filled, layer.norms[1], 0.0)

    right = expected(byte_product(matrix))
    for threads in (1, 2, 5):
        found = encoder(x, starts, threads=threads)
        assert np.abs(found - right).max() < 1e-4, threads
    smooth = np.where(matrix.smooth > 0, matrix.smooth, 1.0)
    weight = matrix.weight * matrix.scale[:, None] * smooth
    weight[:, matrix.apart] = matrix.apart_weights.T
    shift = 0.0 if matrix.shift is None else (matrix.weight * matrix.scale[:, None]) @ matrix.shift
    exact = expected(product_of(weight, matrix.bias + shift))
    assert 1e-4 < np.abs(exact - right).max() < 0.2  # the control: without rounding it is another result, and near


def test_encoders_of_such_layers(any_library: NativeLibrary) -> None:
    """Every matrix in 8 bits. Inputs near the middle between two bytes may be rounded either way, so a few differ."""
    for width, heads, inner in ((26, 2, 37), (312, 12, 600)):
        shape = shape_of(width, heads, inner, order=(0, 1))
        weights = random_weights(shape)
        layers = byte_layers(shape, weights)
        factors = (query_factor(shape), None, None, None)
        products = [
            [byte_product(matrix, factor) for matrix, factor in zip(layer.matrices, factors, strict=True)]  # type: ignore[arg-type]
            for layer in layers
        ]
        x, starts = random_rows(width, 20, 1, 130, 7)
        expected = encode(shape, weights, x, starts, products)
        encoder = NativeEncoder(any_library, shape, layers)
        one = encoder(x, starts)
        assert np.median(np.abs(one - expected)) < 1e-5
        assert np.abs(one - expected).mean() < 1e-3
        assert np.abs(encode(shape, weights, x, starts) - expected).mean() > 5e-3  # the control: what 8 bits cost
        for threads in (2, 5):
            np.testing.assert_allclose(encoder(x, starts, threads=threads), one, atol=1e-6)
        rows = np.array([0, 20, 21, 151], np.int32)
        chosen = encoder(x, starts, rows, np.array([0, 1, 2, 3, 4], np.int32), threads=2)
        np.testing.assert_allclose(chosen, one[rows], atol=1e-6)
