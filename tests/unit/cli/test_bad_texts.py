"""A text that is too long, empty or without a mask is a fault of the data, whatever command reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import BertForMaskedLM, BertForQuestionAnswering, BertForSequenceClassification, BertModel
from bertkit.cli import main
from pipeline_helpers import save_tiny

LONG = "good " * 200
COMMANDS = {
    "classify": (BertForSequenceClassification, {"num_labels": 2}, [LONG]),
    "embed": (BertModel, {}, [LONG]),
    "similarity": (BertModel, {}, ["good", LONG]),
    "fill-mask": (BertForMaskedLM, {}, [LONG + "[MASK]"]),
    "rerank": (BertForSequenceClassification, {"num_labels": 1}, ["good", LONG]),
    "answer": (BertForQuestionAnswering, {}, [LONG, "--context", "the film was good"]),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_exit_code(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model_class, changes, arguments = COMMANDS[command]
    folder = str(save_tiny(tmp_path / "model", model_class, **changes))
    assert main([command, *arguments, "--model", folder, "--device", "cpu"]) == 3
    assert "--truncate" in capsys.readouterr().err
    assert main([command, *arguments, "--model", folder, "--device", "cpu", "--no-such-option"]) == 2, "the control"


@pytest.mark.parametrize(
    ("command", "arguments", "told"),
    [
        ("classify", [" "], "is empty, so there is nothing to classify"),
        ("fill-mask", ["good film"], r"has no [MASK]"),
        ("answer", [" ", "--context", "good"], "is empty"),
    ],
)
def test_other_texts_that_cannot_be_answered(
    command: str, arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_class, changes, _ = COMMANDS[command]
    folder = str(save_tiny(tmp_path / "model", model_class, **changes))
    assert main([command, *arguments, "--model", folder, "--device", "cpu"]) == 3
    assert told in capsys.readouterr().err


def test_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(save_tiny(tmp_path / "model", BertModel))
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": LONG}) + "\n", encoding="utf-8")
    build = ["search", "build", str(tmp_path / "index"), str(tmp_path / "texts.jsonl"), "--model", folder]
    assert main([*build, "--device", "cpu"]) == 3
    assert "--truncate" in capsys.readouterr().err
