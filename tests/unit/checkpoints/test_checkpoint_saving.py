"""Saving replaces a model as a whole, or leaves what was there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import bertkit
from bertkit import BertConfig, BertForSequenceClassification, BertModel
from bertkit.checkpoints.safetensors_format import CHECKSUM
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.families import FAMILIES
from bertkit.errors import CheckpointError
from disk_helpers import largest_file


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    config = BertConfig(vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, num_labels=3)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "tuned")
    return tmp_path / "tuned"


def test_saving_over_an_older_model_leaves_no_draft(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    with torch.no_grad():
        model.classifier.bias.fill_(7)
    model.save_pretrained(tuned)
    assert sorted(path.name for path in tuned.iterdir()) == ["config.json", "model.safetensors"]
    assert BertForSequenceClassification.from_pretrained(tuned).classifier.bias.tolist() == [7, 7, 7]
    modes = {path.stat().st_mode & 0o777 for path in tuned.iterdir()}
    assert len(modes) == 1, "weights and config are readable by the same people"
    assert json.loads((tuned / "config.json").read_text())["architectures"] == ["BertForSequenceClassification"]


def test_saving_fails_without_harm(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    before = {path.name: path.read_bytes() for path in tuned.iterdir()}

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with largest_file(1000), pytest.raises(bertkit.ResourceError, match=f"no room for the model in {tuned}: "):
        model.save_pretrained(tuned)
    monkeypatch.setattr("bertkit.checkpoints.save_folder.sync_file", full_disk)
    with pytest.raises(bertkit.ResourceError, match="No space left"):
        model.save_pretrained(tuned)
    assert {path.name: path.read_bytes() for path in tuned.iterdir()} == before


def test_the_same_model_is_the_same_bytes(tmp_path: Path) -> None:
    """Weights with further metadata, as adapters and heads have them, which safetensors writes in a random order."""
    config, more = BertConfig(vocab_size=30), {"bertkit_base": "ä0", "quote": 'a "b"\n'}
    tensors = {"b": torch.arange(3.0), "a": torch.ones(2, 2)}
    written = set()
    for number in range(12):
        write_folder(tmp_path / str(number), config, tensors, metadata=more)
        written.add((tmp_path / str(number) / "model.safetensors").read_bytes())
    assert len(written) == 1
    file = tmp_path / "0" / "model.safetensors"
    with safe_open(file, "pt") as opened:
        found = opened.metadata()
    assert found.pop(CHECKSUM)
    assert found == {"format": "pt", **more}
    assert {name: x.tolist() for name, x in load_file(file).items()} == {n: x.tolist() for n, x in tensors.items()}
    for _ in range(12):  # a control: as the package writes it
        save_file(tensors, tmp_path / "raw", {"format": "pt", **more})
        written.add((tmp_path / "raw").read_bytes())
    assert len(written) > 1


def test_saving_to_a_file(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    with pytest.raises(CheckpointError, match="is a file"):
        model.save_pretrained(tuned / "config.json")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_without_segments_is_loaded_again(family: str, tmp_path: Path) -> None:
    shape = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertModel(BertConfig(model_type=family, type_vocab_size=0, intermediate_size=8, pad_token_id=1, **shape))
    model.save_pretrained(tmp_path)
    state = BertModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_saving_over_shards_replaces_them(tuned: Path, pooling: str) -> None:
    (tuned / "model.safetensors").rename(tuned / "part-1.safetensors")
    names = load_file(tuned / "part-1.safetensors")
    index = {"weight_map": dict.fromkeys(names, "part-1.safetensors")}
    (tuned / "model.safetensors.index.json").write_text(json.dumps(index))
    config = BertForSequenceClassification.from_pretrained(tuned).config.replace(pooling=pooling)
    model = BertForSequenceClassification(config)
    model.save_pretrained(tuned)
    loaded = BertForSequenceClassification.from_pretrained(tuned)
    assert loaded.config.pooling == pooling
    assert torch.equal(loaded.classifier.weight, model.classifier.weight)


@pytest.mark.parametrize("failing", ["replace", "unlink"])
def test_an_interruption_leaves_one_whole_model(tuned: Path, failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the new weights are in place, the old ones are not removed."""
    config = BertForSequenceClassification.from_pretrained(tuned).config
    before = (tuned / "model.safetensors").read_bytes()

    work = getattr(Path, failing)

    def killed(path: Path, *arguments: Any, **options: Any) -> Any:
        if "model.safetensors" in path.name:
            raise KeyboardInterrupt
        return work(path, *arguments, **options)

    model = BertForSequenceClassification(config.replace(pooling="mean"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, failing, killed)
        with pytest.raises(KeyboardInterrupt):
            model.save_pretrained(tuned)
    assert (tuned / "model.safetensors").read_bytes() == before
    assert BertForSequenceClassification.from_pretrained(tuned).config == config
