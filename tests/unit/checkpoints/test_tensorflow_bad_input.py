"""Damaged and hostile TensorFlow checkpoints, whose checksums may be right: named, quickly, before anything is read."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertkit import BertModel
from bertkit.checkpoints.tensorflow.bundle import open_bundle
from bertkit.checkpoints.tensorflow.index_table import MAX_ENTRIES, MAX_INDEX_BYTES, read_table
from bertkit.checkpoints.tensorflow.variables import ArchiveReader, find_index, open_archive
from bertkit.errors import CheckpointError, InputError, ResourceError
from bertkit.model.convert import Overrides, convert
from bertkit.model.convert_sources import TensorFlowSource
from disk_helpers import largest_file
from hostile_helpers import counted_calls
from tensorflow_helpers import (
    GOLDEN,
    block,
    entry,
    field,
    header,
    masked_by_bytes,
    number,
    shape,
    table,
    trailed,
    write_bundle,
)

DATA = struct.pack("<16f", *range(16))
GOOD = [(b"", header()), (b"a", entry(crc=masked_by_bytes(DATA[:8]))), (b"b", entry(start=8))]
HUGE = 1 << 62
#: Places of a file between two that are tried.
STEP = 13


def read_all(index: Path) -> dict[str, np.ndarray]:
    archive = open_archive(index)
    with ArchiveReader(archive) as reader:
        return {name: reader.tensor(name) for name in archive.tensors}


def test_a_bundle_written_here_is_read(tmp_path: Path) -> None:
    """Control of the helpers: what the cases below change is right before."""
    bundle = open_bundle(write_bundle(tmp_path, GOOD, DATA))
    assert {name: (info.shape, info.start, info.end) for name, info in bundle.tensors.items()} == {
        "a": ((2,), 0, 8),
        "b": ((2,), 8, 16),
    }


def index_is(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / "m.ckpt.index").write_bytes(content)


def entries_are(*entries: tuple[bytes, bytes]) -> Callable[[Path], object]:
    return lambda folder: write_bundle(folder, list(entries), DATA)


def tensor_is(described: bytes) -> Callable[[Path], object]:
    return entries_are((b"", header()), (b"a", described))


SHARED = trailed(number(5) + number(1) + number(0) + b"x" + struct.pack("<II", 0, 1))
LONG_NAME = b"n" * 1_100


def empty_blocks() -> bytes:
    """As many blocks without a name as a test can wait for, under names in order."""
    return table([block([])] * 5_000, [b"%05d" % number for number in range(5_000)])


CASES: dict[str, tuple[Callable[[Path], object], str]] = {
    # the table
    "nothing": (index_is(b""), "it has 0 bytes"),
    "another file": (index_is(os.urandom(500)), "its end is not that of a checkpoint index"),
    "too large": (index_is(bytes(MAX_INDEX_BYTES + 1)), "more than 8,388,608 bytes"),
    "wrong checksum": (index_is(table([block(GOOD, spoil=1)], [b"b"])), "checksum of the block at 0 is wrong"),
    "compressed": (index_is(table([block(GOOD, kind=1)], [b"b"])), r"compressed \(kind 1\)"),
    "block outside": (index_is(table([block(GOOD)], [b"b"], handles=[number(0) + number(1 << 40)])), "a block should"),
    "blocks overlap": (
        index_is(table([block(GOOD)], [b"b", b"c"], handles=[number(0) + number(len(block(GOOD)) - 5)] * 2)),
        "its blocks overlap",
    ),
    "handle cut off": (index_is(table([block(GOOD)], [b"b"], handles=[b"\xff"])), "cut off"),
    "handle of 100 bits": (index_is(table([block(GOOD)], [b"b"], handles=[b"\xff" * 14 + b"\1"])), "more than 64 bits"),
    "a name twice": (entries_are((b"", header()), (b"a", entry()), (b"a", entry(start=8))), "'a' is there twice"),
    "names out of order": (entries_are((b"", header()), (b"b", entry()), (b"a", entry(start=8))), "not in order"),
    "shares what is not there": (index_is(table([SHARED], [b"x"])), "reaches out of its block"),
    "no restarts": (index_is(table([trailed(struct.pack("<I", 0))], [b""])), "malformed list of restarts"),
    "too many restarts": (index_is(table([trailed(struct.pack("<I", 1 << 31))], [b""])), "malformed list of restarts"),
    "blocks of nothing": (index_is(empty_blocks()), "the block at 0 has no names"),
    "a very long name": (entries_are((b"", header()), (LONG_NAME, entry())), "more than the limit 1,024"),
    "too many names": (
        entries_are((b"", header()), *((b"%06d" % n, b"") for n in range(MAX_ENTRIES))),
        "more than 50,000 entries",
    ),
    # the header
    "no header": (entries_are((b"a", entry())), "does not begin with the header"),
    "empty table": (index_is(table([], [])), "does not begin with the header"),
    "header of rubbish": (entries_are((b"", b"\xff\xff")), "cut off"),
    "big-endian": (entries_are((b"", header(endianness=1))), "big-endian"),
    "from the future": (entries_are((b"", header(needed=9))), "needs version 9"),
    "a million data files": (entries_are((b"", header(10**6))), "1,000,000 data files"),
    "a data file is missing": (entries_are((b"", header(2))), r"m\.ckpt\.data-00000-of-00002 is not beside it"),
    "data is a folder": (
        lambda f: ((f / "m.ckpt.data-00000-of-00001").unlink(), (f / "m.ckpt.data-00000-of-00001").mkdir()),
        "is not beside it",
    ),
    # a tensor
    "unknown type": (tensor_is(entry(dtype=99)), "'a' has the type number 99"),
    "resource": (tensor_is(entry(dtype=20)), "'a' has the type number 20"),
    "size of another shape": (tensor_is(entry(size=12)), r"shape \[2\] and type F32 needs 8 bytes, has 12"),
    "sizes that overflow": (tensor_is(entry([1 << 40, 1 << 40], size=8)), "needs 4835703278458516698824704 bytes"),
    "negative size": (tensor_is(entry([2**64 - 1], size=8)), "malformed shape"),
    "nine axes": (tensor_is(entry([1] * 9, size=4)), "malformed shape"),
    "no shape": (tensor_is(field(1, 1) + field(2, field(3, 1)) + field(5, 4)), "it has no shape"),
    "reaches out": (tensor_is(entry(start=60)), "'a' ends at byte 68 of .*, which has 64"),
    "starts far outside": (tensor_is(entry(start=HUGE)), "'a' ends at byte"),
    "in a file that is not": (tensor_is(entry(shard=1)), "lies in data file 1, but there are only 1"),
    "overlap": (entries_are((b"", header()), (b"a", entry()), (b"b", entry(start=4))), "'b' overlaps 'a'"),
    "the same place": (entries_are((b"", header()), (b"a", entry()), (b"b", entry())), "'b' overlaps 'a'"),
    "in slices of nothing": (tensor_is(entry(more=field(7, b""))), "do not lie along one axis"),
    "described by rubbish": (
        tensor_is(b"\x0b\x0c"),
        "'a' has a malformed entry: field 1 has the unknown wire type 3",
    ),
    "shape a number": (tensor_is(field(1, 1) + field(2, 7)), "'a' has a malformed entry"),
    "name not UTF-8": (entries_are((b"", header()), (b"\xff", entry())), "utf-8"),
    "graph of another kind": (
        entries_are((b"", header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", entry([3], dtype=7, size=8))),
        "the text '_CHECKPOINTABLE_OBJECT_GRAPH' has 8 bytes",
    ),
    "graph damaged": (
        entries_are((b"", header()), (b"_CHECKPOINTABLE_OBJECT_GRAPH", entry([], dtype=7, size=8))),
        "description of the objects is damaged",
    ),
    # a whole bundle of something else
    "no BERT": (entries_are(*GOOD), r"is not a BERT: .*'bert/embeddings/word_embeddings'.* but 'a', 'b'"),
    "two encoders": (
        entries_are(
            (b"", header()),
            (b"x/bert/embeddings/word_embeddings", entry()),
            (b"y/bert/embeddings/word_embeddings", entry(start=8)),
        ),
        "contains 2 encoders, under 'x/', 'y/'",
    ),
    "unknown variable": (
        entries_are(
            (b"", header()),
            (b"bert/embeddings/word_embeddings", entry()),
            (b"bert/embeddings/wrod_embeddings", entry(start=8)),
        ),
        r"has 1 unknown variable, neither the original BERT.*\n  bert/embeddings/wrod_embeddings  \[2\]",
    ),
    "a slot of nothing": (
        entries_are((b"", header()), (b"bert/embeddings/word_embeddings", entry()), (b"x/adam_m", entry(start=8))),
        "has 1 unknown variable, ",
    ),
    "a counter with a shape": (
        entries_are(
            (b"", header()),
            (b"bert/embeddings/word_embeddings", entry()),
            (b"bert/encoder/layer_0/attention/decay", entry(start=8)),
        ),
        r"has 1 unknown variable, .*\n  bert/encoder/layer_0/attention/decay  \[2\]",
    ),
    "a slot of another shape": (
        entries_are(
            (b"", header()),
            (b"bert/embeddings/word_embeddings", entry()),
            (b"bert/embeddings/word_embeddings/adam_m", entry([3], start=8)),
        ),
        r"has 1 unknown variable, .*\n  bert/embeddings/word_embeddings/adam_m  \[3\]",
    ),
    "layer 01": (
        entries_are(
            (b"", header()),
            (b"bert/embeddings/word_embeddings", entry()),
            (b"bert/encoder/layer_01/output/dense/bias", entry(start=8)),
        ),
        "layer_01",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_bundle(case: str, tmp_path: Path) -> None:
    write_bundle(tmp_path, GOOD, DATA)
    spoil, said = CASES[case]
    spoil(tmp_path)
    with counted_calls() as calls, pytest.raises(CheckpointError, match=f"(?s){said}") as caught:
        read_all(tmp_path / "m.ckpt.index")
    assert 0 < calls() < 20 * MAX_ENTRIES
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 6000


def copy_of(name: str, folder: Path) -> Path:
    shutil.copytree(GOLDEN / name, folder)
    return folder


def test_every_shorter_index_is_refused(tmp_path: Path) -> None:
    folder = copy_of("original", tmp_path / "o")
    index = folder / "bert_model.ckpt.index"
    whole = index.read_bytes()
    for length in range(0, len(whole), STEP):
        index.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="not a whole checkpoint index"):
            read_table(index)
    index.write_bytes(whole)
    assert read_table(index)  # control


def test_flipped_bits_of_an_index_are_refused_or_change_nothing(tmp_path: Path) -> None:
    folder = copy_of("original", tmp_path / "o")
    index = folder / "bert_model.ckpt.index"
    whole, right = index.read_bytes(), read_table(index)
    refused = 0
    for place in range(0, len(whole), STEP):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        index.write_bytes(damaged)
        try:
            assert read_table(index) == right  # padding, or the place of the unused block
        except CheckpointError:
            refused += 1
    assert refused > 0.9 * len(whole) / STEP


@pytest.mark.parametrize("place", [0, 1000, 3071])
def test_a_flipped_bit_of_a_value_is_found(place: int, tmp_path: Path) -> None:
    folder = copy_of("original", tmp_path / "o")
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[place] ^= 1
    data.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"the checksum of tensor 'bert/.*' is wrong"):
        convert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["o"]  # and nothing half is left beside it


def test_cut_data(tmp_path: Path) -> None:
    folder = copy_of("original", tmp_path / "o")
    os.truncate(folder / "bert_model.ckpt.data-00000-of-00001", 6000)
    with pytest.raises(CheckpointError, match=r"ends at byte .* which has 6,000 bytes"):
        convert(folder, tmp_path / "out")


def test_a_config_of_another_model(tmp_path: Path) -> None:
    folder = copy_of("original", tmp_path / "o")
    config = folder / "bert_config.json"
    config.write_text(config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    with pytest.raises(CheckpointError, match=r"(?s)missing \(16\).*num_hidden_layers=3, but the file has 2 layers"):
        convert(folder, tmp_path / "out")


def test_a_bias_without_its_matrix() -> None:
    archive = open_archive(GOLDEN / "classifier" / "model.ckpt-7.index")
    del archive.tensors["classifier.weight"]  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match=r"(?s)missing \(1\).*classifier\.weight"):
        TensorFlowSource(archive, Overrides(config=GOLDEN / "original" / "bert_config.json"))


def test_what_find_index_takes(tmp_path: Path) -> None:
    folder = copy_of("classifier", tmp_path / "c")
    named = folder / "model.ckpt-0.index"
    for path in (named, folder / "model.ckpt-0", folder / "model.ckpt-0.data-00000-of-00001"):
        assert find_index(path) == named
    assert find_index(folder) == folder / "model.ckpt-7.index"
    (folder / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/../model.ckpt-0"\n')
    assert find_index(folder) == named  # only the last part of what it says
    (folder / "checkpoint").unlink()
    with pytest.raises(CheckpointError, match="contains 2 checkpoints"):
        find_index(folder)
    assert find_index(tmp_path) is None
    assert find_index(tmp_path / "none") is None


def test_overrides_and_targets(tmp_path: Path) -> None:
    source = GOLDEN / "original"
    with pytest.raises(InputError, match=r"unknown class .BertForTokenClasification.*did you mean"):
        convert(source, tmp_path / "a", overrides=Overrides(model_class="BertForTokenClasification"))
    with pytest.raises(CheckpointError, match="does not fit BertForQuestionAnswering"):
        convert(source, tmp_path / "a", overrides=Overrides(model_class="BertForQuestionAnswering"))
    with pytest.raises(CheckpointError, match=r"nowhere\.json does not exist"):
        convert(source, tmp_path / "a", overrides=Overrides(config=tmp_path / "nowhere.json"))
    with pytest.raises(CheckpointError, match=r"nowhere\.txt does not exist"):
        convert(source, tmp_path / "a", overrides=Overrides(vocab=tmp_path / "nowhere.txt"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(InputError, match="exists already"):
        convert(source, tmp_path / "full")
    assert not (tmp_path / "a").exists()
    (tmp_path / "empty").mkdir()
    (tmp_path / "cased.txt").write_text((source / "vocab.txt").read_text().replace("river", "River"))
    done = convert(source, tmp_path / "empty", overrides=Overrides(vocab=tmp_path / "cased.txt"))
    assert "the tokenizer keeps capitals, because its vocabulary has 'River'" in done.notes
    with pytest.raises(InputError, match=r"only a TensorFlow checkpoint takes model-class; this one has"):
        convert(tmp_path / "empty", tmp_path / "b", overrides=Overrides(model_class="BertModel"))


def test_a_vocabulary_that_no_tokenizer_reads(tmp_path: Path) -> None:
    for name, content in (("zeros.model", bytes(100)), ("empty.txt", b"a\nb\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            CheckpointError, match=r"has a vocabulary that bertkit cannot read.* the result.*--vocab FILE"
        ):
            convert(GOLDEN / "original", tmp_path / "out", overrides=Overrides(vocab=tmp_path / name))
    assert not (tmp_path / "out").exists()


def test_a_full_disk_outside_the_weights(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"word\n" * 20_000)
    with (
        largest_file(50_000),
        pytest.raises(ResourceError, match=r"File too large\. No conversion was finished; .*has space"),
    ):
        convert(GOLDEN / "original", tmp_path / "out", overrides=Overrides(vocab=tmp_path / "vocab.txt"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["vocab.txt"]


@pytest.mark.parametrize("name", ["bert.tar.gz", "bert.tgz", "bert.TAR"])
def test_an_archive_to_unpack_first(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=rf"Unpack it first:\n  tar xf .*{name}"):
        convert(tmp_path / name, tmp_path / "out")


def test_loading_it_directly_names_the_way(tmp_path: Path) -> None:
    (tmp_path / "bert.zip").write_bytes(b"")
    for path in (
        GOLDEN / "original",
        GOLDEN / "original" / "bert_model.ckpt.index",
        GOLDEN / "hub",
        tmp_path / "bert.zip",
    ):
        with pytest.raises(CheckpointError, match="bertkit convert"):
            BertModel.from_pretrained(path)


def test_shape_helper_is_what_tensorflow_writes() -> None:
    """Control of the helper: the golden index holds the same bytes for a shape."""
    entries = dict(read_table(GOLDEN / "original" / "bert_model.ckpt.index"))
    assert field(2, shape([24, 8])) in bytes(entries[b"bert/embeddings/word_embeddings"])
