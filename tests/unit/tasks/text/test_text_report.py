"""The data report, rows held out, scores and diagnoses, the battery and its control."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tasks import (
    TASKS,
    Example,
    TextTask,
    carve,
    check_task,
    csv_task,
    data_report,
    diagnose,
    load_split,
    score,
)
from bertkit.tasks.text.baseline import tfidf_baseline

SST2, STSB, TWEETS = TASKS["sst2"], TASKS["stsb"], TASKS["tweets"]


def rows_of(*pairs: tuple[str, int | float | None]) -> list[Example]:
    return [Example(text, None, label, number + 2, "train.tsv") for number, (text, label) in enumerate(pairs)]


def test_report_counts() -> None:
    train = rows_of(("Good film", 1), ("good  FILM", 1), ("bad", 0), ("bad", 1), ("fine", 1))
    dev = rows_of(("GOOD film", 1), ("bad", 0), ("new", 0), ("fine", 0))
    report = data_report(
        SST2, {"train": train, "dev": dev}, lengths={"train": np.array([3, 4, 3, 3, 20])}, max_length=8
    )
    told = report.splits["train"].facts
    assert (told["rows"], told["labels"]) == (5, {"negative": 1, "positive": 4})
    assert (told["duplicates"], told["contradictions"]) == (2, 2)
    lengths = {"minimum": 3, "median": 3.0, "p95": 16.8, "maximum": 20, "truncated": 0.2}
    assert told["lengths"] == pytest.approx(lengths)
    assert "lengths" not in report.splits["dev"].facts
    # "good film" agrees; "bad" has both labels in train and "fine" the other one
    assert (report.overlap, report.splits["dev"].facts["overlap_agrees"]) == ({"dev": 3}, 1)
    text = report.render()
    assert "LEAK: 3 of 4 dev rows (75.0 %) are also in train, 1 with the same label" in text
    assert "CONTRADICTIONS: 2 rows with the same text but several labels" in text
    assert "20.0 % cut at 8" in text
    assert json.loads(json.dumps(report.to_dict()))["splits"]["train"]["duplicates"] == 2


def test_report_of_scores_pairs_and_missing_labels() -> None:
    pairs = [Example("a", "b", 1.0), Example("a", "c", 4.0), Example("A", "B ", 1.0)]
    report = data_report(STSB, {"train": pairs})
    assert report.splits["train"].facts["scores"] == (1.0, 2.0, 4.0)
    assert report.splits["train"].facts["duplicates"] == 1  # a pair is a duplicate only when both texts are
    absent = data_report(TWEETS, {"train": rows_of(("a", 0), ("b", 2)), "test": rows_of(("c", None))}).render()
    assert "NO ROW has label 'neutral'" in absent
    assert "1 row without a label" in absent
    assert "no overlap between train and test" in absent


def test_report_names_labels_that_are_nearly_equal_or_look_missing() -> None:
    labels = ("NEGATIVE", "Negative", "negative ", "N/A", "positive")
    task = TextTask("csv", labels, ("accuracy",), "accuracy", SST2.columns)
    told = data_report(task, {"train": rows_of(("a", 0), ("b", 1))}).render()
    assert "  NEAR-EQUAL LABELS: 'NEGATIVE', 'Negative', 'negative ' differ only in case or blanks" in told
    assert "  LABEL 'N/A' looks like a missing value" in told
    assert "NEAR-EQUAL" not in data_report(SST2, {"train": rows_of(("a", 0), ("b", 1))}).render()


def test_report_names_skipped_rows(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text("text,label\na,x\n,y\nb,y\nc,\nd,\n")
    rows = load_split(csv_task(file, on_error="skip"), file, "train", on_error="skip")
    report = data_report(csv_task(file, on_error="skip"), {"train": rows})
    assert report.splits["train"].facts["skipped"] == {"empty text": 1, "missing label": 2}
    assert "LEFT OUT: 2 rows, missing label" in report.render()
    assert "text column: 'text' (inferred from its name)" in report.render()


@pytest.mark.campaign
def test_report_on_real_data(shared: Path) -> None:
    splits = {name: load_split(TASKS["imdb"], shared / "data", name) for name in ("train", "test")}
    report = data_report(TASKS["imdb"], splits)
    # SOURCE.md of the data set counts exact duplicates; ours also makes case and white space equal
    assert report.splits["train"].facts["duplicates"] == 17
    assert report.splits["test"].facts["duplicates"] == 10


def test_scores_in_the_tasks_order() -> None:
    assert list(score(TASKS["mrpc"], [1, 0, 1], [1, 0, 0])) == ["f1", "accuracy"]
    assert score(TWEETS, ["positive", "neutral"], [2, 0]) == score(TWEETS, [2, 1], [2, 0])
    with pytest.raises(InputError, match=r"'postive' is not a label of tweets \(did you mean 'positive'\?\)"):
        score(TWEETS, ["postive"], [2])


def test_a_dead_run_scores_zero_and_is_called_dead() -> None:
    dead = score(STSB, [2.5, 2.5, 2.5], [0.0, 3.0, 5.0])
    assert dead == {"spearman": 0.0, "pearson": 0.0}
    assert json.dumps(dead, allow_nan=False)
    assert (
        "all 3 predictions are 2.5: the model has learned nothing. A correlation"
        in diagnose(STSB, [2.5] * 3, [0, 3, 5])[0]
    )
    assert diagnose(SST2, [1, 1, 1], [0, 1, 1]) == ["all 3 predictions are 'positive': the model has learned nothing."]
    assert diagnose(SST2, [0, 1, 0, 1], [1, 1, 1, 0]) == ["accuracy is not above always answering 'positive' (75.0 %)"]
    assert diagnose(SST2, [0, 1, 1, 1], [0, 1, 1, 0]) == []
    assert diagnose(SST2, [0, 1], [1, 1]) == ["all 2 reference labels are the same: the scores say nothing"]


def test_task_properties() -> None:
    assert (SST2.num_labels, SST2.id2label, SST2.problem_type) == (
        2,
        {0: "negative", 1: "positive"},
        "single_label_classification",
    )
    assert (STSB.num_labels, STSB.id2label, STSB.problem_type, STSB.kind) == (
        1,
        {0: "score"},
        "regression",
        "regression",
    )
    with pytest.raises(ConfigError, match=r"unknown metric 'acuracy' \(did you mean 'accuracy'\?\)"):
        replace(SST2, metrics=("acuracy",))
    with pytest.raises(ConfigError, match="is not one of"):
        replace(SST2, main_metric="f1")
    with pytest.raises(ConfigError, match="3 raw labels for 2 names"):
        replace(SST2, raw_labels=("a", "b", "c"))


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_battery_on_real_data(name: str, shared: Path) -> None:
    assert len(check_task(TASKS[name], shared / "data")) >= 4


def test_battery_can_fail(shared: Path) -> None:
    """Controls: a task spoilt in one way each is caught."""
    data = shared / "data/glue"
    with pytest.raises(AssertionError, match="takes the label 'no such label' for 0"):
        check_task(_Forgiving(**{f: getattr(TASKS["wnli"], f) for f in TextTask.__slots__}), data)
    swapped = replace(TASKS["rte"], labels=("a", "b"))
    with pytest.raises(DataError, match="label 'not_entailment' is not one of 'a', 'b'"):
        check_task(swapped, data)
    with pytest.raises(DataError, match="no text column"):
        check_task(replace(TASKS["wnli"], columns=SST2.columns), data)


class _Forgiving(TextTask):
    """Takes any label for 0, as a task without checks would."""

    def label_of(self, value: object) -> int:
        return 0


@pytest.mark.slow
def test_carve_keeps_labels_order_and_duplicates(shared: Path) -> None:
    rows = load_split(TASKS["mrpc"], shared / "data", "train")
    stay, out = carve(rows, 0.1, seed=7)
    assert abs(len(out) - 0.1 * len(rows)) <= 2
    assert abs(sum(row.label for row in out) - 0.1 * sum(row.label for row in rows)) <= 2
    assert [row.row for row in stay] == sorted(row.row for row in stay)
    assert sorted([*stay, *out], key=lambda row: row.row) == list(rows)
    assert data_report(TASKS["mrpc"], {"train": stay, "dev": out}).overlap == {"dev": 0}
    again = carve(rows, 0.1, seed=7)
    assert (again[0], again[1]) == (stay, out)
    assert carve(rows, 0.1, seed=8)[1] != out


def test_carve_refuses() -> None:
    rows = rows_of(("a", 0), ("b", 1))
    with pytest.raises(DataError, match="too few"):
        carve(rows, 0.5, 0)
    with pytest.raises(ConfigError, match=r"at most 0\.5, got 0\.9"):
        carve(rows, 0.9, 0)
    with pytest.raises(DataError, match="without a label"):
        carve(rows_of(("a", None)), 0.1, 0)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"), [("cola", 0.05), ("mrpc", 0.80), ("stsb", 0.6), ("rte", 0.5), ("tweets", 0.6)]
)
def test_baseline_is_sound_and_repeats(name: str, least: float, shared: Path) -> None:
    task = TASKS[name]
    train, dev = (load_split(task, shared / "data", split) for split in ("train", "dev"))
    first, second = (tfidf_baseline(train[:6000], dev, task) for _ in range(2))
    assert first["metrics"] == second["metrics"]
    assert list(first["metrics"]) == list(task.metrics)
    assert first["metrics"][task.main_metric] > least
    assert (first["train_rows"], first["dev_rows"]) == (len(train[:6000]), len(dev))
    assert json.dumps(first, allow_nan=False)
    assert math.isfinite(first["seconds"])


def test_baseline_refuses() -> None:
    with pytest.raises(DataError, match="two labels or more"):
        tfidf_baseline(rows_of(("a", 1), ("b", 1)), rows_of(("a", 1)), SST2)
    with pytest.raises(DataError, match="labelled dev rows"):
        tfidf_baseline(rows_of(("a", 1), ("b", 0)), rows_of(("a", None)), SST2)


def test_rows_of_one_text_cannot_be_held_out() -> None:
    with pytest.raises(DataError, match=r"^4 rows of the same text are too few to hold any out"):
        carve([Example("a", "b", "x")] * 4, 0.25, seed=0)
    with pytest.raises(DataError, match="2 rows are too few to hold any out: every label has one text only"):
        carve([Example("a", "b", "x"), Example("c", "d", "y")], 0.25, seed=0)
