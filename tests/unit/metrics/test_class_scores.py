"""Scores by class beside scikit-learn's report."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from bertkit.errors import InputError
from bertkit.metrics.class_scores import (
    MOST_LINES,
    MOST_ROWS,
    ClassScores,
    Found,
    class_rows,
    class_scores,
    class_table,
)

NAMES = [f"class {number}" for number in range(6)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("several", [False, True])
def test_each_class_and_every_mean_equal_those_of_scikit_learn(seed: int, several: bool) -> None:
    generator = np.random.default_rng(seed)
    shape = (40, 6) if several else (40,)
    right, predicted = (generator.integers(0, 2 if several else 6, shape) for _ in range(2))
    ours = class_scores(predicted, right, NAMES)
    theirs = precision_recall_fscore_support(right, predicted, labels=range(6), zero_division=0)
    found = [ours.by_class.get(name, Found(0, 0, 0)) for name in NAMES]
    got = [[getattr(each, score) for each in found] for score in ("precision", "recall", "f1", "support")]
    np.testing.assert_allclose(got, theirs, atol=1e-12)
    for mean in ("macro", "weighted", "micro"):
        there = sorted({*range(6)} & {number for number, each in enumerate(found) if any(each)})
        wanted = precision_recall_fscore_support(right, predicted, labels=there, average=mean, zero_division=0)
        values = ours.to_dict()[mean]
        np.testing.assert_allclose([values["precision"], values["recall"], values["f1"]], wanted[:3], atol=1e-12)


def test_a_class_on_neither_side_is_left_out_and_nothing_found_is_zero() -> None:
    scores = class_scores([0, 0], [0, 1], NAMES)
    assert list(scores.by_class) == ["class 0", "class 1"]
    assert scores.by_class["class 1"] == Found(0, 0, 1)
    assert scores.by_class["class 1"].f1 == 0.0
    assert ClassScores({}).macro == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_of_many_classes_the_worst_are_shown_and_the_rest_counted() -> None:
    found = {f"c{number:03}": Found(number, number, 2 * number) for number in range(1, MOST_ROWS + 8)}
    scores = ClassScores({**found, "worst": Found(0, 1, 1)})
    rows, others = class_rows(scores.to_dict())
    assert (len(rows), others) == (MOST_ROWS + 3, 8)
    assert rows[-4][0] == "worst"
    assert class_table(scores.to_dict()).endswith(f"and {MOST_ROWS + 8 - MOST_LINES} with a higher F1")


def test_numbers_without_a_name_and_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"0 \.\.\. 5"):
        class_scores([6], [0], NAMES)
    with pytest.raises(InputError, match="shape"):
        class_scores([[0]], [0], NAMES)
    with pytest.raises(InputError, match=r"0 \.\.\. 5, got -1"):
        class_scores([0, -1], [0, 1], NAMES)
    with pytest.raises(InputError, match="5 columns, but there are 6 names"):
        class_scores(np.ones((2, 5)), np.ones((2, 5)), NAMES)


def test_a_table_without_any_class_is_its_first_line() -> None:
    """Of texts without entities in which none is found."""
    assert class_table(ClassScores({}).to_dict(), "entity").split()[0] == "entity"
