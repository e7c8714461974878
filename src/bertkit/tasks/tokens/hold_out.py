"""How to hold sentences out of a training file without tearing apart what belongs together."""

from __future__ import annotations

from bertkit.errors import DataError
from bertkit.tasks.examples import Examples, Halves
from bertkit.tasks.hold_out import check_share, group_rows, part, plain_text, shuffled, take_groups
from bertkit.tasks.tokens.task import TaggedExample

#: Fewest documents in a file for whole ones to be held out; with fewer, sentences are.
MIN_DOCUMENTS = 20


def hold_out_sentences(train: Examples[TaggedExample], share: float, seed: int) -> Halves[TaggedExample]:
    """Hold out a part of the sentences, for a data set that has no dev file.

    Whole documents where the file has 20 or more, because the names of one return all over it; else sentences, and
    equal ones stay on one side. Both parts keep the order of the file, and have an entity where the file has two or
    more in different groups. A pure function of its arguments.
    """
    check_share(share)
    if any(example.entities is None for example in train):
        raise DataError("sentences without tags cannot be held out for evaluation")
    if len({example.document for example in train}) >= MIN_DOCUMENTS:
        groups = group_rows(example.document for example in train)
    else:
        groups = group_rows(plain_text(" ".join(example.words)) for example in train)
    if len(groups) < 2:
        raise DataError(f"{len(train)} sentences are too few to hold any out: they are one group or one text")
    held = take_groups(shuffled(groups, seed), share)
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
