"""How to hold sentences out of a training file without tearing apart what belongs together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.errors import DataError
from bertkit.tasks.examples import Examples
from bertkit.tasks.hold_out import check_share, group_rows, part, plain_text, take_groups
from bertkit.tasks.tokens.task import TaggedExample

#: Fewest documents in a file for whole ones to be held out; with fewer, sentences are.
MIN_DOCUMENTS = 20


def hold_out_sentences(
    train: Examples[TaggedExample], share: float, seed: int
) -> tuple[Examples[TaggedExample], Examples[TaggedExample]]:
    """Hold out a part of the sentences, for a data set that has no dev file.

    Whole documents where the file has 20 or more, because the names of one return all over it; else sentences, and
    equal ones stay on one side. Both parts keep the order of the file. A pure function of its arguments.

    Args:
        train: tagged sentences.
        share: of the sentences to hold out, above 0 and at most 0.5.
        seed: chooses them.

    Returns:
        What stays, and what is held out. Either has an entity where the file has two or more in different groups.

    Raises:
        ConfigError: a share out of bounds.
        DataError: too few sentences to hold any out, or sentences without tags.
    """
    check_share(share)
    if any(example.entities is None for example in train):
        raise DataError("sentences without tags cannot be held out for evaluation")
    groups = _groups(train)
    if len(groups) < 2:
        raise DataError(f"{len(train)} sentences are too few to hold any out: they are one group or one text")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(groups)).tolist()
    held = take_groups([groups[number] for number in order], share)
    if not any(train[row].entities for row in held):
        # A dev part without an entity could not be scored: the smallest group that has one comes along.
        with_entities = [rows for rows in groups if any(train[row].entities for row in rows)]
        if len(with_entities) > 1:
            smallest: list[int] = min(with_entities, key=len)
            held.update(smallest)
    if not held:
        least: list[int] = min(groups, key=len)
        held.update(least)
    return part(train, held)


def _groups(train: Sequence[TaggedExample]) -> list[list[int]]:
    """Rows that stay together: those of a document, or those with the same words."""
    if len({example.document for example in train}) >= MIN_DOCUMENTS:
        return group_rows(example.document for example in train)
    return group_rows(plain_text(" ".join(example.words)) for example in train)
