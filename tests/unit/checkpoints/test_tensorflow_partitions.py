"""Partitioned variables: stored in slices, under keys that are not text."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertkit.checkpoints.tensorflow.bundle import BundleReader, open_bundle, slice_key
from bertkit.checkpoints.tensorflow.index_table import read_table
from bertkit.errors import CheckpointError
from bertkit.model.convert import convert
from tensorflow_helpers import GOLDEN, block, entry, field, header, masked_by_bytes, shape, table, write_bundle

WHOLE = (0, -1)
WORDS = "bert/embeddings/word_embeddings"


@pytest.mark.parametrize(
    ("name", "extents", "key"),
    [
        ("a", ((0, 63), WHOLE), b"\x00a\x00\x01\x01\x02\x80\xbf\x80\x7f"),
        ("a/b", ((63, 64),), b"\x00a/b\x00\x01\x01\x01\xbf\xc0\x40"),
        ("w", (WHOLE, (0, 8191)), b"\x00w\x00\x01\x01\x02\x80\x7f\x80\xdf\xff"),
        ("w", ((8192, 15261), WHOLE), b"\x00w\x00\x01\x01\x02\xe0\x20\x00\xe0\x3b\x9d\x80\x7f"),
    ],
)
def test_keys_are_those_of_tensorflow(name: str, extents: tuple[tuple[int, int], ...], key: bytes) -> None:
    """Worked out by hand from the description in TensorFlow's ``ordered_code.cc``: as many bytes as bits are set."""
    assert slice_key(name, extents) == key


def extents_of(*extents: tuple[int, int]) -> bytes:
    """A slice as the entry of a partitioned tensor lists it."""
    inside = (b"" if extent == WHOLE else field(1, extent[0]) + field(2, extent[1]) for extent in extents)
    return field(7, b"".join(field(1, one) for one in inside))


def whole_of(sizes: tuple[int, ...], *slices: tuple[tuple[int, int], ...]) -> bytes:
    return field(1, 1) + field(2, shape(sizes)) + b"".join(extents_of(*one) for one in slices)


def partitioned(
    folder: Path, values: np.ndarray, axis: int, counts: tuple[int, ...], *, explicit: bool = False
) -> Path:
    """A bundle with the one tensor ``w``, in slices along an axis; returns the index.

    ``explicit``: other axes have their sizes, as in TensorFlow's own files of partitioned variables.
    """
    wholes = [(0, size) if explicit else WHOLE for size in values.shape]
    data, entries, slices, start = b"", [], [], 0
    for count in counts:
        extents = tuple((start, count) if at == axis else whole for at, whole in enumerate(wholes))
        part = np.ascontiguousarray(np.take(values, range(start, start + count), axis)).astype("<f4")
        described = entry(part.shape, start=len(data), crc=masked_by_bytes(part.tobytes()))
        entries.append((slice_key("w", extents), described))
        data += part.tobytes()
        slices.append(extents)
        start += count
    return write_bundle(folder, [(b"", header()), *sorted(entries), (b"w", whole_of(values.shape, *slices))], data)


@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(("axis", "counts"), [(0, (2, 2, 1)), (0, (5,)), (1, (1, 6)), (2, (1, 1, 1, 1)), (2, (4,))])
def test_slices_become_one_tensor(axis: int, counts: tuple[int, ...], explicit: bool, tmp_path: Path) -> None:
    values = np.arange(5 * 7 * 4, dtype="<f4").reshape(5, 7, 4)
    bundle = open_bundle(partitioned(tmp_path, values, axis, counts, explicit=explicit))
    assert bundle.tensors["w"].shape == (5, 7, 4)
    out = np.empty(values.nbytes, np.uint8)
    with BundleReader(bundle) as reader:
        reader.read("w", out)
    assert np.array_equal(out.view("<f4").reshape(5, 7, 4), values)


def test_a_flipped_bit_in_a_slice_is_found(tmp_path: Path) -> None:
    values = np.arange(12, dtype="<f4").reshape(6, 2)
    index = partitioned(tmp_path, values, 0, (3, 3))
    data = tmp_path / "m.ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[30] ^= 1
    data.write_bytes(content)
    with (
        BundleReader(open_bundle(index)) as reader,
        pytest.raises(CheckpointError, match=r"checksum of tensor 'w \(slice 2 of 2\)' is wrong"),
    ):
        reader.read("w", np.empty(values.nbytes, np.uint8))


