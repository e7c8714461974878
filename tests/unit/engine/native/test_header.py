"""The public header of the C library: what ctypes calls is what it declares, and another language can use it."""

from __future__ import annotations

import re
import shutil
import subprocess
from ctypes import addressof, c_char_p, c_float, c_int32, c_void_p, sizeof
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native import native_encoder
from bertkit.engine.native.build import FOLDER
from bertkit.engine.native.library import FUNCTIONS, NativeErrorText, NativeLibrary, VariantInfo
from bertkit.engine.native.native_encoder import NativeEmbeddings
from embedding_program import expected_vector, write_weights
from native_helpers import native_encoder as encoder_of
from native_helpers import random_rows, random_weights, shape_of

HEADER = FOLDER / "bertkit.h"
DECLARED = re.compile(r"BERTKIT_API\s+([\w\s]+?[\s*]+)(bertkit_\w+)\(([^)]*)\);")
STRUCTS: dict[str, Any] = {
    "bertkit_error": NativeErrorText,
    "bertkit_variant_info": VariantInfo,
    "bertkit_shape": native_encoder._Shape,
    "bertkit_matrix": native_encoder._Matrix,
    "bertkit_positions": native_encoder._Positions,
    "bertkit_batch": native_encoder._Batch,
    "bertkit_table": native_encoder._Table,
}
SOURCES = Path(__file__).parents[3] / "native"


def kind_of(declared: str, *, result: bool = False) -> type | None:
    text = re.sub(r"/\*.*?\*/", "", declared).strip()
    if "*" in text:
        return c_char_p if "char" in text else c_void_p
    kinds = {"int32_t": c_int32, "bertkit_status": c_int32, "float": c_float, "void": None}
    word = text if result else text.rpartition(" ")[0]
    return kinds[word.strip()]


def declared_functions() -> dict[str, tuple[type | None, tuple[type | None, ...]]]:
    found = {}
    for result, name, arguments in DECLARED.findall(HEADER.read_text()):
        parts = [] if arguments.strip() == "void" else arguments.split(",")
        found[name] = (kind_of(result, result=True), tuple(kind_of(part) for part in parts))
    return found


def test_ctypes_calls_the_functions_that_the_header_declares() -> None:
    assert declared_functions() == FUNCTIONS


def test_structures_have_the_fields_of_the_header(compiler: tuple[str, ...], tmp_path: Path) -> None:
    lines = []
    for name, structure in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        lines += [f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));' for field in structure._fields_]
    source = tmp_path / "sizes.c"
    body = "\n".join(lines)
    source.write_text(f'#include <stddef.h>\n#include <stdio.h>\n#include "bertkit.h"\nint main(void) {{\n{body}\n}}\n')
    told = run_c(compiler, source, tmp_path, ())
    found = dict(line.split() for line in told.splitlines())
    for name, structure in STRUCTS.items():
        assert int(found[name]) == sizeof(structure), name
        for field in structure._fields_:
            assert int(found[f"{name}.{field[0]}"]) == getattr(structure, field[0]).offset, field


