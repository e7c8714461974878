"""Thousands of damaged and hostile files of every kind: read as before, or our own error, quickly and in little memory.

Each file is mutated (bits flipped, pieces cut out or doubled, numbers made huge, names made hostile, ends cut off; in
JSON also values of the wrong type, numbers that are none, keys that are there twice), and where a format has checksums
also with the checksum made right again, so that the damage reaches the code behind it. Nothing may be written outside
the folder in use, and no file but the mutated one may change.
"""

from __future__ import annotations

import io
import operator
import os
import shutil
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import sentencepiece_model_pb2
from tokenizers import pre_tokenizers

import hostile_helpers
from bertkit import BertConfig, BertForPreTraining
from bertkit.checkpoints.huggingface import check_vocabulary, find_weights
from bertkit.checkpoints.tensorflow.variables import find_index, open_archive
from bertkit.checkpoints.zip_archive import unpack
from bertkit.config.config_file import config_path
from bertkit.errors import BertkitError, CheckpointError
from bertkit.model.convert import Overrides
from bertkit.model.convert_sources import TensorFlowSource
from bertkit.tokenization import (
    AlbertTokenizer,
    BertTokenizer,
    GemmaTokenizer,
    RobertaTokenizer,
    XLMRobertaTokenizer,
)
from hostile_helpers import (
    BYTES,
    FEW,
    HEADER,
    JSON,
    MANY,
    SAME,
    TEXT,
    HangError,
    Kind,
    attack,
    bounded,
    prepare,
    sharded,
    without,
)
from tensorflow_helpers import GOLDEN, masked_by_bytes

