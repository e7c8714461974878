"""Labels that a model gives to unlabelled texts, and that it is then trained on: those of which it is sure.

Lee 2013, "Pseudo-Label". Deviates: how sure is sure enough is found on labelled rows that the model has not seen, and
no label gets more texts than the labelled rows allow, so that a frequent guess does not crowd out the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bertkit.errors import ConfigError, DataError
from bertkit.metrics.probabilities import softmax
from bertkit.ragged import Floats, Ints, Ragged, concatenate
from bertkit.system.paths import user_path
from bertkit.tasks.examples import Example
from bertkit.tasks.hold_out import text_key
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.unlabelled import fresh_texts

#: Share of right answers that a threshold must reach on held-out rows, if any does.
RIGHT = 0.9
#: Most texts of a label: so many times the mean number of labelled ones.
MOST = 3
#: Share of the surest texts that is taken where no threshold is good enough.
SUREST = 0.1


def read_unlabelled(task: TextTask, file: str, labelled: Sequence[Example]) -> list[Example]:
    """The different texts of a file that are not among the labelled ones."""
    if task.is_pair:
        raise ConfigError(f"unlabelled={file!r}: task {task.name} has pairs of texts; only single texts get labels")
    found, _ = fresh_texts(task, user_path(file), {text_key(row) for row in labelled}, text_key)
    if not found:
        raise DataError(f"{file} has no text that is not among the labelled ones; leave unlabelled out")
    return found


def sure_enough(logits_NC: Floats, labels_N: Ints) -> float:
    """The lowest probability from which :data:`RIGHT` of the held-out answers are right, or that of the surest few."""
    sure_N = softmax(logits_NC).max(axis=1)
    order = np.argsort(-sure_N, kind="stable")
    right = logits_NC.argmax(axis=1)[order] == labels_N[order]
    shares = right.cumsum() / np.arange(1, len(right) + 1)
    good = np.flatnonzero(shares >= RIGHT)
    fewest = max(1, round(SUREST * len(right)))
    last = max(int(good[-1]) if len(good) else 0, fewest - 1)
    return float(sure_N[order[last]])


def with_pseudo_labels(train: Ragged, unlabelled: Ragged, logits_UC: Floats, threshold: float) -> Ragged:
    """The labelled rows, and behind them the unlabelled ones that are given their likeliest label.

    Those whose probability reaches ``threshold``, of each label the surest, at most :data:`MOST` times as many as a
    label has labelled rows on average.
    """
    labels_N = np.asarray(train.labels)
    probabilities = softmax(logits_UC)
    guesses, sure = probabilities.argmax(axis=1), probabilities.max(axis=1)
    most = max(1, round(MOST * len(labels_N) / len(np.unique(labels_N))))
    order = np.argsort(-sure, kind="stable")
    order = order[sure[order] >= threshold]
    chosen = np.sort(np.concatenate([order[guesses[order] == label][:most] for label in range(logits_UC.shape[1])]))
    both = concatenate([train, unlabelled.select(chosen)])
    return replace(both, labels=np.concatenate([labels_N, guesses[chosen]]))
