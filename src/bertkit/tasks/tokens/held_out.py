"""How to hold sentences out of a file for evaluation without tearing apart what belongs together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bertkit.errors import ConfigError, DataError
from bertkit.tasks.examples import Examples
from bertkit.tasks.tokens.reading import with_spelling
from bertkit.tasks.tokens.task import TaggedExample

#: Fewest documents in a file for whole ones to be held out; with fewer, sentences are.
MIN_DOCUMENTS = 20


def hold_out_sentences(
    train: Examples[TaggedExample], share: float, seed: int
) -> tuple[Examples[TaggedExample], Examples[TaggedExample]]:
    """Hold out a part of the sentences, for a data set that has no dev file.

    Whole documents where the file tells 20 or more, because the names of one return all over it; else sentences, and
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
    if not 0.0 < share <= 0.5:
        raise ConfigError(f"the share to hold out must be above 0 and at most 0.5, got {share}")
    if any(example.entities is None for example in train):
        raise DataError("sentences without tags cannot be held out for evaluation")
    groups = _groups(train)
    if len(groups) < 2:
        raise DataError(f"{len(train)} sentences are too few to hold any out: they are one group or one text")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(groups)).tolist()
    wanted = len(train) * share
    held: set[int] = set()
    for number in order[:-1]:
        if len(held) + len(groups[number]) / 2 <= wanted:
            held.update(groups[number])
    if not any(train[row].entities for row in held):
        # A dev part without an entity could not be scored: the smallest group that has one comes along.
        with_entities = [rows for rows in groups if any(train[row].entities for row in rows)]
        if len(with_entities) > 1:
            smallest: list[int] = min(with_entities, key=len)
            held.update(smallest)
    if not held:
        least: list[int] = min(groups, key=len)
        held.update(least)
    stay = Examples((e for row, e in enumerate(train) if row not in held), train.path, "train", train.skipped)
    out = Examples((e for row, e in enumerate(train) if row in held), train.path, "dev")
    return with_spelling(stay, train), with_spelling(out, train)


def _groups(train: Sequence[TaggedExample]) -> list[list[int]]:
    """Rows that stay together: those of a document, or those with the same words."""
    documents = {example.document for example in train}
    groups: dict[object, list[int]] = {}
    for row, example in enumerate(train):
        key: object = example.document if len(documents) >= MIN_DOCUMENTS else sentence_key(example)
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def sentence_key(example: TaggedExample) -> str:
    """The words with case and white space made equal; sentences with one key are exact duplicates."""
    return " ".join(" ".join(example.words).casefold().split())
