"""What the C library must refuse, or have room for, because its buffers and kernels trust it."""

from __future__ import annotations

import platform
import subprocess
import sys
from ctypes import addressof, c_void_p, sizeof
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native import native_encoder
from bertkit.engine.native.build import FOLDER, NEUTRAL, VARIANT
from bertkit.engine.native.library import NativeErrorText, NativeLibrary
from bertkit.engine.native.native_encoder import NativeEmbeddings, NativeEncoder, PositionTables
from bertkit.weights.parts import Positions
from native_helpers import Array, Weights, native_layers, random_rows, random_weights, shape_of
from native_helpers import native_encoder as encoder_of

SHAPE = shape_of(8, 2, 12)
OVERFLOW = Path(__file__).parents[3] / "native" / "overflow.c"


class Asked:
    """Calls of ``bertkit_encode`` with an encoder, whose status and text are returned."""

    def __init__(self, library: NativeLibrary, encoder: NativeEncoder) -> None:
        self.functions, self.encoder, self.error = library.functions, encoder, NativeErrorText()
        self.result = np.full((400, 8), 7.0, np.float32)

    def encode(self, rows: Array, starts: Array, **fields: Any) -> tuple[str, str]:
        batch = native_encoder._Batch(sizeof(native_encoder._Batch), len(starts) - 1)
        kept = {"starts": starts, "rows": rows, **fields}
        for field, value in kept.items():
            setattr(batch, field, value.ctypes.data if isinstance(value, np.ndarray) else value)
        passed = (self.encoder._handle, addressof(batch), self.result.ctypes.data, 2)
        status = self.functions.bertkit_encode(*passed, addressof(self.error))
        return self.functions.bertkit_status_name(status).decode(), self.error.text.decode()


def test_a_row_can_be_wanted_once(native: NativeLibrary) -> None:
    asked = Asked(native, encoder_of(native, SHAPE, random_weights(SHAPE)))
    rows, starts = random_rows(8, 2)
    for wanted in ([0, 0], [1, 1], [0, 1, 1]):
        fields = {"wanted": np.array(wanted, np.int32), "wanted_starts": np.array([0, len(wanted)], np.int32)}
        status, told = asked.encode(rows, starts, **fields)
        assert status == "BERTKIT_RANGE", wanted
        assert f"batch.wanted[{len(wanted) - 1}] is {wanted[-1]}, expected {wanted[-1] + 1} to 1" in told
    assert (asked.result == 7.0).all()
    once = {"wanted": np.array([0, 1], np.int32), "wanted_starts": np.array([0, 2], np.int32)}
    assert asked.encode(rows, starts, **once)[0] == "BERTKIT_OK"


def with_distances(native: NativeLibrary, weights: list[Weights], *tables: Array) -> NativeEncoder:

    layers = [layer._replace(distances=tables) for layer in native_layers(SHAPE, weights)]
    return NativeEncoder(native, SHAPE, layers)


TOKENS = 20


@pytest.mark.parametrize("num_distances", [5000, 1 << 18])
@pytest.mark.parametrize("threads", [1, 4])
def test_few_tokens_may_have_distances_far_apart_in_their_table(
    native: NativeLibrary, num_distances: int, threads: int
) -> None:
    """Beside a table that has the rows of these distances alone."""
    weights, chance = random_weights(SHAPE), np.random.default_rng(3)
    places = np.sort(chance.choice(num_distances, 2 * TOKENS - 1, replace=False)).astype(np.int32)
    places[[0, -1]] = 0, num_distances - 1
    tables = [chance.normal(0, 1, (num_distances, 8)).astype(np.float32) for _ in range(2)]
    few = [np.ascontiguousarray(table[places]) for table in tables]
    x, starts = random_rows(8, TOKENS, 7, TOKENS)
    found = with_distances(native, weights, *tables)(
        x, starts, threads=threads, positions=PositionTables(Positions(TOKENS, rows=places))
    )
    close = PositionTables(Positions(TOKENS, rows=np.arange(2 * TOKENS - 1, dtype=np.int32)))
    right = with_distances(native, weights, *few)(x, starts, positions=close)
    np.testing.assert_allclose(found, right, atol=1e-5)
    other = with_distances(native, weights, *few[::-1])(x, starts, positions=close)
    assert np.abs(other - right).max() > 1e-2  # the control: the tables matter


