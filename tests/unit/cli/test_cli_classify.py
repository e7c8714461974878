"""``bertkit classify`` on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import BertForSequenceClassification
from bertkit.cli import main
from pipeline_helpers import save_tiny


@pytest.mark.parametrize("texts", [["good", " "], ["--pairs", "good", ""]])
def test_an_empty_text_gets_no_label(texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2)
    assert main(["classify", "--model", str(model), "--json", *texts]) == 2
    told = capsys.readouterr()
    assert "is empty, so there is nothing to classify" in told.err
    assert main(["classify", "--model", str(model), "--json", "good film", "bad film"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["good film", "bad film"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--top-k", "0"], "--top-k must be a whole number from 1"),
        (["--all", "--top-k", "3"], "--all shows every label, --top-k only some"),
    ],
)
def test_top_k_is_never_ignored(
    options: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2)
    assert main(["classify", "--model", str(model), "--device", "cpu", *options, "good"]) == 2
    assert told in capsys.readouterr().err
