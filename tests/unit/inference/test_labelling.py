"""Which texts to label next, the file of labels, and the command that asks for them."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bertkit.cli import main
from bertkit.errors import DataError
from bertkit.inference.labelling.label_file import LabelFile
from bertkit.inference.labelling.label_order import guess_labels, held_out_accuracy, next_texts
from bertkit.inference.labelling.label_session import LabelSession
from bertkit.tasks import csv_task
from bertkit.tasks.text.reading import load_split
from forked_interpreter import COMMAND, run_forked

TEXTS = ["a good film", "a bad film", "good food", "bad food", "good day", "bad day", "so so"]


def spread(count: int, seed: int = 0) -> np.ndarray:
    """Vectors in two clouds, the first half in one of them."""
    generator = np.random.default_rng(seed)
    points = generator.normal(size=(count, 8)).astype(np.float32)
    points[: count // 2, 0] += 6
    points[count // 2 :, 1] += 6
    return points


def test_uncertainty_takes_the_smallest_margin() -> None:
    vectors, labelled = spread(40), {0: 0, 1: 0, 30: 1, 31: 1}
    guess = guess_labels(vectors, labelled)
    assert guess is not None
    margins = np.abs(guess.probabilities[:, 0] - guess.probabilities[:, 1])
    expected = [int(row) for row in np.argsort(margins, kind="stable") if row not in labelled][:5]
    assert next_texts(vectors, labelled, order="uncertainty", count=5) == expected


def test_diversity_takes_the_farthest_from_all_that_is_known() -> None:
    vectors, labelled = spread(40), {0: 0, 1: 0}
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    known, expected = [0, 1], []
    for _ in range(4):  # one after the other, by the definition
        nearest = (unit @ unit[known].T).max(axis=1)
        nearest[known] = 2
        expected.append(int(nearest.argmin()))
        known.append(expected[-1])
    assert next_texts(vectors, labelled, order="diversity", count=4) == expected
    assert expected[0] >= 20, "of the cloud without a label"
    first = next_texts(vectors, {}, order="both", count=2)
    assert {row < 20 for row in first} == {True, False}, "with no label at all, one of each cloud"


def test_both_takes_diverse_ones_of_the_uncertain() -> None:
    vectors, labelled = spread(200), {0: 0, 1: 0, 150: 1, 151: 1}
    unsure = set(next_texts(vectors, labelled, order="uncertainty", count=20))
    chosen = next_texts(vectors, labelled, order="both", count=2)
    assert set(chosen) < unsure
    assert chosen != next_texts(vectors, labelled, order="uncertainty", count=2)


def test_what_is_labelled_or_left_out_never_comes_again() -> None:
    vectors = spread(10)
    for order in ("both", "uncertainty", "diversity", "file"):
        found = next_texts(vectors, {0: 0, 9: 1}, order=order, count=99, left_out=frozenset({3}))
        assert sorted(found) == [1, 2, 4, 5, 6, 7, 8]
    assert next_texts(vectors, dict.fromkeys(range(10), 0), order="both") == []


def test_the_curve_is_of_texts_that_the_model_has_not_seen() -> None:
    vectors = spread(60)
    right = {row: int(row >= 30) for row in range(60)}
    assert held_out_accuracy(vectors, right) == 1.0
    guesses = np.random.default_rng(1).permutation(list(right.values()))
    noise = held_out_accuracy(np.random.default_rng(2).normal(size=(60, 40)), dict(enumerate(guesses.tolist())))
    assert noise is not None
    assert 0.25 < noise < 0.75, "it learns the labelled texts by heart, which must not show"
    assert held_out_accuracy(vectors, {0: 0, 1: 0, 40: 1}) is None


def test_labels_are_kept_undone_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    file = LabelFile(path, ("no", "yes"))
    file.add("a — b", "yes")
    file.add("c", "no")
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [
        {"text": "a — b", "label": "yes"},
        {"text": "c", "label": "no"},
    ]
    file.undo()
    assert list(LabelFile(path, ("no", "yes")).given) == ["a — b"]
    with path.open("a") as stream:
        stream.write('{"text": "half')  # killed while writing
    again = LabelFile(path, ("no", "yes"))
    assert again.given == {"a — b": "yes"}
    again.add("d", "no")
    assert list(LabelFile(path, ("no", "yes")).given) == ["a — b", "d"]
    with pytest.raises(DataError, match="none of good, bad"):
        LabelFile(path, ("good", "bad"))
    path.write_text('{"text": 3, "label": "no"}\n')
    with pytest.raises(DataError, match=":1: expected"):
        LabelFile(path, ("no", "yes"))


def test_other_columns_and_a_last_line_without_an_end_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    lines = ['{"text": "x", "label": "no", "id": 7}', '{"text": "y", "label": "no", "id": 8}',
             '{"text": "x", "label": "yes", "id": 9}']  # fmt: skip
    path.write_text("\n".join(lines))
    file = LabelFile(path, ("no", "yes"))
    assert file.given == {"y": "no", "x": "yes"}
    assert path.read_text() == "\n".join([*lines, ""])
    file.undo()
    assert path.read_text() == lines[1] + "\n"


def run(arguments: list[str], answers: str) -> subprocess.CompletedProcess[str]:
    return run_forked(COMMAND, "label", *arguments, given=answers)


@pytest.mark.slow
def test_the_command_saves_skips_undoes_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, TEXTS[0]]) + "\n")
    out = tmp_path / "labels.jsonl"
    given = [str(tmp_path / "texts.txt"), "--labels", "bad, good", "--out", str(out), "--order", "file", "--json"]
    done = run([*given, "--every", "4"], "2\n1\n9\nu\n1\ns\n1\ngood\n")
    assert done.returncode == 0, done.stderr
    assert "'9' is no answer" in done.stderr
    labels = [tuple(json.loads(line).values()) for line in out.read_text().splitlines()]
    assert labels == [(TEXTS[0], "good"), (TEXTS[1], "bad"), (TEXTS[3], "bad"), (TEXTS[4], "good")]
    found = json.loads(done.stdout)
    assert {name: found[name] for name in ("labels", "new", "left")} == {"labels": 4, "new": 4, "left": 3}
    assert found["curve"][0][0] == 4
    done = run(given, "2\nq\n1\n")
    assert json.loads(done.stdout)["labels"] == 5
    assert json.loads(out.read_text().splitlines()[-1])["text"] == TEXTS[2], "what was skipped comes again"
    task = csv_task(out)
    assert load_split(task, out, "train")[0].text == TEXTS[0], "finetune csv reads it as it is"


def test_the_last_label_can_be_taken_back(tmp_path: Path) -> None:
    """In the session that gave it, and in a later one that has nothing left to ask."""
    file, said = LabelFile(tmp_path / "labels.jsonl", ("no", "yes")), list[str]()
    session = LabelSession(["a", "b"], np.eye(2, dtype=np.float32), file, said.append, order="file", every=0)
    found = session.run(["u", "1", "1", "u", "2"])
    assert "nothing to undo" in said
    assert (file.given, found.left) == ({"a": "no", "b": "yes"}, 0)
    assert "taken back: no" in said
    session.run(["1", "s", "u", "1"])
    assert file.given == {"a": "no", "b": "no"}
    assert said.count("there is no text left to label") == 2


def test_the_label_of_a_text_of_another_file_stays(tmp_path: Path) -> None:
    file, said = LabelFile(tmp_path / "labels.jsonl", ("no", "yes")), list[str]()
    file.add("of another file", "yes")
    kept = file.path.read_bytes()
    session = LabelSession(["a"], np.eye(1, dtype=np.float32), file, said.append, order="file", every=0)
    session.run(["u", "1", "u", "u", "2"])
    assert file.given == {"of another file": "yes", "a": "yes"}
    assert file.path.read_bytes().startswith(kept)
    assert sum("not taken back: the last label, yes" in line for line in said) == 2


@pytest.mark.campaign
@pytest.mark.slow
def test_texts_do_not_act_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("a \x1b[2J \x07 \u202e text 👩\u200d💻\nanother\nanother\n", encoding="utf-8")
    done = run([str(tmp_path / "texts.txt"), "--labels", "a,b", "--out", str(tmp_path / "out.jsonl")], "1\n1\n")
    assert r"a \x1b[2J \x07 \u202e text 👩‍💻" in done.stderr
    assert not set("\x1b\x07\u202e") & set(done.stderr)
    assert "2 texts (1 more are equal to one of them)" in done.stderr
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["text"]
    assert "\x1b" in first or first == "another", "the file has the text as it is"


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of that kind")
def test_single_keys_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    out = tmp_path / "labels.jsonl"
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "bertkit", "label", str(tmp_path / "texts.txt"), "--labels", "bad,good"]
    with subprocess.Popen(
        [*command, "--out", str(out), "--order", "file"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        os.write(ours, b"21u1q")
        try:
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 0, said
    assert [json.loads(line)["label"] for line in out.read_text().splitlines()] == ["good", "bad"]


@pytest.mark.parametrize("answer", [b"\xe9\xff", b"9" * 5000, "\u0663".encode() * 5000, b"\0"])
def test_whatever_is_typed_is_an_answer_or_none(
    answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a\nb\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answer + b"\n2\nq\n"), encoding="utf-8"))
    out = tmp_path / "labels.jsonl"
    assert main(["label", str(tmp_path / "texts.txt"), "--labels", "bad,good", "--out", str(out)]) == 0
    assert [json.loads(line)["label"] for line in out.read_text().splitlines()] == ["good"]
    told = capsys.readouterr().err
    assert "is no answer: a number from 1 to 2" in told
    assert max(map(len, told.splitlines())) < 200


@pytest.mark.parametrize(
    ("before", "code", "reason"),
    [
        (b'{"text": "a", "label": "\xe9"}\n', 4, "labels.jsonl:1 is damaged"),
        (b'{"text": "a", "label": "bad", "n": ' + b"9" * 5000 + b"}\n", 4, "labels.jsonl:1 is damaged"),
        ("labels.jsonl", 2, "Too many levels of symbolic links"),
    ],
)
def test_a_file_of_labels_that_cannot_be_continued(
    before: bytes | str, code: int, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.txt").write_text("a\nb\n")
    out = tmp_path / "labels.jsonl"
    out.write_bytes(before) if isinstance(before, bytes) else out.symlink_to(before)
    assert main(["label", str(tmp_path / "texts.txt"), "--labels", "bad,good", "--out", str(out)]) == code
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--labels", "one"], "two or more different labels"),
        (["--labels", "a,a"], "two or more different labels"),
        (["--labels", "q,a"], "would be read as a key"),
        (["--labels", "a,b", "--every", "-1"], "--every must be a whole number from 0"),
    ],
)
def test_usage_errors(tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "texts.txt").write_text("a\nb\n")
    code = main(["label", str(tmp_path / "texts.txt"), "--out", str(tmp_path / "l.jsonl"), *arguments])
    assert code == 2
    assert reason in capsys.readouterr().err
