"""A baseline for multiple choice: TF-IDF and a linear model that scores each choice with its context."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from bertkit.errors import DataError, counted
from bertkit.metrics.scores import METRICS
from bertkit.tasks.choices.task import ChoiceExample, ChoiceTask
from bertkit.tasks.examples import Example, Row
from bertkit.tasks.text.baseline import INVERSE_PENALTY, pair_features


def choice_baseline(train: Sequence[ChoiceExample], dev: Sequence[ChoiceExample], task: ChoiceTask) -> Row:
    """Fit on train, score on dev. The same input gives the same numbers.

    Every choice is an example of its own, right or wrong, with the features of a pair of texts. Of a question the one
    is taken that logistic regression finds likeliest to be right, of equal ones the first.
    """
    from sklearn.linear_model import LogisticRegression

    started = time.perf_counter()
    for name, rows in (("train", train), ("dev", dev)):
        if not rows or any(row.label is None for row in rows):
            raise DataError(
                f"the baseline needs labelled {name} rows: {counted(len(rows), 'row')}, some without a label"
            )
    x_train, x_dev = pair_features(_pairs(train), _pairs(dev))
    is_right = np.concatenate([np.arange(len(e.choices)) == e.label for e in train])
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000).fit(x_train, is_right)
    scores = model.decision_function(x_dev)
    ends = np.cumsum([len(example.choices) for example in dev])
    right = np.array([row.label for row in dev], dtype=np.int64)
    predicted = np.array([part.argmax() for part in np.split(scores, ends[:-1])])
    return {
        "model": "TF-IDF of words and word pairs, overlap of context and choice; logistic regression",
        "metrics": {name: METRICS[name](predicted, right) for name in task.metrics},
        "chance": float(np.mean([1 / len(example.choices) for example in dev])),
        "train_rows": len(train),
        "dev_rows": len(dev),
        "features": int(x_train.shape[1]),
        "seconds": time.perf_counter() - started,
    }


def _pairs(questions: Sequence[ChoiceExample]) -> list[Example]:
    return [Example(first, second) for question in questions for first, second in question.pairs]