LETTERS = "abdefhinorstuvwy"
SHAPE = {
    "vocab_size": 24, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 16,
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name: a small checkpoint with a tokenizer, and tokenizers of other kinds."""
    parent = tmp_path_factory.mktemp("hostile")
    folders = {name: parent / name for name in ("model", "roberta", "gemma", "albert", "xlm-roberta")}
    for folder in folders.values():
        folder.mkdir()
    torch.manual_seed(0)
    BertForPreTraining(BertConfig(**SHAPE)).save_pretrained(folders["model"])
    shutil.copyfile(GOLDEN / "original" / "vocab.txt", folders["model"] / "vocab.txt")
    BertTokenizer.from_pretrained(folders["model"]).save_pretrained(folders["model"])
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *alphabet, "th", "the", "\u0120r", "<mask>"]
    merges = [("t", "h"), ("th", "e"), ("\u0120", "r")]
    RobertaTokenizer({token: number for number, token in enumerate(tokens)}, merges).save_pretrained(folders["roberta"])
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<0xC3>", "<0xA9>", "\u2581", *LETTERS]
    tokens += ["th", "the", "\u2581the"]
    merges = [("t", "h"), ("th", "e"), ("\u2581", "the")]
    GemmaTokenizer({token: number for number, token in enumerate(tokens)}, merges).save_pretrained(folders["gemma"])
    for family, tokenizer_class in (("albert", AlbertTokenizer), ("xlm-roberta", XLMRobertaTokenizer)):
        file = parent / tokenizer_class.kind.files[0]
        file.write_bytes(sentencepieces(family))
        tokenizer_class(file).save_pretrained(folders[family])
        shutil.copyfile(file, folders[family] / file.name)
    return {**folders, "tensorflow": GOLDEN / "original"}


def sentencepieces(family: str) -> bytes:
    model = sentencepiece_model_pb2.ModelProto()
    first = {
        "albert": [("<pad>", 3), ("<unk>", 2), ("[CLS]", 3), ("[SEP]", 3), ("[MASK]", 3)],
        "xlm-roberta": [("<unk>", 2), ("<s>", 3), ("</s>", 3)],
    }[family]
    for piece, kind in [*first, *((piece, 1) for piece in ("\u2581", "\u2581the", "er", *LETTERS))]:
        model.pieces.add(piece=piece, score=0.0 if kind > 1 else -1.0 - len(model.pieces) / 8, type=kind)
    model.trainer_spec.model_type = 1
    if family == "albert":
        model.trainer_spec.pad_id, model.trainer_spec.unk_id = 0, 1
        model.trainer_spec.bos_id = model.trainer_spec.eos_id = -1
    else:
        model.trainer_spec.unk_id, model.trainer_spec.bos_id, model.trainer_spec.eos_id = 0, 1, 2
    return model.SerializeToString()  # type: ignore[no-any-return]


def load_model(folder: Path) -> object:
    """Another name of a field's value, and what it was trained for, change nothing that is computed."""
    model = BertForPreTraining.from_pretrained(folder)
    shape = model.config.model_dump(exclude={"architectures"})
    return shape, {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def look(folder: Path) -> object:
    """What loading does before it builds a model."""
    config = BertConfig.from_json_file(config_path(folder))
    check_vocabulary(folder, config)
    return find_weights(folder).tensors


def load_tokenizer(tokenizer_class: Any = BertTokenizer) -> Callable[[Path], object]:
    def load(folder: Path) -> object:
        tokenizer = tokenizer_class.from_pretrained(folder)
        found = [tokenizer(text, return_offsets_mapping=True) for text in ("the river ran fast", "The <mask>  [MASK]")]
        return [{key: list(values) for key, values in one.items()} for one in found], tokenizer.get_vocab()

    return load


def read_tensorflow(folder: Path) -> dict[str, bytes]:
    index = find_index(folder)
    if index is None:
        raise CheckpointError("as convert says where it finds no checkpoint")
    source = TensorFlowSource(open_archive(index), Overrides(config=GOLDEN / "original" / "bert_config.json"))
    with source.opened:
        return {name: source.read(name).tobytes() for name in source.tensors}


def unzip(folder: Path) -> set[bytes]:
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    files = unpack(folder / "m.zip", out)
    assert all(file.parent == out and file.is_file() and not file.is_symlink() for file in files)
    return {file.read_bytes() for file in files}


def right_again(content: bytearray) -> None:
    """The checksum of the first block of an index, so that what it holds is looked at."""
    if len(content) < 48:
        return
    footer = bytes(content[-48:-8])
    values, at = [], 0
    for _ in range(4):
        value = shift = 0
        while at < 40:
            byte = footer[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        values.append(value)
    end = values[0]  # the unused block follows the blocks of entries
    if 5 < end <= len(content):
        content[end - 4 : end] = struct.pack("<I", masked_by_bytes(bytes(content[: end - 4])))


def zip_of(folder: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"m/{file.name}")
    for file in list(folder.iterdir()):
        file.unlink()
    (folder / "m.zip").write_bytes(buffer.getvalue())


KINDS: dict[str, Kind] = {
    "safetensors": Kind("model", "model.safetensors", without(), (*TEXT, *HEADER), load_model),
    "index": Kind("model", "model.safetensors.index.json", sharded, JSON, look),
    "config": Kind("model", "config.json", without(), JSON, load_model),
    "vocab": Kind("model", "vocab.txt", without("tokenizer.json"), TEXT, load_tokenizer()),
    "tokenizer.json": Kind("model", "tokenizer.json", without("vocab.txt"), JSON, load_tokenizer()),
    "tokenizer_config": Kind("model", "tokenizer_config.json", without(), JSON, load_tokenizer()),
    "vocab.json": Kind("roberta", "vocab.json", without("tokenizer.json"), JSON, load_tokenizer(RobertaTokenizer)),
    "merges": Kind("roberta", "merges.txt", without("tokenizer.json"), TEXT, load_tokenizer(RobertaTokenizer)),
    "BPE tokenizer.json": Kind(
        "roberta", "tokenizer.json", without("vocab.json", "merges.txt"), JSON, load_tokenizer(RobertaTokenizer),
    ),
    "Gemma's tokenizer.json": Kind("gemma", "tokenizer.json", without(), JSON, load_tokenizer(GemmaTokenizer)),
    "unigram tokenizer.json": Kind(
        "xlm-roberta", "tokenizer.json", without(XLMRobertaTokenizer.kind.files[0]), JSON,
        load_tokenizer(XLMRobertaTokenizer),
    ),
    "spiece.model": Kind("albert", "spiece.model", without("tokenizer.json"), BYTES, load_tokenizer(AlbertTokenizer)),
    "bundle index": Kind("tensorflow", "bert_model.ckpt.index", without(), BYTES, read_tensorflow, SAME),
    "bundle index, checksum right": Kind(
        "tensorflow", "bert_model.ckpt.index", without(), BYTES, read_tensorflow, SAME, repair=right_again
    ),
    "bundle data": Kind(
        "tensorflow", "bert_model.ckpt.data-00000-of-00001", without(), BYTES, read_tensorflow, SAME
    ),
    "zip": Kind("tensorflow", "m.zip", zip_of, BYTES, unzip, SAME, as_before=operator.le),
}  # fmt: skip
#: Lists of words: another word is another vocabulary, not a fault.
WORDS = {"vocab", "merges"}
#: Files that need not be there.
OPTIONAL = {"tokenizer_config"}


@pytest.mark.parametrize("kind", KINDS)
def test_some_hostile_files(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    refused = attack(KINDS[kind], sources, tmp_path, FEW, seed=1)
    assert refused >= (0 if kind in WORDS else FEW // 4)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_hostile_files(kind: str, sources: dict[str, Path], tmp_path: Path) -> None:
    """16 kinds x 500: 8,000 files."""
    refused = attack(KINDS[kind], sources, tmp_path, MANY, seed=2)
    print(f"{kind}: {refused} of {MANY} refused")
    assert refused >= (0 if kind in WORDS else MANY // 4)


# --- something else in the place of a file ---------------------------------------------------------------------------


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def terabyte(path: Path) -> None:
    """Zeros that take no room on the disk."""
    with path.open("wb") as file:
        file.truncate(10**12)


def to_itself(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("put", [os.mkfifo, endless, terabyte, Path.mkdir, to_itself])
@pytest.mark.parametrize("kind", [kind for kind, made in KINDS.items() if made.repair is None])
def test_no_file_in_place_of_a_file(
    kind: str, put: Callable[[Path], None], sources: dict[str, Path], tmp_path: Path
) -> None:
    """A pipe that nobody writes to, zeros without end, a folder: refused, not waited for, not read to the end."""
    folder, name, use = tmp_path / "folder", KINDS[kind].name, KINDS[kind].read
    prepare(KINDS[kind], sources, folder)
    (folder / name).unlink()
    without_it = use(folder) if kind in OPTIONAL else None
    put(folder / name)
    said, found = "", None
    with bounded(f"{kind}: {put.__name__}"):
        try:
            found = use(folder)
        except BertkitError as error:
            said = str(error)
    assert 0 < len(said) < 2_000 or (kind in OPTIONAL and found == without_it)


@pytest.mark.parametrize("place", ["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"])
def test_a_link_in_place_of_a_file_is_only_read(place: str, tmp_path: Path) -> None:
    """What a link leads to is taken for what it should be, refused for its checksum, and never written to."""
    folder = shutil.copytree(GOLDEN / "original", tmp_path / "folder")
    victim = tmp_path / "victim"
    victim.write_bytes(b"secret" * 2000)
    (folder / place).unlink()
    (folder / place).symlink_to(victim)
    with pytest.raises(BertkitError) as caught:
        read_tensorflow(folder)
    assert "secret" not in str(caught.value)
    assert victim.read_bytes() == b"secret" * 2000


# --- the bounds themselves -------------------------------------------------------------------------------------------


def test_bounds_see_what_is_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_helpers, "MAX_BYTES", 20_000_000)
    (bytes(range(200)) * 300_000).count(1)  # what a test before this one may have taken
    with pytest.raises(AssertionError, match=r"too much: [34]\d,"), bounded("too much"):
        (bytes(range(200)) * 200_000).count(1)
    with bounded("little"):
        (bytes(range(200)) * 50_000).count(1)
    monkeypatch.setattr(hostile_helpers, "MAX_S", 0.05)
    with pytest.raises(AssertionError, match=r"too long: 0\.\d s"), bounded("too long"):
        _work_for(0.2)
    monkeypatch.setattr(hostile_helpers, "MAX_WAIT_S", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HangError, match=r"still reading after 0\.1 s"), bounded("waits"):
        (tmp_path / "pipe").read_bytes()


def _work_for(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