def test_a_model_with_partitioned_embeddings_converts_to_the_same(tmp_path: Path) -> None:
    """As large vocabularies were trained on parameter servers."""
    source = GOLDEN / "original"
    (tmp_path / "source").mkdir()
    for file in source.iterdir():
        (tmp_path / "source" / file.name).write_bytes(file.read_bytes())
    entries = {key: bytes(value) for key, value in read_table(source / "bert_model.ckpt.index")}
    info = open_bundle(source / "bert_model.ckpt.index").tensors[WORDS]
    values = np.frombuffer(info.file.read_bytes()[info.start : info.end], "<f4").reshape(info.shape)
    cut = info.shape[0] // 3
    extents = (((0, cut), WHOLE), ((cut, info.shape[0] - cut), WHOLE))
    entries[WORDS.encode()] = whole_of(info.shape, *extents)
    for one in extents:
        (first, count), _ = one
        part = values[first : first + count]
        place = info.start + first * part.strides[0]
        entries[slice_key(WORDS, one)] = entry(part.shape, start=place, crc=masked_by_bytes(part.tobytes()))
    content = table([block(sorted(entries.items()))], [max(entries)])
    (tmp_path / "source" / "bert_model.ckpt.index").write_bytes(content)
    ours, theirs = (convert(folder, tmp_path / f"out{at}") for at, folder in enumerate((tmp_path / "source", source)))
    assert ours.num_parameters == theirs.num_parameters
    assert (tmp_path / "out0" / "model.safetensors").read_bytes() == (
        tmp_path / "out1" / "model.safetensors"
    ).read_bytes()


PART = entry((1, 2), crc=0)
CASES: dict[str, tuple[Callable[[], list[tuple[bytes, bytes]]], str]] = {
    "no such slice": (lambda: [(b"w", whole_of((2, 2), ((0, 2), WHOLE)))], r"w \(slice 1 of 1\) is missing"),
    "a gap": (
        lambda: [(b"w", whole_of((3, 2), ((0, 1), WHOLE), ((2, 1), WHOLE)))],
        "leave a gap or overlap at index 1 of axis 0",
    ),
    "too few": (
        lambda: [(slice_key("w", ((0, 1), WHOLE)), PART), (b"w", whole_of((3, 2), ((0, 1), WHOLE)))],
        "have 1 of the 3 indices of axis 0",
    ),
    "two axes": (lambda: [(b"w", whole_of((2, 2), ((0, 1), (0, 1))))], "do not lie along one axis"),
    "another rank": (lambda: [(b"w", whole_of((2, 2), ((0, 2),)))], "do not lie along one axis"),
    "a higher rank": (lambda: [(b"w", whole_of((2,), ((0, 2), (0, 2))))], "do not lie along one axis"),
    "the whole twice": (
        lambda: [(b"w", whole_of((2, 2), ((0, 2), WHOLE), (WHOLE, (0, 2))))],
        "overlap at index 2 of axis 0",
    ),
    "another shape": (
        lambda: [(slice_key("w", ((0, 2), WHOLE)), PART), (b"w", whole_of((2, 2), ((0, 2), WHOLE)))],
        r"is missing, or does not have the shape \[2, 2\]",
    ),
    "of no tensor": (
        lambda: [(slice_key("v", ((0, 1), WHOLE)), PART), (b"w", entry((2,), start=8))],
        "is a slice of no tensor",
    ),
    "the same bytes": (
        lambda: [
            (slice_key("w", ((0, 1), WHOLE)), PART),
            (slice_key("w", ((1, 1), WHOLE)), PART),
            (b"w", whole_of((2, 2), ((0, 1), WHOLE), ((1, 1), WHOLE))),
        ],
        "overlaps",
    ),
    "an enormous shape": (
        lambda: [(b"w", whole_of((1 << 50, 2), ((0, 1 << 50), WHOLE)))],
        "is missing, or does not have the shape",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_damaged_slices(case: str, tmp_path: Path) -> None:
    make, said = CASES[case]
    index = write_bundle(tmp_path, [(b"", header()), *make()], struct.pack("<16f", *range(16)))
    with pytest.raises(CheckpointError, match=f"not a whole TensorFlow checkpoint: .*{said}"):
        open_bundle(index)
