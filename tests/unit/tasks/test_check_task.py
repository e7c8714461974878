"""The battery on real data of every kind of task, and controls that show that it can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.errors import DataError
from bertkit.tasks import check_task, csv_task, get_task, ner_task
from bertkit.tasks.choices.battery import ChoiceBattery
from bertkit.tasks.spans.battery import SpanBattery
from bertkit.tasks.tokens.battery import TokenBattery
from everyday import some

DATA = {"swag": "codah", "codah": "codah", "arc": "arc/arc_easy", "squad": "squad", "squad2": "squad"}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(("swag", "arc", "squad", "squad2"), ("swag", "arc")))
def test_battery_on_real_data(name: str, shared: Path) -> None:
    passed = check_task(get_task(name), shared / "data" / DATA[name])
    assert any("no answer is lost silently" in line for line in passed)
    assert len(passed) >= 5


def test_battery_on_entities(shared: Path, tmp_path: Path) -> None:
    lines = ["-DOCSTART- O", "", "Anna B-PER", "Bee I-PER", "sings O", "", "in O", "Paris B-LOC", "", "alone O", ""]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.conll").write_text("\n".join(lines * 3) + "\n")
    passed = check_task(ner_task(tmp_path), tmp_path)
    assert sum("perfect predictions" in line for line in passed) == 2


def test_battery_on_several_labels(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,labels\na,p|q\nb,\nc,q\nd,p\n")
    assert len(check_task(csv_task(tmp_path, problem="multi_label"), tmp_path)) == 5
    (tmp_path / "train.csv").write_text("text,p,q\na,1,1\nb,0,0\nc,0,1\nd,1,0\n")
    assert len(check_task(csv_task(tmp_path, label=("p", "q")), tmp_path)) == 5


def test_battery_on_arrays_and_other_encodings(tmp_path: Path) -> None:
    rows = [{"text": f"né {n}", "label": n % 2} for n in range(4)]
    (tmp_path / "train.json").write_text(json.dumps(rows, indent=1))
    assert len(check_task(csv_task(tmp_path), tmp_path)) == 5
    (tmp_path / "train.json").unlink()
    lines = [f"{row['text']},{row['label']}\n" for row in rows]
    (tmp_path / "train.csv").write_text("".join(["text,label\n", *lines]), encoding="cp1252")
    assert len(check_task(csv_task(tmp_path, encoding="cp1252"), tmp_path)) == 5
    choices = [{"sent1": "q", "ending0": "a", "ending1": "b", "label": n} for n in (0, 1)]
    (tmp_path / "swag.json").write_text(json.dumps(choices))
    assert len(check_task(get_task("swag"), tmp_path / "swag.json")) == 5


class Silent(ChoiceBattery):
    """Cuts choices away and does not tell."""

    def load(self, data: Any, split: Any) -> Any:
        return [replace(row, choices=("", *row.choices[1:])) for row in super().load(data, split)]


class Moved(SpanBattery):
    """Answers that stand elsewhere."""

    def load(self, data: Any, split: Any) -> Any:
        rows = super().load(data, split)
        return [replace(row, answers=tuple(a._replace(start=a.start + 1) for a in row.answers)) for row in rows]


class Forgiving(TokenBattery):
    """Takes files that are wrong."""

    def load(self, data: Any, split: Any) -> Any:
        try:
            return super().load(data, split)
        except DataError:
            return super().load(self.folder, "train")


def test_controls(shared: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="empty choice"):
        Silent(get_task("codah"), shared / "data" / "codah").run()
    context = {"title": "T", "paragraphs": [{"context": "It is in Paris.", "qas": [
        {"id": "1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 9}]}]}]}  # fmt: skip
    (tmp_path / "train.json").write_text(json.dumps({"data": [context]}))
    with pytest.raises(AssertionError, match="the answer is 'Paris'"):
        Moved(get_task("squad"), tmp_path / "train.json").run()
    assert len(check_task(get_task("squad"), tmp_path / "train.json")) == 5
    (tmp_path / "train.json").unlink()
    row = {"context": "It is in Paris.", "question": "Where?", "answers": {"text": ["Paris"], "answer_start": [9]}}
    (tmp_path / "train.jsonl").write_text("".join(json.dumps({"id": str(n), **row}) + "\n" for n in range(3)))
    assert len(check_task(get_task("squad"), tmp_path / "train.jsonl")) == 5
    (tmp_path / "train.conll").write_text("Anna B-PER\nsings O\n\nin O\nParis B-LOC\n")
    with pytest.raises(AssertionError, match="a spoilt file gave 'no error'"):
        Forgiving(ner_task(tmp_path / "train.conll"), tmp_path / "train.conll").run()
