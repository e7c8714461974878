"""Saving replaces a model as a whole, or leaves what was there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bertkit
from bertkit import BertConfig, BertForSequenceClassification
from bertkit.errors import CheckpointError


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

    monkeypatch.setattr("bertkit.checkpoints.huggingface.sync_file", full_disk)
    with pytest.raises(bertkit.ResourceError, match="No space left"):
        model.save_pretrained(tuned)
    assert {path.name: path.read_bytes() for path in tuned.iterdir()} == before


def test_saving_to_a_file(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    with pytest.raises(CheckpointError, match="is a file"):
        model.save_pretrained(tuned / "config.json")
