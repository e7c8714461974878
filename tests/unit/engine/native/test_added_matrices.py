"""Products of rows with matrices that are added to an encoder, for heads and projections."""

from __future__ import annotations

from ctypes import addressof, c_int32, sizeof
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native import native_encoder
from bertkit.engine.native.library import NativeErrorText, NativeLibrary
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.tasks.multi.task import MOST_HEADS
from bertkit.weights.parts import ACTIVATIONS, Matrix
from byte_matrix_helpers import byte_product, in_bytes
from native_helpers import ACTIVATIONS as FUNCTIONS
from native_helpers import TOLERANCES, Array, kept, native_layers, random_weights, shape_of

SHAPE = shape_of(24, 2, 40, order=(0,))
#: Outputs and inputs: one of each, no multiples of a vector, more outputs than the encoder is wide.
SIZES = [(1, 24), (3, 7), (70, 24), (130, 33)]
ROWS = [1, 5, 97, 200]


def drawn(outputs: int, inputs: int) -> tuple[Array, Array]:
    chance = np.random.default_rng(outputs + inputs)
    weight = chance.normal(0, 1 / np.sqrt(inputs), (outputs, inputs)).astype(np.float32)
    return weight, chance.normal(0, 0.3, outputs).astype(np.float32)


def encoder_with(library: NativeLibrary, *added: Matrix) -> NativeEncoder:
    return NativeEncoder(library, SHAPE, native_layers(SHAPE, random_weights(SHAPE)), None, added)


def rows_of(count: int, inputs: int) -> Array:
    return np.random.default_rng(count).normal(0, 1, (count, inputs)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("kept_as", TOLERANCES)
def test_kinds_of_weights_and_activations(any_library: NativeLibrary, kept_as: Any) -> None:
    if kept_as == "bfloat16" and not any_library.bf16:
        pytest.skip("this instruction set has no bf16 products")
    matrices = [drawn(*size) for size in SIZES]
    encoder = encoder_with(any_library, *(kept(*matrix, kept_as) for matrix in matrices))
    for number, (weight, bias) in enumerate(matrices):
        for count in ROWS:
            x = rows_of(count, weight.shape[1])
            right = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
            for activation in (None, *ACTIVATIONS):
                found = encoder.multiply(number, x, activation)
                expected = right if activation is None else FUNCTIONS[activation](right)
                np.testing.assert_allclose(found, expected, atol=TOLERANCES[kept_as] * 10)
    assert not np.allclose(encoder.multiply(2, x[:, :24]), encoder.multiply(2, -x[:, :24]), atol=0.1)


def test_matrices_in_bytes(any_library: NativeLibrary) -> None:
    weight, bias = drawn(50, 24)
    matrix = in_bytes(weight, bias)
    found = encoder_with(any_library, matrix).multiply(0, rows_of(9, 24))
    np.testing.assert_allclose(found, byte_product(matrix)(rows_of(9, 24)), atol=1e-4)


@pytest.mark.parametrize("kept_as", ["float32", "float24"])
def test_a_row_does_not_depend_on_the_others(any_library: NativeLibrary, kept_as: Any) -> None:
    encoder, x = encoder_with(any_library, kept(*drawn(70, 24), kept_as)), rows_of(200, 24)
    together = encoder.multiply(0, x, "gelu")
    for row in (0, 1, 95, 96, 199):
        np.testing.assert_array_equal(encoder.multiply(0, x[row : row + 1], "gelu")[0], together[row])
    assert encoder.multiply(0, x[:0]).shape == (0, 70)


def test_wrong_arguments_are_named(native: NativeLibrary) -> None:
    encoder, error, functions = encoder_with(native, kept(*drawn(3, 7), "float32")), NativeErrorText(), native.functions
    x, out = rows_of(2, 7), np.full((2, 3), 7.0, np.float32)
    right: dict[str, Any] = {
        "encoder": encoder._handle, "number": 0, "rows": x.ctypes.data, "num_rows": 2, "activation": 0,
        "result": out.ctypes.data,
    }  # fmt: skip
    for name, value, told in (
        ("encoder", None, "encoder is NULL"),
        ("number", 1, "number is 1, expected 0 to 0"),
        ("number", -1, "number is -1"),
        ("rows", None, "rows is NULL"),
        ("rows", x.ctypes.data + 2, "rows is not aligned"),
        ("num_rows", -1, "num_rows is -1"),
        ("activation", 4, "activation is 4, expected 0 to 3"),
        ("result", None, "result is NULL"),
    ):
        given = {**right, name: value}
        assert functions.bertkit_multiply(*given.values(), addressof(error)) != 0, name
        assert told in error.text.decode()
        assert (out == 7.0).all()
    assert functions.bertkit_multiply(*right.values(), addressof(error)) == 0
    assert not (out == 7.0).any()


def test_wrong_matrices_are_named(native: NativeLibrary) -> None:
    weight, bias = drawn(3, 7)
    error, number = NativeErrorText(), c_int32(-5)
    builder = new_builder(native)
    for name, value, told in (
        ("struct_size", 3, "matrix"), ("kind", 7, "matrix.kind is 7"), ("outputs", 0, "matrix.outputs is 0"),
        ("inputs", 0, "matrix.inputs is 0"), ("inputs", 2**31 - 1, "matrix.inputs is 2147483647"),
        ("outputs", 2**30, "matrix.outputs is 1073741824"), ("weights", None, "matrix.weights is NULL"),
        ("bias", None, "matrix.bias is NULL"), ("unit", 0.0, "matrix.unit is 0, expected 1"),
        ("unit", -1.0, "matrix.unit is -1"), ("unit", float("nan"), "matrix.unit is"),
    ):  # fmt: skip
        matrix = native_encoder._Matrix(
            sizeof(native_encoder._Matrix), 0, 3, 7, weight.ctypes.data, bias.ctypes.data, 1.0
        )
        setattr(matrix, name, value)
        status = native.functions.bertkit_builder_add_matrix(
            builder, addressof(matrix), addressof(number), addressof(error)
        )
        assert status != 0, name
        assert told in error.text.decode()
        assert number.value == -5
    native.functions.bertkit_builder_free(builder)
    with pytest.raises(AssertionError, match="the number of matrices that were added is 256, expected 0 to 255"):
        encoder_with(native, *[kept(weight, bias, "float32")] * 257)


def test_there_are_matrices_for_many_heads(native: NativeLibrary) -> None:
    """As many as those of :data:`bertkit.tasks.multi.task.MOST_HEADS` heads that read texts, two each."""
    encoder, x = encoder_with(native, *[kept(*drawn(3, 7), "float32")] * (2 * MOST_HEADS + 1)), rows_of(2, 7)
    np.testing.assert_array_equal(encoder.multiply(2 * MOST_HEADS, x), encoder.multiply(0, x))


def new_builder(native: NativeLibrary) -> Any:
    from ctypes import c_void_p

    order, builder, error = np.array([0], np.int32), c_void_p(), NativeErrorText()
    shape = native_encoder._Shape(sizeof(native_encoder._Shape), 1, 1, order.ctypes.data, 8, 2, 12, 1, 1e-12, 0)
    assert native.functions.bertkit_builder_new(addressof(shape), -1, addressof(builder), addressof(error)) == 0
    return builder
