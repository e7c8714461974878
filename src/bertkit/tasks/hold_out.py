"""How to hold rows out of a training file, for a task without a dev file, and which rows say the same."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from bertkit.errors import ConfigError, DataError, counted
from bertkit.tasks.examples import Examples, Halves, Located

Key = tuple[str, str | None]
Label = int | float | tuple[int, ...] | None


class Texts(Located, Protocol):
    """What is compared of an example; :class:`bertkit.tasks.Example` is one."""

    @property
    def text(self) -> str: ...

    @property
    def text_pair(self) -> str | None: ...

    @property
    def label(self) -> Label: ...


TextsT = TypeVar("TextsT", bound=Texts)
RowT = TypeVar("RowT", bound=Located)


def plain_text(text: str) -> str:
    """A text with case and white space made equal."""
    return " ".join(text.casefold().split())


def text_key(example: Texts) -> Key:
    """The plain text or texts of an example; rows with one key are exact duplicates."""
    return plain_text(example.text), None if example.text_pair is None else plain_text(example.text_pair)


def carve(
    examples: Sequence[TextsT], share: float, seed: int, *, key: Callable[[TextsT], Key] = text_key
) -> Halves[TextsT]:
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
    check_share(share)
    if any(example.label is None for example in examples):
        raise DataError("rows without a label cannot be held out for evaluation")
    generator = np.random.Generator(np.random.PCG64(seed))
    held: set[int] = set()
    for groups in _strata(examples, share, key):
        order = [groups[number] for number in generator.permutation(len(groups)).tolist()]
        held |= take_groups(order, share)
    if not held:
        if len({str(example.label) for example in examples}) > 1:
            raise DataError(
                f"{counted(len(examples), 'row')} are too few to hold any out: every label has one text only"
            )
        count = "1 row is" if len(examples) == 1 else f"{counted(len(examples), 'row')} of the same text are"
        raise DataError(f"{count} too few to hold any out for evaluation; give at least two different texts")
    return part(examples, held)


def deal(examples: Sequence[TextsT], count: int, seed: int) -> list[int]:
    """The number of the part, of ``count``, that each row falls into: labels spread evenly, duplicates together."""
    order = shuffled(group_rows(map(text_key, examples)), seed)
    labels = np.array(_single([examples[rows[0]].label for rows in order]))
    parts = [0] * len(examples)
    for number, place in enumerate(np.argsort(labels, kind="stable").tolist()):
        for row in order[place]:
            parts[row] = number % count
    return parts


def check_share(share: float) -> None:
    """Refuse a share to hold out that is not above 0 and at most 0.5."""
    if not 0.0 < share <= 0.5:
        raise ConfigError(f"the share to hold out must be above 0 and at most 0.5, got {share}")


def shuffled(groups: Sequence[list[int]], seed: int) -> list[list[int]]:
    """The groups in a random order."""
    return [groups[number] for number in np.random.Generator(np.random.PCG64(seed)).permutation(len(groups)).tolist()]


def take_groups(order: Sequence[Sequence[int]], share: float, *, or_smallest: bool = True) -> set[int]:
    """Rows of whole groups, as near to a share of all rows as groups allow; never those of the last group.

    If all are too large, the smallest one, because an empty part could not be evaluated, unless ``or_smallest=False``.
    """
    wanted = sum(map(len, order)) * share
    taken: set[int] = set()
    for group in order[:-1]:
        if len(taken) + len(group) / 2 <= wanted:
            taken.update(group)
    smallest: Sequence[int] = min(order, key=len) if or_smallest and len(order) > 1 else ()
    return taken or set(smallest)


def group_rows(keys: Iterable[Hashable]) -> list[list[int]]:
    """Numbers of the rows with equal keys, in the order of their first rows."""
    groups: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def part(examples: Sequence[RowT], held: Collection[int]) -> Halves[RowT]:
    """The rows that stay in train, and those of some numbers, which become dev."""
    whole: Examples[RowT] = examples if isinstance(examples, Examples) else Examples()
    stay, out = copy.copy(whole), copy.copy(whole)
    stay[:] = [example for row, example in enumerate(examples) if row not in held]
    out[:] = [example for row, example in enumerate(examples) if row in held]
    stay.split, out.split, out.skipped = "train", "dev", ()
    return stay, out


def _strata(examples: Sequence[TextsT], share: float, key: Callable[[TextsT], Key]) -> list[list[list[int]]]:
    """For each label, the groups of rows with one key. A key under several labels counts under its first.

    Scores are cut by rank into at most ten strata, fewer where one of ten would give less than one row away.
    """
    groups = group_rows(map(key, examples))
    labels = np.array(_single([examples[rows[0]].label for rows in groups]))
    if labels.dtype.kind == "f":
        ranks = np.empty(len(labels), dtype=np.int64)
        ranks[np.argsort(labels, kind="stable")] = np.arange(len(labels))
        labels = ranks * max(1, min(10, int(len(labels) * share))) // len(labels)
    strata: dict[int, list[list[int]]] = {}
    for label, rows in zip(labels.tolist(), groups, strict=True):
        strata.setdefault(label, []).append(rows)
    return [strata[label] for label in sorted(strata)]


def _single(labels: Sequence[Label]) -> Sequence[Label]:
    """One label for each: of several the rarest, -1 for a row without any."""
    counts = Counter(number for label in labels if isinstance(label, tuple) for number in label)
    return [
        min(label, key=lambda number: (counts[number], number), default=-1) if isinstance(label, tuple) else label
        for label in labels
    ]