def run_c(compiler: tuple[str, ...], source: Path, folder: Path, more: tuple[str, ...], *words: str) -> str:
    program = folder / "program"
    command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Wno-unused-result", f"-I{FOLDER}", str(source), *more]
    subprocess.run([*command, "-o", str(program), "-lm"], check=True)
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_header_compiles_alone(language: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    if (
        language == "c++"
        and subprocess.run([*compiler, "-x", "c++", "-E", "/dev/null"], capture_output=True).returncode
    ):
        pytest.skip("the compiler has no C++")
    flags = [
        "-x",
        language,
        "-std=c99" if language == "c" else "-std=c++11",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    subprocess.run([*compiler, *flags, "-fsyntax-only", str(HEADER)], check=True)


def test_the_library_exports_these_functions_alone(native: NativeLibrary) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    told = subprocess.run(
        ["nm", "-D", "--defined-only", native.path], check=True, capture_output=True, text=True
    ).stdout
    exported = {line.split()[-1] for line in told.splitlines()} - {"_init", "_fini", "_edata", "_end", "__bss_start"}
    assert exported == set(FUNCTIONS)


def test_a_program_in_c_embeds_a_text(compiler: tuple[str, ...], native: NativeLibrary, tmp_path: Path) -> None:
    write_weights(tmp_path / "weights")
    ids = [3, 29, 0, 7, 7, 11, 12]
    library = (str(native.path), f"-Wl,-rpath,{native.path.parent}")
    told = run_c(compiler, SOURCES / "embed.c", tmp_path, library, str(tmp_path / "weights"), *map(str, ids))
    np.testing.assert_allclose(np.array(told.split(), np.float32), expected_vector(ids), atol=2e-6)


class Called:
    """A call that is right, whose arguments a test makes wrong, one at a time."""

    def __init__(self, library: NativeLibrary) -> None:
        self.library, self.functions = library, library.functions
        self.order = np.array([0, 0], np.int32)
        self.shape = native_encoder._Shape(
            sizeof(native_encoder._Shape), 2, 1, self.order.ctypes.data, 8, 2, 12, 1, 1e-12, 0
        )
        self.weights = np.ones(3 * 8 * 8, np.float32)
        self.scales, self.outliers = np.ones(40, np.float32), np.array([1, 7], np.int32)
        self.matrix = native_encoder._Matrix(
            sizeof(native_encoder._Matrix), 0, 24, 8, self.weights.ctypes.data, self.scales.ctypes.data, 1.0
        )
        self.builder = c_void_p()
        self.error = NativeErrorText()

    def call(self, name: str, *arguments: Any) -> tuple[str, str]:
        status = getattr(self.functions, name)(*arguments, addressof(self.error))
        return self.functions.bertkit_status_name(status).decode(), self.error.text.decode()

    def new(self, variant: int = -1) -> tuple[str, str]:
        return self.call("bertkit_builder_new", addressof(self.shape), variant, addressof(self.builder))

    def set_matrix(self, layer: int = 0, which: int = 0) -> tuple[str, str]:
        return self.call("bertkit_builder_set_matrix", self.builder, layer, which, addressof(self.matrix))


@pytest.fixture
def called(native: NativeLibrary) -> Called:
    return Called(native)


@pytest.mark.parametrize(
    ("field", "value", "status", "told"),
    [
        ("struct_size", 8, "BERTKIT_STRUCT_SIZE", "another version"),
        ("num_layers", 0, "BERTKIT_RANGE", "shape.num_layers is 0, expected 1"),
        ("num_layers", -1, "BERTKIT_RANGE", "num_layers is -1"),
        ("num_stored", 5000, "BERTKIT_RANGE", "num_stored is 5000"),
        ("width", 9, "BERTKIT_SHAPE", "no multiple of the 2 heads"),
        ("width", 2**31 - 2, "BERTKIT_RANGE", "width"),
        ("heads", 0, "BERTKIT_RANGE", "heads"),
        ("inner", 0, "BERTKIT_RANGE", "inner"),
        ("activation", 4, "BERTKIT_RANGE", "activation is 4, expected 1 to 3"),
        ("eps", -1.0, "BERTKIT_RANGE", "eps is -1"),
        ("eps", float("nan"), "BERTKIT_RANGE", "eps"),
        ("order", None, "BERTKIT_SHAPE", "order is NULL"),
    ],
)
def test_a_wrong_shape_is_named(called: Called, field: str, value: Any, status: str, told: str) -> None:
    setattr(called.shape, field, value)
    name, text = called.new()
    assert name == status
    assert told in text
    assert not called.builder


def test_a_wrong_order_variant_and_null_are_named(called: Called) -> None:
    called.order[1] = 1
    assert called.new() == ("BERTKIT_RANGE", "shape.order[1] is 1, expected 0 to 0")
    called.order[1] = 0
    called.shape.order += 2
    assert called.new() == ("BERTKIT_ALIGNMENT", "shape.order is not aligned to 4 bytes")
    called.shape.order -= 2
    assert called.new(99)[0] == "BERTKIT_NO_VARIANT"
    assert called.call("bertkit_builder_new", None, -1, addressof(called.builder))[0] == "BERTKIT_NULL"
    assert called.call("bertkit_builder_new", addressof(called.shape), -1, None)[0] == "BERTKIT_NULL"
    assert called.functions.bertkit_builder_new(None, -1, None, None) == 10, "the error may be NULL"
    number = c_int32()
    assert called.call("bertkit_find_variant", b"sse9", addressof(number))[1] == "this library has no variant sse9"


@pytest.mark.parametrize(
    ("field", "value", "status", "told"),
    [
        ("struct_size", 0, "BERTKIT_STRUCT_SIZE", "matrix"),
        ("kind", 9, "BERTKIT_RANGE", "kind is 9"),
        ("outputs", 23, "BERTKIT_SHAPE", "BERTKIT_QKV of layer 0 has shape (23, 8), expected (24, 8)"),
        ("inputs", 9, "BERTKIT_SHAPE", "expected (24, 8)"),
        ("weights", None, "BERTKIT_NULL", "matrix.weights is NULL"),
        ("weights", 4097, "BERTKIT_ALIGNMENT", "matrix.weights is not aligned to 4 bytes"),
        ("bias", None, "BERTKIT_NULL", "matrix.bias"),
    ],
)
def test_a_wrong_matrix_is_named_and_nothing_is_set(
    called: Called, field: str, value: Any, status: str, told: str
) -> None:
    assert called.new()[0] == "BERTKIT_OK"
    before = getattr(called.matrix, field)
    setattr(called.matrix, field, value)
    name, text = called.set_matrix()
    assert name == status
    assert told in text
    setattr(called.matrix, field, before)
    assert called.set_matrix(layer=1) == ("BERTKIT_RANGE", "layer is 1, expected 0 to 0")
    assert called.set_matrix(which=4)[0] == "BERTKIT_RANGE"
    assert called.set_matrix()[0] == "BERTKIT_OK"
    assert called.set_matrix() == ("BERTKIT_TWICE", "BERTKIT_QKV of layer 0 is set")
    called.functions.bertkit_builder_free(called.builder)


def test_wrong_scales_of_bytes_are_named(called: Called) -> None:
    assert called.new()[0] == "BERTKIT_OK"
    called.matrix.kind = 4
    assert called.set_matrix() == ("BERTKIT_NULL", "matrix.scale is NULL")
    smooth = np.array([1, 0, 1, 1, 1, 1, 1, 1], np.float32)
    called.matrix.scale, called.matrix.smooth = called.scales.ctypes.data, smooth.ctypes.data
    called.matrix.num_outliers = 9
    assert called.set_matrix()[1] == "matrix.num_outliers is 9, expected 0 to 8"
    called.matrix.num_outliers = 2
    assert called.set_matrix() == ("BERTKIT_NULL", "matrix.outliers is NULL")
    called.matrix.outliers, called.matrix.outlier_weights = called.outliers.ctypes.data, called.weights.ctypes.data
    called.outliers[1] = 8
    assert called.set_matrix()[1] == "matrix.outliers[1] is 8, expected 0 to 7"
    called.outliers[1] = 7
    told = "matrix.smooth[7] is 1, expected 0: it is an outlier"
    assert called.set_matrix() == ("BERTKIT_RANGE", told)
    smooth[7] = 0
    weights = np.zeros((24, 8), np.int8)
    called.matrix.weights, called.matrix.narrow = weights.ctypes.data, 1
    for value in (64, -64):
        weights[1, 3] = value
        assert called.set_matrix() == ("BERTKIT_RANGE", f"matrix.weights[11] is {value}; narrow ones are -63 to 63")
    weights[1, 3] = 63
    assert called.set_matrix()[0] == "BERTKIT_OK"
    called.functions.bertkit_builder_free(called.builder)


def test_what_is_missing_is_named_and_the_builder_stays(called: Called) -> None:
    handle = c_void_p()
    assert called.new()[0] == "BERTKIT_OK"

    def seal() -> tuple[str, str]:
        return called.call("bertkit_builder_seal", addressof(called.builder), addressof(handle))

    assert seal() == ("BERTKIT_INCOMPLETE", "BERTKIT_QKV of layer 0 is not set")
    for which, (outputs, inputs) in enumerate(((24, 8), (8, 8), (12, 8), (8, 12))):
        called.matrix.outputs, called.matrix.inputs = outputs, inputs
        assert called.set_matrix(which=which)[0] == "BERTKIT_OK"
    assert seal() == ("BERTKIT_INCOMPLETE", "BERTKIT_NORM_ATTENTION of layer 0 is not set")
    one = called.scales.ctypes.data
    for which in (0, 1):
        assert called.call("bertkit_builder_set_norm", called.builder, 0, which, one, one)[0] == "BERTKIT_OK"
    assert called.call("bertkit_builder_set_norm", called.builder, 0, 1, one, one)[0] == "BERTKIT_TWICE"
    assert called.call("bertkit_builder_set_norm", called.builder, 0, 2, one, one)[0] == "BERTKIT_RANGE"
    told = "layer is -1, but only gated layers have a normalization after the top one"
    assert called.call("bertkit_builder_set_norm", called.builder, -1, 0, one, one) == ("BERTKIT_SHAPE", told)
    assert called.call("bertkit_builder_set_attention", called.builder, 0, -2, -1, 0, None, None)[0] == "BERTKIT_RANGE"
    assert called.call("bertkit_builder_set_attention", called.builder, 0, -1, 2, 0, None, None)[0] == "BERTKIT_RANGE"
    assert called.call("bertkit_builder_set_attention", called.builder, 0, -1, -1, 0, one, None)[0] == "BERTKIT_SHAPE"
    for tables in ((one + 2, None), (one, one + 1)):
        refused = called.call("bertkit_builder_set_attention", called.builder, 0, -1, -1, 3, *tables)
        assert refused[0] == "BERTKIT_ALIGNMENT"
    assert seal()[0] == "BERTKIT_OK"
    assert not called.builder
    called.functions.bertkit_encoder_free(handle)
    called.functions.bertkit_encoder_free(None)
    called.functions.bertkit_builder_free(None)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("struct_size", 1, "batch has 1 bytes"),
        ("num_sequences", -1, "batch.num_sequences is -1"),
        ("starts", None, "batch.starts is NULL"),
        ("starts", np.array([1, 3, 7], np.int32), "batch.starts[0] is 1, expected 0"),
        ("starts", np.array([0, 9, 7], np.int32), "batch.starts[2] is 7, less than the 9 before it"),
        ("rows", None, "batch.rows is NULL"),
        ("rows", 4098, "batch.rows is not aligned to 4 bytes"),
        ("wanted_starts", None, "batch.wanted_starts is NULL"),
        ("wanted_starts", np.array([0, 2, 1], np.int32), "batch.wanted_starts[2] is 1"),
        ("wanted", np.array([0, 7], np.int32), "batch.wanted[1] is 7, expected 3 to 6 of sequence 1"),
        ("wanted", np.array([-1, 5], np.int32), "batch.wanted[0] is -1"),
        ("wanted", np.array([0, 2], np.int32), "batch.wanted[1] is 2, expected 3 to 6 of sequence 1"),
    ],
)
def test_a_wrong_batch_is_named_and_the_result_stays(native: NativeLibrary, name: str, value: Any, told: str) -> None:
    shape = shape_of(8, 2, 12)
    encoder = encoder_of(native, shape, random_weights(shape))
    rows, starts = random_rows(8, 3, 4)
    given = {"starts": starts, "rows": rows, "wanted": np.array([0, 5], np.int32)}
    given |= {"wanted_starts": np.array([0, 1, 2], np.int32)}
    batch = native_encoder._Batch(sizeof(native_encoder._Batch), 2)
    for field, array in given.items():
        setattr(batch, field, array.ctypes.data)
    setattr(batch, name, value.ctypes.data if isinstance(value, np.ndarray) else value)
    result, error = np.full((2, 8), 7.0, np.float32), NativeErrorText()
    passed = (encoder._handle, addressof(batch), result.ctypes.data, 1, addressof(error))
    assert native.functions.bertkit_encode(*passed) != 0
    assert told in error.text.decode()
    assert (result == 7.0).all()


