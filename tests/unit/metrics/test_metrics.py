"""Metrics on values worked out by hand, on degenerate input and on wrong input."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from bertkit.errors import InputError
from bertkit.metrics import scores as metrics
from bertkit.metrics.multilabel import MULTILABEL_METRICS
from bertkit.metrics.scores import METRICS
from bertkit.metrics_squad import squad_metrics
from bertkit.tasks.tokens.metrics import entity_scores


def test_values_worked_out_by_hand() -> None:
    predicted, right = [1, 1, 0, 0, 1], [1, 0, 0, 1, 1]  # tp 2, fp 1, fn 1, tn 1
    assert metrics.accuracy(predicted, right) == pytest.approx(3 / 5)
    assert metrics.f1(predicted, right) == pytest.approx(4 / 6)
    assert metrics.f1(predicted, right, positive=0) == pytest.approx(2 / 4)
    assert metrics.macro_f1(predicted, right) == pytest.approx((4 / 6 + 2 / 4) / 2)
    assert metrics.matthews(predicted, right) == pytest.approx((2 * 1 - 1 * 1) / math.sqrt(3 * 3 * 2 * 2))
    assert metrics.confusion_matrix(predicted, right).tolist() == [[1, 1], [1, 2]]
    assert metrics.pearson([1, 2, 3], [1, 2, 4]) == pytest.approx(3 / math.sqrt(2 * 14 / 3))
    assert metrics.spearman([1, 2, 3, 4], [1, 10, 10, 5]) == pytest.approx(1.5 / math.sqrt(5 * 4.5))


def test_ties_share_the_mean_rank() -> None:
    assert metrics.ranks([10, 20, 10, 30, 20, 20]).tolist() == [1.5, 4.0, 1.5, 6.0, 4.0, 4.0]


def test_perfect_and_opposite() -> None:
    right = [0, 1, 2, 1, 0]
    for name in ("accuracy", "macro_f1", "matthews", "pearson", "spearman"):
        assert metrics.METRICS[name](right, right) == pytest.approx(1.0)
    assert metrics.matthews([0, 1, 0, 1], [1, 0, 1, 0]) == -1.0
    assert metrics.spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1.0)


def test_degenerate_input() -> None:
    assert metrics.f1([0, 0], [0, 0]) == 0.0
    assert metrics.matthews([1, 1, 1], [0, 1, 1]) == 0.0
    assert metrics.matthews([1], [1]) == 0.0
    assert math.isnan(metrics.pearson([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]))
    assert math.isnan(metrics.spearman([1.0], [1.0]))
    # 0.1 + 0.2 style noise: a constant whose mean is not exactly representable is still a constant
    assert math.isnan(metrics.pearson([0.1] * 7, list(range(7))))


def test_labels_may_be_names() -> None:
    assert metrics.macro_f1(["a", "b", "b"], ["a", "b", "a"]) == pytest.approx(2 / 3)
    assert metrics.f1(["yes", "no"], ["yes", "yes"], positive="yes") == pytest.approx(2 / 3)


def test_confusion_matrix_keeps_unused_labels() -> None:
    assert metrics.confusion_matrix([0, 1], [0, 0], num_labels=3).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("predicted", "right", "said"),
    [
        ([], [], "nothing to score"),
        ([1, 2], [1], "2 predictions but 1 references"),
        ([[0.1, 0.9]], [1], "one axis"),
        ([float("nan"), 1.0], [0.0, 1.0], r"predictions\[0\] is nan"),
        ([1, 0], ["1", "0"], "map names to numbers"),
    ],
)
def test_wrong_input_is_named(predicted: list, right: list, said: str) -> None:
    for function in metrics.METRICS.values():
        with pytest.raises(InputError, match=said):
            function(predicted, right)


def test_f1_of_names_needs_the_name_that_counts() -> None:
    assert metrics.f1(["yes", "no"], ["yes", "yes"], positive="yes") == pytest.approx(2 / 3)
    for positive, labels in ((1, ["yes", "no"]), ("yes", [1, 0])):
        with pytest.raises(InputError, match="name one of the labels"):
            metrics.f1(labels, labels, positive=positive)


def test_wrong_labels_for_a_confusion_matrix() -> None:
    with pytest.raises(InputError, match=r"label numbers must lie in 0 \.\.\. 1"):
        metrics.confusion_matrix([0, 2], [0, 1], num_labels=2)
    with pytest.raises(InputError, match="label2id"):
        metrics.confusion_matrix(["a"], ["a"])
    with pytest.raises(InputError, match="must be numbers"):
        metrics.pearson(["a", "b"], ["a", "b"])


def test_huge_numbers_do_not_overflow() -> None:
    x = np.array([1e300, 2e300, 3e300])
    assert metrics.pearson(x, [1, 2, 3]) == pytest.approx(1.0)
    assert metrics.pearson(x / 1e300 * 1e-300, [1, 2, 3]) == pytest.approx(1.0)


def test_needs_numpy_alone() -> None:
    code = "import sys, bertkit.metrics.scores; sys.exit(any(m in sys.modules for m in ('torch', 'scipy', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


NUMBERED = [*METRICS.values(), *MULTILABEL_METRICS.values()]


@pytest.mark.parametrize("metric", NUMBERED, ids=lambda metric: f"{metric.__module__}.{metric.__name__}")
@pytest.mark.parametrize("wrong", [[None], [object()], [1j], [[1], [1, 2]], [float("nan")], ["a", None]])
def test_what_is_neither_a_number_nor_text_is_refused_by_every_metric(metric: Any, wrong: Any) -> None:
    right = [1] * len(wrong)
    if metric in MULTILABEL_METRICS.values():
        wrong, right = [wrong], [right]
    for predictions, references in ((wrong, right), (right, wrong)):
        with pytest.raises(InputError):
            metric(predictions, references)


def test_tags_and_answers_that_are_no_text_are_refused() -> None:
    with pytest.raises(InputError, match=r"predictions must be tags such as 'B-PER', got None"):
        entity_scores([[None]], [["O"]])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"question 0 .* is not text: None"):
        squad_metrics({"q": None}, {"q": ["a"]})  # type: ignore[dict-item]
