"""``bertkit tag --format``: what a model finds, in the forms of annotation tools, which training reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import BertForTokenClassification, pipeline
from bertkit.cli import main
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.tokens.span_files import read_marked
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the good film", "not a bad scene", "good  good\tbad"]
FILES = {"spans": "a.jsonl", "doccano": "a.jsonl", "prodigy": "a.jsonl", "label-studio": "a.json", "brat": "folder"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    return str(save_tiny(tmp_path_factory.mktemp("model") / "m", BertForTokenClassification, id2label=labels))


@pytest.fixture
def expected(model: str) -> list[tuple[str, list[tuple[int, int, str]]]]:
    found = pipeline("token-classification", model=model, device="cpu")(TEXTS, aggregation_strategy="first")
    marks = [[(e["start"], e["end"], e["entity_group"]) for e in entities] for entities in found]
    assert any(marks)
    return list(zip(TEXTS, marks, strict=True))


def tag(model: str, *options: str) -> int:
    return main(["tag", *TEXTS, "--model", model, "--device", "cpu", *options])


@pytest.mark.parametrize("form", FILES)
def test_what_is_found_is_written_and_read_back(
    form: str, model: str, expected: list[tuple[str, list[tuple[int, int, str]]]], tmp_path: Path
) -> None:
    out = tmp_path / FILES[form]
    assert tag(model, "--format", form, "--out", str(out)) == 0
    found, texts = read_marked(out, BadRows(), None, tagged=True)
    assert found == form
    assert [(text.text, [tuple(mark) for mark in text.marks or ()]) for text in texts] == expected
    assert tag(model, "--format", form, "--out", str(out)) == 2, "nothing is overwritten"


def test_lines_on_standard_output_and_our_own_results_are_read(
    model: str,
    expected: list[tuple[str, list[tuple[int, int, str]]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for options in (
        ("--format", "doccano"),
        ("--format", "prodigy"),
        ("--json",),
        ("--out", str(tmp_path / "o.jsonl")),
    ):
        assert tag(model, *options) == 0
        path = tmp_path / f"{options[-1].strip('-')}.jsonl" if options[0] != "--out" else Path(options[1])
        printed = capsys.readouterr().out
        if options[0] != "--out":
            path.write_text(printed)
        texts = read_marked(path, BadRows(), None, tagged=True)[1]
        assert [(text.text, [tuple(mark) for mark in text.marks or ()]) for text in texts] == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--format", "label-studio"], "--format label-studio needs --out, the name of a .json file"),
        (["--format", "brat"], "--format brat needs --out, the name of a folder"),
        (["--format", "doccano", "--out", "a.csv"], "must end in .jsonl or .ndjson"),
        (["--format", "doccano", "--strategy", "none"], "word pieces, which are no entities"),
        (["--format", "docano"], "--format"),
    ],
)
def test_what_cannot_be_written(options: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tag(model, *options) == 2
    assert said in capsys.readouterr().err


def test_json_counts_the_texts(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tag(model, "--format", "doccano", "--out", str(tmp_path / "a.jsonl"), "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"out": str(tmp_path / "a.jsonl"), "rows": 3}