def test_an_id_outside_its_table_is_named(native: NativeLibrary) -> None:
    table, one = np.ones((3, 8), np.float32), np.ones(8, np.float32)
    embeddings = NativeEmbeddings(native, [table, table], (one, one), 1e-12)
    assert embeddings([np.array([0, 2]), np.array([0, 1])]) is not None
    assert embeddings([np.array([0, 2]), np.array([0, 3])]) is None
    assert embeddings([np.array([-1, 2]), np.array([0, 1])]) is None


def test_variants_are_listed_with_what_they_lack(native: NativeLibrary) -> None:
    found = native.variants()
    assert [info.name for info in found][-1] == b"plain"
    for info in found:
        assert bool(info.runs) == (info.lacks == b"")
        assert info.lanes in (4, 8, 16)
        if info.runs:
            assert native.with_variant(info.name.decode()).lanes == info.lanes


@pytest.mark.parametrize("longest", [0, -1, 2**30 + 1])
def test_tables_of_positions_have_a_length(native: NativeLibrary, longest: int) -> None:
    shape = shape_of(8, 2, 12)
    encoder = encoder_of(native, shape, random_weights(shape))
    rows, starts = random_rows(8, 3)
    positions = native_encoder._Positions(sizeof(native_encoder._Positions), longest)
    batch = native_encoder._Batch(sizeof(native_encoder._Batch), 1, starts.ctypes.data, rows.ctypes.data)
    batch.positions = addressof(positions)
    result, error = np.zeros((3, 8), np.float32), NativeErrorText()
    passed = (encoder._handle, addressof(batch), result.ctypes.data, 1, addressof(error))
    assert native.functions.bertkit_encode(*passed) != 0
    assert "batch.positions.longest" in error.text.decode()
