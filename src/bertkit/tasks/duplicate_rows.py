"""Which rows say the same text, and how to hold rows out of a file without tearing them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from bertkit.errors import ConfigError, DataError
from bertkit.tasks.examples import Examples

Key = tuple[str, str | None]


class Texts(Protocol):
    """What is compared of an example; :class:`bertkit.tasks.Example` is one."""

    @property
    def text(self) -> str:
        """The first or only text."""

    @property
    def text_pair(self) -> str | None:
        """The second text, or None."""

    @property
    def label(self) -> int | float | tuple[int, ...] | None:
        """Label number, score, numbers of several labels, or None."""


TextsT = TypeVar("TextsT", bound=Texts)


def text_key(example: Texts) -> Key:
    """The example's text or texts with case and white space made equal; rows with one key are exact duplicates."""
    pair = example.text_pair
    return _normal(example.text), None if pair is None else _normal(pair)


def carve(
    examples: Sequence[TextsT], share: float, seed: int, *, key: Callable[[TextsT], Key] = text_key
) -> tuple[Examples[Any], Examples[Any]]:
    """Hold out a part of the rows, for a task that has no file for it.

    Each label keeps its share (scores are cut into ten groups by rank; a row of several labels counts under the rarest
    of them), duplicates stay on one side, and both parts keep the order of the rows. A pure function of its arguments.

    Args:
        examples: labelled rows.
        share: of the rows to hold out, above 0 and at most 0.5.
        seed: chooses the rows.
        key: rows with the same key stay together; by default those of the same text.

    Returns:
        The rows that stay, and the rows held out. Every label with two different texts or more stays on both sides.

    Raises:
        ConfigError: a share out of bounds.
        DataError: too few rows to hold any out, or rows without a label.
    """
    if not 0.0 < share <= 0.5:
        raise ConfigError(f"the share to hold out must be above 0 and at most 0.5, got {share}")
    if any(example.label is None for example in examples):
        raise DataError("rows without a label cannot be held out for evaluation")
    generator = np.random.Generator(np.random.PCG64(seed))
    held = np.zeros(len(examples), dtype=bool)
    for groups in _strata(examples, share, key):
        order = [groups[number] for number in generator.permutation(len(groups)).tolist()]
        wanted = sum(map(len, groups)) * share
        taken = 0
        for group in order[:-1]:
            if taken + len(group) / 2 <= wanted:
                held[group] = True
                taken += len(group)
        if taken == 0 and len(groups) > 1:
            held[min(order, key=len)] = True  # a label that is never held out could not be evaluated
    if not held.any():
        raise DataError(f"{len(examples)} rows are too few to hold any out: every label has one text only")
    origin, skipped = getattr(examples, "path", None), getattr(examples, "skipped", ())
    rows: list[Any] = list(examples)
    stay = Examples((e for e, out in zip(rows, held, strict=True) if not out), origin, "train", skipped)
    return stay, Examples((e for e, out in zip(rows, held, strict=True) if out), origin, "dev")


def _strata(examples: Sequence[TextsT], share: float, key: Callable[[TextsT], Key] = text_key) -> list[list[list[int]]]:
    """For each label, the groups of rows with one key. A key under several labels counts under its first.

    Scores are cut by rank into at most ten strata, fewer where one of ten would give less than one row away.
    """
    groups: dict[Key, list[int]] = {}
    for row, example in enumerate(examples):
        groups.setdefault(key(example), []).append(row)
    labels = np.array(_single([examples[rows[0]].label for rows in groups.values()]))
    if labels.dtype.kind == "f":
        ranks = np.empty(len(labels), dtype=np.int64)
        ranks[np.argsort(labels, kind="stable")] = np.arange(len(labels))
        labels = ranks * max(1, min(10, int(len(labels) * share))) // len(labels)
    strata: dict[int, list[list[int]]] = {}
    for label, rows in zip(labels.tolist(), groups.values(), strict=True):
        strata.setdefault(label, []).append(rows)
    return [strata[label] for label in sorted(strata)]


def _single(labels: Sequence[Any]) -> Sequence[Any]:
    """One label for each: of several the rarest, -1 for a row without any."""
    if not any(isinstance(label, tuple) for label in labels):
        return labels
    counts = Counter(number for label in labels for number in label)
    return [min(label, key=lambda number: (counts[number], number), default=-1) for label in labels]


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