def test_rows_of_distances_that_fall_are_refused(native: NativeLibrary) -> None:
    weights, table = random_weights(SHAPE), np.ones((50, 8), np.float32)
    asked = Asked(native, with_distances(native, weights, table, table))
    rows, starts = random_rows(8, 5)

    def encode(distances: Array) -> tuple[str, str]:
        known = native_encoder._Positions(sizeof(native_encoder._Positions), 10, (None, None), None)
        known.distances = distances.ctypes.data
        return asked.encode(rows, starts, positions=addressof(known))

    good = np.arange(19, dtype=np.int32)
    assert encode(good)[0] == "BERTKIT_OK"
    for place in (6, 13):  # the first and last that five tokens can have wrong: 5 to 13 are read
        bad = good.copy()
        bad[place] = bad[place - 1] - 1
        told = f"batch.positions.distances[{place}] is {place - 2}, less than the {place - 1} before it"
        assert encode(bad) == ("BERTKIT_SHAPE", told)
    far = good.copy()
    far[[0, 18]] = 30, 0
    assert encode(far)[0] == "BERTKIT_OK", "only rows that are read must not fall"


def test_addresses_that_a_type_does_not_allow(native: NativeLibrary) -> None:
    weights, table = random_weights(SHAPE), np.ones((50, 8), np.float32)
    asked = Asked(native, with_distances(native, weights, table, table))
    rows, starts = random_rows(8, 5)
    distances, floats = np.arange(19, dtype=np.int32), np.zeros(400, np.float32)
    right = {"bias": floats.ctypes.data, "distances": distances.ctypes.data}
    for field, value in (*right.items(), ("angles", floats.ctypes.data)):
        given = {**right, field: (value + 2, None) if field == "angles" else value + 2}
        known = native_encoder._Positions(sizeof(native_encoder._Positions), 10, **given)
        status, told = asked.encode(rows, starts, positions=addressof(known))
        assert (status, told) == ("BERTKIT_ALIGNMENT", f"batch.positions.{field} is not aligned to 4 bytes")
    assert asked.encode(rows, starts, positions=addressof(known) + 1)[0] == "BERTKIT_ALIGNMENT"
    one, ids, error = np.ones(8, np.float32), np.zeros(1, np.int64), NativeErrorText()
    places, good = (c_void_p * 1)(ids.ctypes.data), floats.ctypes.data
    for name, fields in (
        ("rows", (good + 2, None, None)),
        ("row_scale", (good, good + 1, good)),
        ("column_scale", (good, good, good + 2)),
    ):
        tables = (native_encoder._Table * 1)(native_encoder._Table(*fields, 3))
        passed = (addressof(tables), addressof(places), 1, 8, 1e-6, one.ctypes.data, one.ctypes.data)
        status = native.functions.bertkit_embed(native.variant, 1, *passed, floats.ctypes.data, addressof(error))
        assert native.functions.bertkit_status_name(status) == b"BERTKIT_ALIGNMENT"
        assert error.text.decode() == f"{name} of a table is not aligned to 4 bytes"


def test_no_tokens_and_other_integers_are_embedded(native: NativeLibrary) -> None:
    table, one, error = np.arange(24, dtype=np.float32).reshape(3, 8), np.ones(8, np.float32), NativeErrorText()
    embed = NativeEmbeddings(native, [table], (one, one), 1e-6)
    ids = np.array([2, 0, 1, 1])
    right = embed([ids])
    found = embed([ids.astype(np.int32)])
    assert right is not None
    assert found is not None
    np.testing.assert_array_equal(found, right)
    nothing = (None, None, 0, 8, 1e-6, None, None, None)
    assert native.functions.bertkit_embed(native.variant, 1, *nothing, addressof(error)) == 0


def test_a_closed_library_stays_loaded(native: NativeLibrary) -> None:
    """Its workers run its code until the process ends."""
    if sys.platform != "linux":
        pytest.skip("only ELF knows such libraries")
    code = (
        "import _ctypes, ctypes, os\n"
        f"path = {str(native.path)!r}\n"
        "_ctypes.dlclose(ctypes.CDLL(path)._handle)\n"
        "ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.campaign
def test_sizes_that_no_memory_could_hold(tmp_path: Path) -> None:
    """In a program with addresses of 32 bits; also a workspace that cannot grow is replaced by one that fits."""
    pytest.importorskip("ziglang", reason="no compiler for 32 bits")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("this system runs no programs of 32 bits")
    flags = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DBERTKIT_VARIANT=plain", "-DBERTKIT_PLAIN_C"]
    sources = [str(FOLDER / name) for name in (*NEUTRAL, VARIANT)]
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86-linux-musl"]
    command = [*compiler, *flags, "-DBERTKIT_VARIANTS=X(plain)", f"-I{FOLDER}", str(OVERFLOW), *sources]
    program = tmp_path / "overflow"
    subprocess.run([*command, "-o", str(program), "-pthread", "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        "BERTKIT_OVERFLOW: 4200 tokens in 256 threads need more bytes than there are addresses",
        "BERTKIT_OK: ",
        "BERTKIT_OK: ",
        "BERTKIT_OVERFLOW: 96 rows of a product need more bytes than there are addresses",
        "BERTKIT_NO_MEMORY: no memory for matrix 1",
    ]
