"""Weights and decisions that bertkit wrote: every flipped bit is found, and what was changed on purpose is accepted."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from bertkit import BertForSequenceClassification, BertModel, SentenceEncoder, pipeline
from bertkit.checkpoints.safetensors_format import (
    CHECKSUM,
    NO_CHECKSUM,
    read_header,
    read_metadata,
    reading_ahead,
    seal,
)
from bertkit.checkpoints.sentence_folder import SentenceParts, write_sentence_parts
from bertkit.cli import main
from bertkit.config.decision import read_decision, write_decision
from bertkit.config.sentence_config import Dense, SentenceConfig
from bertkit.errors import CheckpointError
from pipeline_helpers import save_tiny


def flip(file: Path, draw: random.Random, first: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[draw.randrange(first, len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def classifier(folder: Path) -> Path:
    save_tiny(folder, BertForSequenceClassification, id2label={0: "no", 1: "yes"})
    write_decision(folder, {"temperature": 1.5, "max_length": 24})
    return folder


def sentences(folder: Path) -> Path:
    """A folder of sentence-transformers with a dense layer."""
    save_tiny(folder)
    step = Dense(in_features=32, out_features=8, bias=True, activation="Tanh")
    drawn = np.random.default_rng(0)
    weights = {name: drawn.normal(size=shape).astype(np.float32) for name, shape in step.tensors.items()}
    write_sentence_parts(folder, SentenceParts(SentenceConfig(pooling=("mean",), steps=(step,)), (weights,)), 32)
    return folder


def values_of(folder: Path) -> Any:
    rows = pipeline(model=folder, device="cpu")(["the film", "bad"], top_k=None)
    return np.asarray([[answer["score"] for answer in row] for row in rows])


def test_every_flipped_bit_of_weights_is_found(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model")
    file, draw = folder / "model.safetensors", random.Random(0)
    whole, before = file.read_bytes(), values_of(folder)
    start = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(40):
        flip(file, draw, start)
        with pytest.raises(CheckpointError, match=rf"is not as bertkit wrote it.*\n  bertkit inspect --accept {file}$"):
            BertForSequenceClassification.from_pretrained(folder)
        file.write_bytes(whole)
    for _ in range(40):  # of the header: refused for some reason, or the same
        flip(file, draw)
        with contextlib.suppress(CheckpointError):
            assert np.array_equal(values_of(folder), before)
        file.write_bytes(whole)


def test_every_flipped_bit_of_a_layer_after_the_encoder_is_found(tmp_path: Path) -> None:
    folder = sentences(tmp_path / "model")
    file, draw = folder / "2_Dense" / "model.safetensors", random.Random(0)
    whole, before = file.read_bytes(), SentenceEncoder(folder, device="cpu").encode("the film")
    assert before.shape == (8,)
    start = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(20):
        flip(file, draw, start)
        with pytest.raises(CheckpointError, match=rf"inspect --accept {file}$"):
            SentenceEncoder(folder, device="cpu")
        file.write_bytes(whole)


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    model = BertModel.from_pretrained(classifier(tmp_path / "model"))
    for name in "abc":
        model.save_pretrained(tmp_path / name)
    assert len({(tmp_path / name / "model.safetensors").read_bytes() for name in "abc"}) == 1
    assert load_file(tmp_path / "a" / "model.safetensors").keys(), "other software reads it"


def test_a_file_that_is_read_ahead_is_read_once_and_told_of_alike(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model")
    file, draw = folder / "model.safetensors", random.Random(0)
    with reading_ahead(file):
        first, again = read_header(file), read_header(file)
    assert first == again == read_header(file)
    whole = file.read_bytes()
    with reading_ahead(file):
        begun = read_header(file)  # before the file changes
        flip(file, draw, 8 + int.from_bytes(whole[:8], "little"))
        assert begun == first
        with pytest.raises(CheckpointError, match="is not as bertkit wrote it"):
            read_header(file)
    with pytest.raises(CheckpointError, match="is not as bertkit wrote it"), reading_ahead(file):
        read_header(file)
    with reading_ahead(file):  # nobody asks
        pass
    with pytest.raises(CheckpointError, match="is not as bertkit wrote it"):
        pipeline(model=folder, device="cpu")
    with reading_ahead(tmp_path / "none.safetensors"), reading_ahead(None):
        assert not (tmp_path / "none.safetensors").exists()
    (folder / "vocab.txt").write_text("")
    with pytest.raises(CheckpointError, match="vocab"):  # of two errors the tokenizer's is told
        pipeline(model=folder, device="cpu")


@pytest.mark.parametrize("sealed", [True, False])
def test_what_one_reading_says_of_the_values(sealed: bool, tmp_path: Path) -> None:
    """Of floats of one type that follow each other: whether all of them are finite, as numpy finds."""
    file, draw = tmp_path / "model.safetensors", np.random.default_rng(0)
    kinds = {"a": np.float64, "b": np.float32, "c": np.float16, "d": np.int64}
    for bad in ("", *kinds):
        arrays = {
            f"{kind}{at}": (9 * draw.normal(size=(at, 7))).astype(kinds[kind]) for kind in kinds for at in range(3)
        }
        if bad not in ("", "d"):
            arrays[f"{bad}2"][1, 3] = draw.choice([np.nan, np.inf, -np.inf])
        save_arrays(arrays, file, {CHECKSUM: NO_CHECKSUM} if sealed else None)
        assert not sealed or seal(file)
        with reading_ahead(file):
            found = read_header(file)
        for name, info in found.items():
            of_kind = [array for other, array in arrays.items() if other[0] == name[0]]
            assert info.is_finite == (name[0] != "d" and all(np.isfinite(array).all() for array in of_kind))
        assert found == read_header(file) if sealed else not any(info.is_finite for info in read_header(file).values())


def test_values_that_are_not_finite_are_told_of_alike_when_read_ahead(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model")
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["classifier.weight"][1, 5] = float("nan")
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(CheckpointError, match="not finite") as alone:
        BertForSequenceClassification.from_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"classifier\.weight.*\[1, 5\]") as ahead:
        pipeline(model=folder, device="cpu")
    assert str(ahead.value) == str(alone.value)


def test_weights_that_other_software_wrote_again_have_no_checksum(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "model")
    file = folder / "model.safetensors"
    assert CHECKSUM in read_metadata(file)
    tensors = load_file(file)
    tensors["classifier.bias"] += 3.0
    save_file(tensors, file, {"format": "pt"})
    assert BertForSequenceClassification.from_pretrained(folder).classifier.bias.min() > 2.0


def test_what_was_changed_on_purpose_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = classifier(tmp_path / "model")
    for file in (folder / "model.safetensors", folder / "decision.json"):
        content = bytearray(file.read_bytes())
        content[-2 if file.suffix == ".safetensors" else content.index(b"1.5")] ^= 1
        file.write_bytes(content)
    with pytest.raises(CheckpointError, match="is not as bertkit wrote it"):
        pipeline(model=folder, device="cpu")
    assert main(["inspect", "--accept", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"accepted: {folder / name}" for name in ("decision.json", "model.safetensors")
    ]
    assert pipeline(model=folder, device="cpu").decision["temperature"] == 0.5
    assert main(["inspect", "--accept", str(folder)]) == 0
    assert "nothing has another checksum" in capsys.readouterr().out
    assert main(["inspect", "--accept", str(tmp_path / "none")]) == 4


def test_a_decision_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    write_decision(tmp_path, {"temperature": 2.0, "thresholds": {"ja, \u00e9": 0.25}})
    file = tmp_path / "decision.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    assert read_decision(tmp_path)["temperature"] == 2.0
    file.write_text(json.dumps(dict(reversed(values.items()))), encoding="utf-8")
    assert read_decision(tmp_path)["temperature"] == 2.0, "order and spelling do not matter"
    file.write_text(json.dumps({**values, "temperature": 4.0}), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"bertkit inspect --accept {file}$"):
        read_decision(tmp_path)
    del values["crc32"]
    file.write_text(json.dumps({**values, "temperature": 4.0}), encoding="utf-8")
    assert read_decision(tmp_path)["temperature"] == 4.0
