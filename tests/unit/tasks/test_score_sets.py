"""What is written of a scored set: its interval, or why there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bertkit.tasks.examples import Example
from bertkit.tasks.run_rows import Scored, no_interval, score_set, sets_of
from bertkit.tasks.spans.decoding import Answers, Span
from bertkit.tasks.spans.features import SpanWindows
from bertkit.tasks.spans.task import SQUAD, Answer, SpanExample
from bertkit.tasks.spans.workflow import SpanOutputs, SpanWorkflow
from bertkit.tasks.text.workflow import TextWorkflow
from bertkit.tasks.workflow import Predicted
from training_helpers import toy_features, toy_task


def scored(metric: str, texts: list[str], *, right: bool = True) -> Scored:
    """Rows of three labels, all of which are answered right, or wrong."""
    features = toy_features(len(texts))
    assert features.labels is not None
    labels = np.arange(len(texts)) % 3
    said = np.eye(3, dtype=np.float32)[labels if right else (labels + 1) % 3]
    examples = [
        Example(text, label=int(label), row=row + 1)
        for row, (text, label) in enumerate(zip(texts, labels, strict=True))
    ]
    workflow = TextWorkflow(replace(toy_task(), metrics=(metric,), main_metric=metric))
    return score_set(workflow, Predicted(examples, replace(features, labels=labels), 9 * said, {}), "dev")


TEXTS = [f"text {number}" for number in range(9)]


@pytest.mark.parametrize("right", [True, False])
def test_all_rows_right_or_wrong(right: bool) -> None:
    found = scored("accuracy", TEXTS, right=right)
    share = stats.binomtest(9 * right, 9).proportion_ci(0.95, "exact")
    assert found.interval == pytest.approx([share.low, share.high], abs=1e-6)
    assert not any("TOO FEW" in remark for remark in found.remarks)


def test_rows_of_equal_texts_count_once() -> None:
    """Nine rows of three texts, which differ in case and blanks at most, are no more than three."""
    found = scored("accuracy", ["a b", "A  b", " c", "d", "c", "D ", "a B", "C", "d"])
    share = stats.binomtest(3, 3).proportion_ci(0.95, "exact")
    assert found.interval == pytest.approx([share.low, share.high], abs=1e-6)


def test_a_score_that_is_no_share_says_that_rows_are_too_few() -> None:
    found = scored("macro_f1", TEXTS * 9, right=False)
    assert found.interval is None
    said = "TOO FEW ROWS: macro_f1 is 0.0000 however the 81 examples are resampled, so there is no interval"
    assert [remark for remark in found.remarks if remark.startswith(said)]
    assert "however the 1 example is resampled" in no_interval("accuracy", [1.0], 1)


@pytest.mark.parametrize("right", [True, False])
def test_all_questions_answered_right_or_wrong(right: bool) -> None:
    examples = [
        SpanExample(f"q{number}", f"who wrote book {number}?", "Ann wrote it", (Answer("Ann" if right else "it", 0),))
        for number in range(6)
    ]
    found = [Answers((Span(0, 3, 1.0, 1.0),), -np.inf, 0.0) for _ in examples]
    windows = SpanWindows.__new__(SpanWindows)  # scores do not read it
    given = Predicted(examples, windows, SpanOutputs(np.zeros((0, 2), np.float32), found), {})
    workflow = SpanWorkflow(SQUAD)
    sets = sets_of(workflow, examples)
    share = stats.binomtest(6 * right, 6).proportion_ci(0.95, "exact")
    interval = sets.interval(workflow.main_metric_of(given, sets.draws), workflow.row_bounds())
    assert interval == pytest.approx([share.low, share.high], abs=1e-6)
