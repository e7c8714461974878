"""Values that are no numbers: whatever reads one becomes one, nothing else does, and nothing remembers it."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.weights.parts import Activation, ByteMatrix, FloatMatrix, Layer, Shape
from byte_matrix_helpers import byte_layers
from native_helpers import ACTIVATIONS, Array, native_layers, random_rows, random_weights, shape_of, with_matrix

pytestmark = pytest.mark.slow

KINDS = ["float32", "float24", "float16", "bfloat16", "int8"]
#: Of the bits of 32-bit NaNs, the usual one and one whose upper 24 bits alone would be infinity.
NANS = np.array([0x7FC00000, 0x7F800001], np.uint32).view(np.float32)


def layers_of(kind: str, shape: Shape, library: NativeLibrary) -> list[Layer]:
    weights = random_weights(shape)
    if kind == "int8":
        return byte_layers(shape, weights)
    if kind == "bfloat16" and not library.bf16:
        pytest.skip("this instruction set has no bf16 products")
    return native_layers(shape, weights, kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_damaged_input_spoils_its_sequence_alone(any_library: NativeLibrary, kind: str, value: float) -> None:
    shape = shape_of(26, 2, 30, "relu")
    encoder = NativeEncoder(any_library, shape, layers_of(kind, shape, any_library))
    x, starts = random_rows(26, 5, 40, 9)
    good = encoder(x, starts)
    damaged = x.copy()
    damaged[7, 3] = value
    for threads in (1, 2):
        found = encoder(damaged, starts, threads=threads)
        assert np.isnan(found[5:45]).all()
        np.testing.assert_allclose(found[:5], good[:5], atol=1e-6)
        np.testing.assert_allclose(found[45:], good[45:], atol=1e-6)
    np.testing.assert_allclose(encoder(x, starts), good, atol=1e-6)  # buffers are used again


def spoiled(matrix: FloatMatrix | ByteMatrix, field: str, value: Array) -> FloatMatrix | ByteMatrix:
    """The matrix with that value in the middle of a field's numbers but 0, which stands for inputs apart."""
    array = getattr(matrix, field).copy()
    places = np.flatnonzero(array)
    array.flat[places[len(places) // 2 - 1]] = value
    return matrix._replace(**{field: array})


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kept_as", ["float32", "float24", "float16", "bfloat16"])
def test_a_damaged_weight_spoils_everything(any_library: NativeLibrary, kept_as: str, activation: Activation) -> None:
    shape = shape_of(26, 2, 30, activation, order=(0,))
    (layer,) = layers_of(kept_as, shape, any_library)
    x, starts = random_rows(26, 5, 40)
    assert np.isfinite(NativeEncoder(any_library, shape, [layer])(x, starts)).all()
    for place, matrix in enumerate(layer.matrices):
        for nan in NANS:
            weight = {"float16": np.float16(np.nan), "bfloat16": np.int16(0x7FC0)}.get(kept_as, nan)
            for damaged in (spoiled(matrix, "weight", weight), spoiled(matrix, "bias", nan)):
                encoder = NativeEncoder(any_library, shape, [with_matrix(layer, place, damaged)])
                assert np.isnan(encoder(x, starts)).all(), place
    for place in range(2):
        norms = list(layer.norms)
        norms[place] = (norms[place][0], np.full(26, np.nan, np.float32))
        assert np.isnan(NativeEncoder(any_library, shape, [layer._replace(norms=tuple(norms))])(x, starts)).all()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_damaged_part_of_a_byte_matrix_spoils_everything(any_library: NativeLibrary, activation: Activation) -> None:
    shape = shape_of(26, 2, 30, activation, order=(0,))
    (layer,) = layers_of("int8", shape, any_library)
    x, starts = random_rows(26, 5, 40)
    assert np.isfinite(NativeEncoder(any_library, shape, [layer])(x, starts)).all()
    for place, matrix in enumerate(layer.matrices):
        assert isinstance(matrix, ByteMatrix)
        for field in ("scale", "bias", "smooth", "apart_weights", *(["shift"] if matrix.shift is not None else [])):
            damaged = with_matrix(layer, place, spoiled(matrix, field, NANS[0]))
            assert np.isnan(NativeEncoder(any_library, shape, [damaged])(x, starts)).all(), (place, field)
