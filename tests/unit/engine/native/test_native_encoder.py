"""The layers in C beside an encoder in numpy and float64, on every instruction set that this machine has.

Building a library takes seconds, so most of these tests are slow.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.weights.parts import Activation, WeightType
from byte_matrix_helpers import byte_layers
from native_helpers import (
    ACTIVATIONS,
    TOLERANCES,
    Array,
    encode,
    native_encoder,
    native_layers,
    random_rows,
    random_weights,
    rounded_products,
    shape_of,
)

pytestmark = pytest.mark.slow

#: Width, heads and inner width: some that vectors divide, more that they do not, heads of 3 to 64 columns.
SIZES = [(26, 1, 30), (26, 2, 57), (33, 11, 7), (64, 1, 130), (40, 5, 64), (312, 12, 600), (48, 4, 31)]
#: Tokens of the sequences of a pack: one, as many as a tile or a block has and one more, many, and very long.
PACKS: list[tuple[int, ...]] = [(1,), (13,), (40,), (96, 97), (7, 1, 33, 12, 2, 40, 16), (300, 3)]
THREADS = (1, 2, 5)


def largest(found: Array, expected: Array) -> float:
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    return float(np.abs(found - expected).max())


@cache
def expected_layers(number: int, kept_as: WeightType) -> tuple[Any, Any, list[tuple[Array, Any, Array]]]:
    """A shape of SIZES, its weights, and of each pack the rows, where they begin, and what comes out."""
    width, heads, inner = SIZES[number]
    shape = shape_of(width, heads, inner, list(ACTIVATIONS)[number % 3])
    weights = random_weights(shape, seed=number)
    products = [rounded_products(shape, one, kept_as) for one in weights]
    packs = [random_rows(width, *lengths, seed=len(lengths)) for lengths in PACKS]
    return shape, weights, [(x, starts, encode(shape, weights, x, starts, products)) for x, starts in packs]


@pytest.mark.parametrize("kept_as", ["float32", "float24", "float16"])
def test_layers_are_those_of_float64(any_library: NativeLibrary, kept_as: WeightType) -> None:
    """With the weights as they are kept: whatever that is, products and sums are float32."""
    for number in range(len(SIZES)):
        shape, weights, packs = expected_layers(number, kept_as)
        encoder = native_encoder(any_library, shape, weights, kept_as)
        for x, starts, expected in packs:
            for threads in THREADS:
                assert largest(encoder(x, starts, threads=threads), expected) < 1e-5, (shape, len(x), threads)


def test_fewer_bits_cost_so_much(any_library: NativeLibrary) -> None:
    """Beside the weights as they were; and the control: with the tolerances the types can be told apart."""
    shape = shape_of(312, 12, 600)
    weights = random_weights(shape)
    x, starts = random_rows(312, 20, 7)
    expected = encode(shape, weights, x, starts)
    types: list[WeightType] = ["float32", "float24", "float16"] + (["bfloat16"] if any_library.bf16 else [])
    off = [largest(native_encoder(any_library, shape, weights, kept_as)(x, starts), expected) for kept_as in types]
    assert all(error < TOLERANCES[kept_as] for error, kept_as in zip(off, types, strict=True))
    assert all(more > TOLERANCES[kept_as] for more, kept_as in zip(off[1:], types[:-1], strict=True))


def test_bf16_products_at_every_size(native: NativeLibrary) -> None:
    if not native.bf16:
        pytest.skip("this processor has no bf16 products")
    for number, (width, heads, inner) in enumerate(SIZES):
        shape = shape_of(width, heads, inner, list(ACTIVATIONS)[number % 3], order=(0,))
        weights = random_weights(shape, seed=number)
        encoder = native_encoder(native, shape, weights, "bfloat16")
        for lengths in PACKS:
            x, starts = random_rows(width, *lengths, seed=len(lengths))
            expected = encode(shape, weights, x, starts)
            one = encoder(x, starts)
            assert np.abs(one - expected).mean() < 0.01, (shape, lengths)  # numbers of 8 bits: 1 in 512
            assert largest(one, expected) < 0.2
            for threads in THREADS[1:]:
                assert largest(encoder(x, starts, threads=threads), one) < 1e-6


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_length_and_activation(any_library: NativeLibrary, activation: Activation) -> None:
    shape = shape_of(26, 2, 37, activation, order=(0, 1, 2))
    weights = random_weights(shape)
    encoder = native_encoder(any_library, shape, weights)
    x, starts = random_rows(26, *range(1, 41))
    expected = encode(shape, weights, x, starts)
    for number, (first, last) in enumerate(pairwise(starts)):
        alone = np.array([0, last - first], np.int32)
        for threads in (1, THREADS[1 + number % 2]):
            assert largest(encoder(x[first:last], alone, threads=threads), expected[first:last]) < 1e-5
    others = [shape_of(26, 2, 37, other, order=(0, 1, 2)) for other in ACTIVATIONS if other != activation]
    for other in others:  # the control: they differ by more than the tolerance
        assert np.abs(encode(other, weights, x, starts) - expected).max() > 1e-4


def test_layers_that_share_their_weights(any_library: NativeLibrary) -> None:
    shape = shape_of(24, 3, 50, order=(0, 0, 0))
    weights = random_weights(shape)
    x, starts = random_rows(24, 5, 30, 1)
    found = native_encoder(any_library, shape, weights)(x, starts, threads=2)
    assert largest(found, encode(shape, weights, x, starts)) < 1e-5
    assert largest(found, encode(shape_of(24, 3, 50, order=(0, 0)), weights, x, starts)) > 1e-2


@pytest.mark.parametrize("order", [(0,), (1, 0, 1)])
def test_chosen_rows_of_the_top_layer(any_library: NativeLibrary, order: tuple[int, ...]) -> None:
    shape = shape_of(26, 2, 70, order=order)
    weights = random_weights(shape)
    encoder = native_encoder(any_library, shape, weights)
    x, starts = random_rows(26, 9, 1, 40, 130, 3, 20)
    expected = encode(shape, weights, x, starts)
    chance = np.random.default_rng(0)
    some = np.sort(chance.choice(len(x), 60, replace=False)).astype(np.int32)
    some = some[(some < starts[2]) | (some >= starts[3])]  # none of the third sequence
    for rows in (starts[:-1], some, some[:1], np.arange(len(x), dtype=np.int32)):
        row_starts = np.searchsorted(rows, starts).astype(np.int32)
        for threads in THREADS:
            found = encoder(x, starts, rows, row_starts, threads=threads)
            assert largest(found, expected[rows]) < 1e-5, (len(rows), threads)


def test_results_depend_neither_on_neighbours_nor_on_threads(any_library: NativeLibrary) -> None:
    """Up to rounding, is what is promised; a sum is added up in the same order everywhere, so that it is less here."""
    shape = shape_of(312, 12, 600)
    encoder = native_encoder(any_library, shape, random_weights(shape))
    lengths = [int(length) for length in np.random.default_rng(2).integers(1, 60, 24)]
    x, starts = random_rows(312, *lengths)
    together = encoder(x, starts)
    for threads in (2, 3, 5, 40):
        assert largest(encoder(x, starts, threads=threads), together) < 1e-6
    for first, last in pairwise(starts):
        alone = encoder(x[first:last], np.array([0, last - first], np.int32), threads=2)
        assert largest(alone, together[first:last]) < 1e-6
    x[: starts[1]] += 1.0
    changed = encoder(x, starts)
    assert largest(changed[starts[1] :], together[starts[1] :]) < 1e-6
    assert np.abs(changed[: starts[1]] - together[: starts[1]]).max() > 1e-2  # the control: a change is seen


def test_large_and_small_numbers(any_library: NativeLibrary) -> None:
    """Scores so far apart that attention looks at one token alone, inputs that GELU has no slope for, and tiny ones."""
    shape = shape_of(40, 5, 64, order=(0,))
    weights = random_weights(shape)
    for size in (1e-6, 30.0, 3e3):
        x, starts = random_rows(40, 17, 3)
        scaled = (x * size).astype(np.float32)
        found = native_encoder(any_library, shape, weights)(scaled, starts)
        # Scores of hundreds are rounded to a few 1e-5 before they are exponents.
        assert largest(found, encode(shape, weights, scaled, starts)) < 2e-4, size


def test_weights_beyond_the_range_of_float16(any_library: NativeLibrary) -> None:
    """They are multiples of a unit; subnormal ones come out right as well."""
    from bertkit.engine.native.native_encoder import NativeEncoder
    from bertkit.weights.parts import FloatMatrix
    from native_helpers import native_layers, with_matrix

    shape = shape_of(26, 2, 30, order=(0,))
    (weights,) = random_weights(shape)
    down, bias = weights.matrices[3]
    tiny = np.round(down * 40).clip(-63, 63).astype(np.float32)  # with 2^-24, the smallest of float16
    x, starts = random_rows(26, 12)
    matrix = FloatMatrix((tiny * 2.0**-24).astype(np.float16), bias, "float16", unit=2.0**20)
    assert matrix.weight.any()
    (layer,) = native_layers(shape, [weights])
    found = NativeEncoder(any_library, shape, [with_matrix(layer, 3, matrix)])(x, starts)
    products: list[Any] = [lambda x, m=m: x @ m[0].astype(np.float64).T + m[1] for m in weights.matrices]
    products[3] = lambda x: x @ (tiny.astype(np.float64) / 16.0).T + bias
    assert largest(found, encode(shape, [weights], x, starts, [products])) < 1e-5


@pytest.mark.parametrize("kept_as", ["float32", "float24", "float16", "8 bits"])
def test_threads_that_pack_change_nothing(any_library: NativeLibrary, kept_as: Any) -> None:
    """Of matrices large enough to be shared, whose panels end where they begin: no thread writes into another's."""
    shape = shape_of(256, 4, 520)
    weights = random_weights(shape)
    layers = byte_layers(shape, weights) if kept_as == "8 bits" else native_layers(shape, weights, kept_as)
    x, starts = random_rows(256, 20, 3)
    expected = NativeEncoder(any_library, shape, layers)(x, starts)
    for threads in (2, 3, 16, -1, 1 << 30):
        for _ in range(5):
            found = NativeEncoder(any_library, shape, layers, threads=threads)(x, starts)
            np.testing.assert_array_equal(found, expected)
