"""Tasks with any number of labels a row: how files say which, what is scored, what the baseline gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import f1_score

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import (
    Columns,
    Example,
    TextTask,
    carve,
    csv_task,
    data_report,
    diagnose,
    load_split,
    score,
    task_from_dict,
    task_to_dict,
)
from bertkit.tasks import tfidf_baseline as baseline

NAMES = ("insult", "threat", "toxic")
RECORDS: list[tuple[str, tuple[int, ...]]] = [("you", (0, 2)), ("fine", ()), ("I will", (1,)), ("all of it", (0, 1, 2))]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def files(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The same rows in every form there is."""
    listed = [{"text": text, "labels": [NAMES[n] for n in numbers]} for text, numbers in RECORDS]
    joined = [(text, "|".join(NAMES[n] for n in numbers)) for text, numbers in RECORDS]
    flags = [(text, *(str(int(n in numbers)) for n in range(3))) for text, numbers in RECORDS]
    pq.write_table(pa.Table.from_pylist(listed), folder / "train.parquet")
    return {
        "lists in json": (
            write(folder / "train.jsonl", "".join(json.dumps(row) + "\n" for row in listed)),
            {},
        ),
        "lists in parquet": (folder / "train.parquet", {}),
        "joined": (
            write(folder / "train.csv", "text,labels\n" + "".join(f"{t},{j}\n" for t, j in joined)),
            {"problem": "multi_label"},
        ),
        "joined otherwise": (
            write(
                folder / "train.tsv", "text\tlabels\n" + "".join(f"{t}\t{j.replace('|', ' ; ')}\n" for t, j in joined)
            ),
            {"problem": "multi_label", "label_separator": ";"},
        ),
        "a column each": (
            write(folder / "flags.csv", f"text,{','.join(NAMES)}\n" + "".join(f"{','.join(row)}\n" for row in flags)),
            {"label": NAMES},
        ),
    }


@pytest.mark.parametrize("form", ["lists in json", "lists in parquet", "joined", "joined otherwise", "a column each"])
def test_every_form_gives_the_same_rows(form: str, tmp_path: Path) -> None:
    path, options = files(tmp_path)[form]
    task = csv_task(path, **options)
    assert task.labels == NAMES
    assert task.multi_label
    assert task.problem_type == "multi_label_classification"
    assert [(row.text, row.label) for row in load_split(task, path, "train")] == RECORDS
    again = task_from_dict(json.loads(json.dumps(task_to_dict(task))))
    assert again == task


def test_what_the_loss_and_the_scores_take(tmp_path: Path) -> None:
    path, options = files(tmp_path)["joined"]
    task = csv_task(path, **options)
    labels = [numbers for _, numbers in RECORDS]
    right = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 0], [1, 1, 1]])
    assert task.label_array(labels).tolist() == right.tolist()
    assert score(task, labels, labels) == {"micro_f1": 1.0, "macro_f1": 1.0, "exact_match": 1.0}
    given = np.roll(right, 1, axis=0)
    expected = f1_score(right, given, average="micro")
    assert score(task, given, labels)["micro_f1"] == pytest.approx(expected)
    assert "the same labels" in diagnose(task, np.zeros((4, 3), dtype=int), labels)[0]
    assert "no reference row has 'threat'" in diagnose(task, right, [(0,), (2,), (), ()])[0]


def test_the_report_counts_labels_and_rows_are_held_out_with_their_shares(tmp_path: Path) -> None:
    task = csv_task(files(tmp_path)["joined"][0], problem="multi_label")
    generator = np.random.default_rng(0)
    rows = [
        Example(f"text {n}", None, tuple(np.flatnonzero(generator.random(3) < (0.5, 0.2, 0.1)).tolist()), n + 1)
        for n in range(300)
    ]
    report = data_report(task, {"train": rows}).splits["train"].facts
    assert report["labels"] == {name: sum(n in (row.label or ()) for row in rows) for n, name in enumerate(NAMES)}
    stay, held = carve(rows, 0.2, seed=1)
    assert len(stay) + len(held) == 300
    assert len(held) == pytest.approx(60, abs=6)
    for number in range(3):
        shares = [np.mean([number in row.label for row in part]) for part in (rows, held)]
        assert shares[1] == pytest.approx(shares[0], abs=0.08)


def test_the_baseline_learns_each_label() -> None:
    task = TextTask("several", ("good", "old", "rare"), ("micro_f1",), "micro_f1", Columns(("text",)), multi_label=True)
    generator = np.random.default_rng(0)
    rows = []
    for number in range(200):
        label = tuple(n for n in (0, 1) if generator.random() < 0.5)
        words = [*(("fine", "ancient")[n] for n in label), *generator.choice(["a", "b", "c"], 4)]
        rows.append(Example(" ".join(words), None, label, number + 1))
    assert baseline(rows[:150], rows[150:], task)["metrics"]["micro_f1"] > 0.95


def test_numbers_that_the_file_names_are_those_names(tmp_path: Path) -> None:
    names = ["joy", "anger", "fear"]
    feature = {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "Sequence"}
    notes = {b"huggingface": json.dumps({"info": {"features": {"labels": feature}}}).encode()}
    table = pa.table({"text": ["a", "b", "c"], "labels": [[2, 0], [], [2]]}).replace_schema_metadata(notes)
    pq.write_table(table, tmp_path / "train.parquet")
    task = csv_task(tmp_path / "train.parquet")
    assert task.labels == tuple(names), "anger has no row here and may have one in dev"
    assert [row.label for row in load_split(task, tmp_path, "train")] == [(0, 2), (), (2,)]


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown label": (
        "text,label\na,x|y\nb,x|z\n",
        {"problem": "multi_label", "labels": ["x", "y"]},
        "'z' is not one of",
    ),
    "one label only": ("text,label\na,x\nb,\n", {"problem": "multi_label"}, "holds 1 label; expected two"),
    "no flag": ("text,p,q\na,1,0\nb,2,1\n", {"label": ("p", "q")}, r":3: column 'p' holds '2', expected 1 or 0"),
    "no column": ("text,p,q\na,1,0\n", {"label": ("p", "r")}, "no label column 'r'"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_files_are_named(fault: str, tmp_path: Path) -> None:
    text, options, message = BAD[fault]
    path = write(tmp_path / "train.csv", text)
    with pytest.raises(DataError, match=message):
        load_split(csv_task(path, **options), path, "train")


def test_tasks_that_contradict_themselves(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", "text,p,q\na,1,0\n")
    with pytest.raises(ConfigError, match="one column cannot be two things"):
        csv_task(path, text="p", label=("p", "q"))
    with pytest.raises(ConfigError, match="several labels need two columns"):
        csv_task(path, label=("p",))
    with pytest.raises(ConfigError, match="unknown metric 'matthews'"):
        TextTask("t", ("a", "b"), ("matthews",), "matthews", Columns(("text",)), multi_label=True)
    with pytest.raises(ConfigError, match="need labels="):
        TextTask("t", None, ("micro_f1",), "micro_f1", Columns(("text",)), multi_label=True)
