"""``bertkit classify`` on a tiny model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bertkit import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    TextClassificationPipeline,
    pipeline,
)
from bertkit.cli import main
from pipeline_helpers import save_tiny


@pytest.mark.parametrize("texts", [["good", " "], ["--pairs", "good", ""]])
def test_an_empty_text_gets_no_label(texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2)
    assert main(["classify", "--model", str(model), "--json", *texts]) == 3
    told = capsys.readouterr()
    assert "is empty, so there is nothing to classify" in told.err
    assert main(["classify", "--model", str(model), "--json", "good film", "bad film"]) == 0
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == ["good film", "bad film"]


@pytest.mark.parametrize("options", [[], ["--all"], ["--labels", "good, bad"]])
def test_rows_of_a_file_without_text_get_no_label(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nli = {0: "contradiction", 1: "neutral", 2: "entailment"}
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, id2label=nli)
    table = tmp_path / "in.csv"
    table.write_text('id,text\n1," "\n2,good film\n3,\n', encoding="utf-8")
    command = ["classify", "--model", str(model), "--device", "cpu", "--file", str(table), *options]
    assert main([*command, "--json"]) == 0
    told = capsys.readouterr()
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [(row["id"], row["label"] is None, row.get("empty", False)) for row in rows] == [
        ("1", True, True),
        ("2", False, False),
        ("3", True, True),
    ]
    assert "2 of 3 rows have no text and no label; their rows say empty" in told.err
    for name in ("out.csv", "out.jsonl"):
        assert main([*command, "--out", str(tmp_path / name)]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [(row["id"], row["predicted"] == "", row["empty"]) for row in cells] == [
        ("1", True, "True"),
        ("2", False, "False"),
        ("3", True, "True"),
    ]
    assert not any(value for row in (cells[0], cells[2]) for name, value in row.items() if name[:2] in ("p_", "pr"))


def test_no_model_reads_a_text_that_a_file_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2)
    read: list[str] = []
    call = TextClassificationPipeline.__call__

    def noted(pipe: Any, texts: Any, **options: Any) -> Any:
        read.extend(listed := list(texts))
        return call(pipe, listed, **options)

    monkeypatch.setattr(TextClassificationPipeline, "__call__", noted)
    command = ["classify", "--model", str(model), "--device", "cpu", "--json", "--file"]
    file = tmp_path / "in.csv"
    for texts, kept in (("1,\n2,good\n3,\n4,\n5,bad\n6,\n", ["good", "bad"]), ("1,\n2,\n", [])):
        file.write_text("id,text\n" + texts, encoding="utf-8")
        assert main([*command, str(file)]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["id"] for row in rows] == [str(n + 1) for n in range(len(rows))]
        assert [row["text"] for row in rows if row["label"] is not None] == kept == read
        read.clear()
    file.write_text("id,text\n1,\n2,good\n3," + "film " * 80 + "\n", encoding="utf-8")
    assert main([*command, str(file)]) == 3
    assert f"{file}:4: the text has" in capsys.readouterr().err


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


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model for each method of labels without training."""
    root = tmp_path_factory.mktemp("models")
    nli = {0: "contradiction", 1: "neutral", 2: "entailment"}
    return {
        "nli": str(save_tiny(root / "nli", BertForSequenceClassification, id2label=nli)),
        "embedding": str(save_tiny(root / "encoder", BertModel)),
        "pattern": str(save_tiny(root / "mlm", BertForMaskedLM)),
    }


@pytest.mark.parametrize("method", ["nli", "embedding", "pattern"])
def test_labels_without_training(method: str, models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    words = {"good": ["good"], "poor": ["bad"], "dull": ["dull"]}
    pipe = pipeline("zero-shot-classification", model=models[method], device="cpu")
    (expected,) = pipe(["a film"], {name: given[0] for name, given in words.items()})
    command = ["classify", "--model", models[method], "--device", "cpu", "--labels", "good, poor=bad,dull"]
    assert main([*command, "--json", "--all", "a film"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["label"] for each in found["labels"]] == expected["labels"]
    assert [each["score"] for each in found["labels"]] == pytest.approx(expected["scores"], abs=1e-4)
    assert found["label"] == expected["labels"][0]
    assert main([*command, "a film", "the end"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{expected['labels'][0]} {expected['scores'][0]:.4f}\ta film"
    assert main([*command, "--json", "--truncate", "--top-k", "2", "film " * 100]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(found["labels"]), found["truncated"]] == [2, True]


def test_labels_by_themselves(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of an NLI model those that are likelier than not; of vectors all, because no cosine says that a label applies."""
    for method in ("nli", "embedding"):
        pipe = pipeline("zero-shot-classification", model=models[method], device="cpu")
        (expected,) = pipe(["a film"], "good, dull", multi_label=True)
        command = ["classify", "--model", models[method], "--device", "cpu", "--labels", "good,dull", "--multi-label"]
        assert main([*command, "--json", "a film"]) == 0
        shown = json.loads(capsys.readouterr().out).get("labels", [])
        pairs = zip(expected["labels"], expected["scores"], strict=True)
        assert [each["label"] for each in shown] == [name for name, score in pairs if method != "nli" or score >= 0.5]
    assert main(["classify", "--model", models["pattern"], "--labels", "good,dull", "--multi-label", "a film"]) == 2
    assert "exclusive labels" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--template", "it is {}"], "--template goes with --labels"),
        (["--multi-label"], "--multi-label goes with --labels"),
        (["--labels", " , "], "--labels is empty"),
        (["--labels", "a,b=c,a"], "--labels has 'a' twice"),
        (["--labels", "a,b", "--pairs"], "leave out --pairs"),
        (["--labels", "a,b", "--function", "none"], "leave out --function"),
        (["--labels", "a,b", "--top-k", "0"], "--top-k must be a whole number from 1"),
        (["--labels", "a,b", "--template", "it is"], "has no {} where the whole label goes"),
    ],
)
def test_options_of_labels_without_training(
    options: list[str], told: str, models: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", "--model", models["nli"], "--device", "cpu", *options, "good", "bad"]) == 2
    assert told in capsys.readouterr().err
