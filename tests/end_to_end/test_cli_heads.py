"""``bertkit finetune multi`` and ``analyze`` on the command line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from bertkit.cli import main
from finetune_data import labelled_texts, tiny_start, write_heads_data, write_splits

HEADS = """
alpha = 1.0

[heads.mood]
task = "csv"
data = "mood"
text = "text"
label = "label"

[heads.names]
task = "ner"
data = "ner"
"""
SETTINGS = "--epochs 1 --learning-rate 3e-3 --batch-size 16 --max-length 24 --no-baseline --device cpu -q".split()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli_heads")
    tiny_start(folder / "start")
    write_splits(folder / "mood", labelled_texts(32, 1), labelled_texts(16, 2))
    write_heads_data(folder)
    (folder / "heads.toml").write_text(HEADS)
    assert train(folder, "run") == 0
    return folder


def train(folder: Path, out: str, *more: str, file: str = "heads.toml") -> int:
    where = ["--data", str(folder / file), "--model", str(folder / "start"), "--out", str(folder / out)]
    return main(["finetune", "multi", *where, *SETTINGS, *more])


def test_the_summary_names_each_head(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(place, "run", "--resume", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["encoder"] == "shared"
    assert set(told["heads"]) == {"mood", "names"}
    assert train(place, "frozen", "--freeze-encoder") == 0
    out = capsys.readouterr().out
    assert "2 heads on a frozen encoder" in out
    assert "mood" in out
    assert main(["inspect", str(place / "run")]) == 0
    shown = capsys.readouterr().out
    assert "head mood" in shown
    assert "BertForSequenceClassification: 0, 1" in shown
    assert "BertForTokenClassification" in shown
    task = ["finetune", "csv", "--data", str(place / "mood"), "--model", str(place / "start")]
    assert main([*task, "--out", str(place / "x"), *SETTINGS, "--alpha", "1"]) == 2


def test_texts_and_files_are_analyzed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = ["--model", str(place / "run"), "-q"]
    assert main(["analyze", "a good film", *model]) == 0
    first, *heads = capsys.readouterr().out.splitlines()
    assert first == "a good film"
    assert [line.split()[0] for line in heads] == ["mood", "names"]
    assert main(["analyze", "a good film", "--json", *model]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["heads"]["mood"]["label"] in ("0", "1")
    (place / "texts.txt").write_text("a good film\na sad day\n")
    out = place / "found.jsonl"
    assert main(["analyze", *model, "--file", str(place / "texts.txt"), "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["mood"]["label"] == found["heads"]["mood"]["label"]
    assert [set(row) for row in rows] == [{"text", "mood", "names"}] * 2
    assert main(["analyze", *model, "a text", "--out", str(place / "no.jsonl")]) == 2
    (place / "table.csv").write_text("id,mytext\n007,a good film\n")
    to_table = ["analyze", *model, "--file", str(place / "table.csv"), "--out", str(place / "found.csv")]
    assert main(to_table) == 3
    assert (
        "no text column 'text' or 'sentence' or 'review' or the like (did you mean 'mytext'?)"
        in capsys.readouterr().err
    )
    assert main([*to_table, "--text", "mytext"]) == 0
    (cells,) = csv.DictReader((place / "found.csv").open(encoding="utf-8"))
    assert (cells["id"], cells["mytext"], cells["mood"]) == ("007", "a good film", rows[0]["mood"]["label"])
    assert float(cells["mood_score"]) == pytest.approx(rows[0]["mood"]["score"], abs=1e-6)


#: The example is TOML, not options of the command line.
NEEDED = 'needs a task and its data, as in:\n\n    [heads.mood]\n    task = "sst2"\n    data = "SST-2"\n'


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (("alpha = 1.0", "alpha = 2.0"), 2, "alpha must be from 0"),
        (("alpha = 1.0", "beta = 1.0"), 3, "has beta"),
        (('task = "csv"', 'task = "swag"'), 3, "does not take"),
        (('text = "text"', 'txt = "text"'), 3, "did you mean 'text'"),
        (('data = "ner"', ""), 3, NEEDED),
        (('data = "mood"', 'data = "nothing"'), 3, "does not exist"),
        (("[heads.mood]", "[heads.mood"), 3, "cannot be read as TOML"),
        (('label = "label"', "label = 3"), 3, "label"),
    ],
)
def test_a_wrong_file_is_refused_by_name(
    place: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], code: int, said: str
) -> None:
    (place / "bad.toml").write_text(HEADS.replace(*change))
    assert train(place, "bad", file="bad.toml") == code
    assert said in capsys.readouterr().err
    assert not (place / "bad").exists()
