"""Checkpoints have the weights of their step where results are read later, as on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import bertkit
from bertkit import BertForSequenceClassification, Trainer, TrainingArguments
from bertkit.training.trainer import loop
from finetune_data import labelled_texts
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = labelled_texts(24, seed=3)


@pytest.fixture
def read_later(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Results are read every 20 steps; ``undo`` ends it."""
    monkeypatch.setattr(loop, "runs_ahead", lambda device: True)
    monkeypatch.setattr(loop, "can_skip", lambda optimizer: True)
    return monkeypatch


def test_checkpoints_have_the_weights_of_their_step(read_later: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start = save_tiny(tmp_path / "start", BertForSequenceClassification)
    tokenizer = bertkit.AutoTokenizer.from_pretrained(start)
    rows: list[dict[str, Any]] = [{**dict(tokenizer(text)), "labels": label} for text, label in TEXTS]
    for name in ("later", "at-once"):
        model = BertForSequenceClassification.from_pretrained(start)
        args = TrainingArguments(tmp_path / name, max_steps=7, save_steps=2, per_device_train_batch_size=4, seed=1)
        Trainer(model, args, train_dataset=rows, processing_class=tokenizer).train()
        read_later.undo()
    for step in (2, 4, 6, 7):
        later, at_once = (
            load_file(tmp_path / name / f"checkpoint-{step}" / "model.safetensors") for name in ("later", "at-once")
        )
        for key, value in at_once.items():
            np.testing.assert_array_equal(later[key], value, err_msg=f"{step} {key}")
