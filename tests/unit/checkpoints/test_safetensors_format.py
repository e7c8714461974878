"""Damaged, cut and hostile safetensors files: each is named, quickly, before anything is allocated."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from bertkit.checkpoints.safetensors_format import MAX_HEADER_BYTES, read_header
from bertkit.errors import CheckpointError
from hostile_helpers import bounded

TENSORS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones(4, np.float16),
    "empty": np.ones((0, 5), "f4"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path, {"format": "pt"})
    return path


def rewrite(file: Path, header: Any, data: bytes = b"\0" * 8) -> None:
    """Write a file with this header: text, or something to make JSON of."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def entry(start: int = 0, end: int = 8, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def test_a_whole_file(file: Path) -> None:
    header = read_header(file)
    assert header.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        info = header[name]
        assert info.shape == array.shape
        assert info.num_values == array.size
        content = file.read_bytes()[info.start : info.end]
        assert content == array.tobytes()


def test_a_file_without_tensors(file: Path) -> None:
    rewrite(file, {}, b"")
    assert read_header(file) == {}


def test_every_shorter_file_is_refused(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"model\.safetensors is not a whole safetensors file"):
            read_header(file)
    file.write_bytes(whole)
    assert read_header(file)  # control: the whole file is read


def test_bytes_left_over(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0\0\0")
    with pytest.raises(CheckpointError, match="3 bytes follow the last tensor"):
        read_header(file)


def test_flipped_bits_are_refused_or_change_only_a_name(file: Path) -> None:
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    refused = 0
    for place in range(8 + length):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            try:
                header = read_header(file)
            except CheckpointError:
                refused += 1
            else:  # a letter of a name or of the free text; sizes and places are as before, or of the same product
                assert sorted(info.end - info.start for info in header.values()) == [0, 8, 24]
    assert refused > 4 * (8 + length)


DEEP = b"[" * 200_000
CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda f: f.write_bytes(b""), "it has 0 bytes"),
    "length only": (lambda f: f.write_bytes(b"\x10" + b"\0" * 7), "header should have 16 bytes, but only 0"),
    "huge length": (
        lambda f: f.write_bytes(b"\xff" * 8 + b"{}") and None,
        "18,446,744,073,709,551,615 bytes, but only 2",
    ),
    "not JSON": (lambda f: rewrite(f, b"{'a': 1}"), "not valid JSON"),
    "not UTF-8": (lambda f: rewrite(f, b'{"\xff": 1}'), "not valid JSON"),
    "cut JSON": (lambda f: rewrite(f, b'{"a": {"dtype"'), "not valid JSON"),
    "a list": (lambda f: rewrite(f, [1]), "a JSON list"),
    "nested too deep": (lambda f: rewrite(f, DEEP), "nested too deep"),
    "NaN": (lambda f: rewrite(f, b'{"a": NaN}'), "holds NaN"),
    "a number of 5000 digits": (lambda f: rewrite(f, b'{"a": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "a name twice": (lambda f: rewrite(f, b'{"a": 1, "a": 2}'), "'a' more than once"),
    "a key twice": (
        lambda f: rewrite(f, b'{"a": {"dtype": "F32", "dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'),
        "'dtype' more than once",
    ),
    "metadata": (lambda f: rewrite(f, {"__metadata__": {"a": 1}}), "__metadata__"),
    "tensor of text": (lambda f: rewrite(f, {"a": "x"}), "tensor 'a' is not described"),
    "key too much": (lambda f: rewrite(f, {"a": {**entry(), "z": 1}}), "tensor 'a' is not described"),
    "unknown type": (lambda f: rewrite(f, {"a": entry(dtype="F99")}), "'a' has the unknown type 'F99'"),
    "type a list": (lambda f: rewrite(f, {"a": entry(dtype=[1])}), "'a' has the unknown type"),
    "negative size": (lambda f: rewrite(f, {"a": entry(shape=[-2])}), "'a' has a malformed shape"),
    "size a fraction": (lambda f: rewrite(f, {"a": entry(shape=[2.0])}), "'a' has a malformed shape"),
    "size true": (lambda f: rewrite(f, {"a": entry(shape=[True, 2])}), "'a' has a malformed shape"),
    "sizes that overflow": (lambda f: rewrite(f, {"a": entry(shape=[1 << 40] * 4)}), "needs 58460065"),
    "offsets backwards": (lambda f: rewrite(f, {"a": entry(8, 0)}), "'a' has no proper data_offsets"),
    "too few bytes": (lambda f: rewrite(f, {"a": entry(shape=[3])}), "needs 12 bytes, has 8"),
    "overlap": (lambda f: rewrite(f, {"a": entry(), "b": entry(4, 12)}, b"\0" * 12), "'b' overlaps 'a'"),
    "the same place": (lambda f: rewrite(f, {"a": entry(), "b": entry()}), "'b' overlaps 'a'"),
    "a hole": (lambda f: rewrite(f, {"a": entry(), "b": entry(12, 20)}, b"\0" * 20), "'b' leaves 4 unused bytes"),
    "not from 0": (lambda f: rewrite(f, {"a": entry(4, 12)}, b"\0" * 12), "'a' leaves 4 unused bytes after the header"),
    "past the end": (lambda f: rewrite(f, {"a": entry()}, b"\0" * 7), "cut off"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_header(case: str, file: Path) -> None:
    spoil, said = CASES[case]
    spoil(file)
    with bounded(case), pytest.raises(CheckpointError) as caught:
        read_header(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_header_over_the_limit_is_not_read(file: Path) -> None:
    with file.open("wb") as stream:  # a sparse file: it takes no room on the disk
        stream.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        stream.truncate(10 * MAX_HEADER_BYTES)
    with pytest.raises(CheckpointError, match="more than the limit"):
        read_header(file)


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is a folder"):
        read_header(tmp_path)
    with pytest.raises(CheckpointError, match="does not exist"):
        read_header(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):  # opening it would wait for ever
        read_header(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_header(Path("/dev/zero"))
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_header(tmp_path / "loop")


@pytest.mark.campaign
def test_random_damage_never_escapes(file: Path) -> None:
    """200,000 files with several random bytes changed, inserted or cut: read, or refused with our own error."""
    whole, draw, refused = file.read_bytes(), random.Random(1), 0
    for _ in range(200_000):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            place, kind = draw.randrange(len(damaged)), draw.randrange(3)
            if kind == 0:
                damaged[place] = draw.randrange(256)
            elif kind == 1:
                damaged.insert(place, draw.choice(b'{}[]",:019eE-"truenl'))
            else:
                del damaged[place : place + draw.randint(1, 9)]
        file.write_bytes(damaged)
        try:
            read_header(file)
        except CheckpointError:
            refused += 1
    assert refused > 100_000
