"""Labels that are merged, and labels that are left out, as asked once: in training, in the card, in other files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.finetune_data import QUICK, labelled_texts, no_pictures, tiny_start

from bertkit.errors import ConfigError, DataError
from bertkit.inference.evaluate import evaluate_run
from bertkit.tasks.own_files import task_of
from bertkit.tasks.registry import task_from_dict, task_to_dict
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tasks.text.label_cleaning import Cleaning
from bertkit.tasks.text.reading import load_split
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

MESSY = {"positive": 6, "Positive": 3, "very  Bad": 2, "very bad": 4, "n/a": 2, "odd": 1}


def table(path: Path, counts: dict[str, int]) -> Path:
    rows = [(f"text {label} {n}", label) for label, count in counts.items() for n in range(count)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


def read(path: Path, **options: Any) -> tuple[Any, Counter[str]]:
    task = csv_task(path, **options)
    return task, Counter(task.labels[example.label] for example in load_split(task, path, "train"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, MESSY),
        ({"merge_labels": "case"}, {**MESSY, "positive": 9, "Positive": 0}),
        ({"merge_labels": "space"}, MESSY),
        ({"merge_labels": "case,space"}, {"positive": 9, "very bad": 6, "n/a": 2, "odd": 1}),
        ({"merge_labels": ["space", "case"], "drop_label": "N/A"}, {"positive": 9, "very bad": 6, "odd": 1}),
        ({"drop_label": ["n/a", "odd"]}, {**MESSY, "n/a": 0, "odd": 0}),
        ({"min_rows": 3}, {"positive": 6, "Positive": 3, "very bad": 4}),
        ({"merge_labels": "case, space", "min_rows": 3}, {"positive": 9, "very bad": 6}),
        ({"min_rows": 1}, MESSY),
    ],
)
def test_rows_by_label_are_those_counted_by_hand(
    options: dict[str, Any], expected: dict[str, int], tmp_path: Path
) -> None:
    path = table(tmp_path / "train.csv", MESSY)
    task, found = read(path, **options)
    assert found == Counter({label: count for label, count in expected.items() if count})
    assert set(task.labels) == set(found)
    rows = load_split(task, path, "train")
    assert sum(rows.left_out.values()) + len(rows) == sum(MESSY.values())
    assert rows.bad == []
    back = task_from_dict(json.loads(json.dumps(task_to_dict(task))))
    assert back == task, "a run folder keeps the cleaning"
    assert ("cleaning" in task_to_dict(task)) == (task.cleaning is not None)


def test_what_is_merged_and_left_out_is_said(tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", MESSY)
    notes = csv_task(path, merge_labels="case,space", drop_label="n/a", min_rows=2).notes
    assert "merged into label 'positive' (6 rows): 'Positive' (3 rows)" in notes
    assert "left out: 2 rows of label 'n/a'" in notes
    assert "left out: 1 row of labels with fewer than 2 rows: 'odd'" in notes
    assert load_split(csv_task(path, min_rows=2), path, "train").left_out == {"label 'odd'": 1}


def test_a_label_of_one_row_in_a_thousand_stops_with_the_options(tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", {"good": 2000, "bad": 1990, "spam ham": 2, "Good!": 4})
    with pytest.raises(DataError) as caught:
        csv_task(path)
    said = str(caught.value)
    assert "1 label of 4 has one row in 1,000 or fewer" in said
    assert "'spam ham' (2 rows)" in said
    assert (
        "--min-rows 10, or those of one label with --drop-label 'spam ham'; keep every label with --min-rows 1" in said
    )
    assert "--merge-labels" not in said
    for options in ({"min_rows": 10}, {"min_rows": 1}, {"drop_label": "spam ham"}, {"labels": ["good", "bad"]}):
        assert csv_task(path, on_error="skip", **options).labels is not None  # type: ignore[arg-type]
    near = table(tmp_path / "near.csv", {"good": 2000, "bad": 1990, "GOOD": 2})
    with pytest.raises(DataError, match=r"Merge labels that differ .* with --merge-labels case,space; leave"):
        csv_task(near)
    assert read(near, merge_labels="case")[1] == {"good": 2002, "bad": 1990}


def test_slips_in_one_row_are_merged_or_dropped_as_asked(tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", {"good": 20, "bad": 20, "GOOD": 1, "n/a": 1})
    with pytest.raises(DataError, match="--merge-labels case,space"):
        csv_task(path)
    with pytest.raises(DataError, match="'n/a' is not one of"):
        csv_task(path, merge_labels="case")
    assert read(path, merge_labels="case", drop_label="n/a")[1] == {"good": 21, "bad": 20}


def test_gaps_among_scores_are_dropped(tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", {"0.5": 3, "0.75": 2, "n/a": 2})
    with pytest.raises(DataError, match="Leave those rows out with --drop-label 'n/a'"):
        csv_task(path)
    task = csv_task(path, drop_label="n/a")
    assert task.is_regression
    assert len(load_split(task, path, "train")) == 5
    with pytest.raises(ConfigError, match="holds scores; merge_labels and min_rows are for labels"):
        csv_task(path, drop_label="n/a", merge_labels="case")


def test_several_labels_a_row_lose_those_that_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,label\na,News|sport\nb,news\nc,sport|none\nd,rare\n")
    task = csv_task(path, problem="multi_label", merge_labels="case", drop_label=["none"], min_rows=2)
    assert task.labels == ("News", "sport")
    assert [example.label for example in load_split(task, path, "train")] == [(0, 1), (0,), (1,), ()]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"merge_labels": "cases"}, ConfigError, "cannot be 'cases' .did you mean 'case'.*; use case, space"),
        ({"min_rows": 0}, ConfigError, "min_rows is 0, expected 1"),
        ({"min_rows": 2, "labels": ["positive"]}, ConfigError, "Leave min_rows out"),
        ({"drop_label": "positiv"}, DataError, "no row has label 'positiv' .did you mean 'positive'"),
        ({"min_rows": 100}, DataError, "no label is left; lower --min-rows"),
        ({"min_rows": 6}, DataError, "the one label 'positive'"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        csv_task(table(tmp_path / "train.csv", MESSY), **options)


def test_columns_of_flags_have_no_labels_as_text(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("text,a,b\nx,1,0\ny,0,1\n")
    with pytest.raises(ConfigError, match="labels as text; these have a column each"):
        csv_task(path, label=["a", "b"], min_rows=2)


def test_options_and_keywords_are_twins(tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", MESSY)
    for dropped in ("n/a", ["n/a"], ("n/a", "odd")):
        task = task_of("csv", path, merge_labels="case,space", drop_label=dropped, min_rows=1)
        assert task == csv_task(path, merge_labels=["case", "space"], drop_label=dropped, min_rows=1)


def test_merging_is_an_equivalence() -> None:
    both = Cleaning(("case", "space"))
    assert both.plain(" A\u00a0 b") == both.plain("a B") != both.plain("ab")
    assert Cleaning(("case",)).plain("A  b") == "a  b"
    assert Cleaning(dropped=("x",)).drops("x")
    assert not Cleaning(dropped=("x",)).drops("X")


def test_a_run_counts_what_it_left_out_and_reads_other_files_alike(tmp_path: Path) -> None:
    def write(name: str, rows: int, seed: int) -> Path:
        names = [["bad", "Bad "], ["good", "GOOD"]]
        lines = [f"{text},{names[label][n % 4 == 1]}" for n, (text, label) in enumerate(labelled_texts(rows, seed))]
        (tmp_path / name).write_text("\n".join(["text,label", *lines, *["the day,none"] * 3]) + "\n")
        return tmp_path / name

    write("train.csv", 60, 0), write("dev.csv", 20, 1)
    task = csv_task(tmp_path, merge_labels="case,space", drop_label="NONE")
    config = FinetuneConfig(**{**QUICK, "epochs": 1})  # type: ignore[arg-type]
    with no_pictures():
        result = finetune(task, tmp_path, tiny_start(tmp_path / "start"), tmp_path / "run", config, cache=None)
    data = result.protocol["data"]
    assert (data["train_rows"], data["dev_rows"]) == (60, 20)
    assert data["labels_left_out"] == {"train": {"label 'none'": 3}, "dev": {"label 'none'": 3}}
    assert data["bad_rows_left_out"] == {"train": 0, "dev": 0}
    card = (tmp_path / "run" / "README.md").read_text()
    assert "| training rows left out by label | 3: 3 of label 'none' |" in card
    assert "20 rows, 3 rows left out by label" in card
    other = write("other.csv", 12, 2)
    found = evaluate_run("csv", other, tmp_path / "run", write=False)
    assert found.num_rows == 12
    assert found.protocol["labels_left_out"] == {"label 'none'": 3}
