"""A text that is too long, empty or without a mask is a fault of the data, whatever command reads it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from bertkit import BertForMaskedLM, BertForQuestionAnswering, BertForSequenceClassification, BertModel
from bertkit.cli import main
from bertkit.cli.placed import Placed, located
from bertkit.errors import TextError
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


TABLE = f'text,label\n"good\n[MASK]",a\n\n{LONG} [MASK],b\ngood [MASK],c\n'
QUESTIONS = [{"id": i, "question": asked, "answers": []} for i, asked in (("a", "who"), ("b", LONG))]
FILES = {
    "texts.csv": TABLE,
    "queries.jsonl": "".join(json.dumps({"query": each, "documents": ["good", each]}) + "\n" for each in ("bad", LONG)),
    "squad.json": json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "good film", "qas": QUESTIONS}]}]}),
}


@pytest.mark.parametrize(
    ("command", "arguments", "place"),
    [
        *((command, ["--file", "texts.csv"], "texts.csv:5: the text has") for command in ("classify", "embed")),
        ("fill-mask", ["--file", "texts.csv"], "texts.csv:5: the text has"),
        ("similarity", ["good", "--file", "texts.csv"], "texts.csv:5: the text has"),
        ("similarity", [LONG, "--file", "texts.csv"], "text 0 (counted from 0) has"),
        ("rerank", ["good", "--file", "texts.csv"], "texts.csv:5: the document has"),
        ("rerank", ["--data", "queries.jsonl"], "queries.jsonl:2: the query with its document 0 (counted from 0) has"),
        ("answer", ["--file", "squad.json"], "squad.json: question 2 (id b): the question has"),
    ],
)
def test_the_place_of_a_text_of_a_file(
    command: str,
    arguments: list[str],
    place: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        Path(name).write_text(content, encoding="utf-8")
    model_class, changes, _ = COMMANDS[command]
    save_tiny(tmp_path / "model", model_class, **changes)
    assert main([command, *arguments, "--model", "model", "--device", "cpu"]) == 3
    assert f"bertkit {command}: {place} " in capsys.readouterr().err


def test_places_of_numbers() -> None:
    """Not of those that no file has, and of texts that are answered one by one from the number of each."""

    def told(message: str, first: int = 0) -> str:
        texts = Placed([(3, "a"), (7, "b")], "a.txt:{}".format).after("argument")
        list(texts)
        with pytest.raises(TextError) as caught, located(texts, first=first):
            raise TextError(message)
        return str(caught.value)

    assert told("text 0 (counted from 0) is empty", first=2) == "a.txt:7: the text is empty"
    assert told("the context of question 1 (counted from 0) is") == "a.txt:3: the context of the question is"
    for same in ("text 0 (counted from 0) is empty", "text 3 (counted from 0) is empty", "text 1 is empty"):
        assert told(same) == same


def test_search(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(save_tiny(tmp_path / "model", BertModel))
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": LONG}) + "\n", encoding="utf-8")
    build = ["search", "build", str(tmp_path / "index"), str(tmp_path / "texts.jsonl"), "--model", folder]
    assert main([*build, "--device", "cpu"]) == 3
    assert "--truncate" in capsys.readouterr().err
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "good"}) + "\n", encoding="utf-8")
    assert main([*build, "--device", "cpu"]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"good\n\n{LONG}".encode())))
    assert main(["search", "query", str(tmp_path / "index"), "-", "--device", "cpu"]) != 0
    assert "standard input, line 2: the query must be a text that is not empty" in capsys.readouterr().err
