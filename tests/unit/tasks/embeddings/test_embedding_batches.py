"""Batches without repeated texts: what is in them, how they depend on seed and epoch, and what finds no place."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.ragged import Ints
from bertkit.tasks.embeddings.batches import MOST_STEPS, epoch_batches, num_steps


def pairs(*counts: int) -> Ints:
    """A row for each anchor, whose positive is one of texts that occur so often."""
    positives = np.repeat(np.arange(len(counts)), counts)
    return np.stack([len(counts) + np.arange(len(positives)), positives], axis=1)


def check(texts: Ints, size: int, seed: int = 0, epoch: int = 0) -> list[Ints]:
    """The batches, after looking for repeated texts and rows."""
    batches = epoch_batches(texts, size, seed=seed, epoch=epoch)
    rows = np.concatenate(batches)
    assert len(set(rows.tolist())) == len(rows)
    assert len(batches) == num_steps(texts, size)
    for batch in batches:
        sets = [set(own) for own in texts[batch].tolist()]
        assert sum(map(len, sets)) == len(set().union(*sets))
        assert len(batch) <= size
    return batches


@pytest.mark.parametrize(
    ("texts", "size", "steps"),
    [
        (pairs(*[1] * 100), 32, 4),
        (pairs(*[10] * 200), 64, 32),
        (pairs(*[3] * 30, *[1] * 10), 16, 7),
        (pairs(1), 64, 1),
        (pairs(*[1] * 65), 64, 2),
    ],
)
def test_every_row_has_a_place_where_there_is_one(texts: Ints, size: int, steps: int) -> None:
    batches = check(texts, size)
    assert sum(map(len, batches)) == len(texts)
    assert len(batches) == steps
    sizes = [len(batch) for batch in batches]
    assert max(sizes) - min(sizes) <= max(1, size // 8)


def test_a_text_on_either_side_is_the_same_text() -> None:
    """A chain 0-1, 1-2, 2-3 ...: neighbours share a text, once as a positive, once as an anchor."""
    chain = np.stack([np.arange(40), np.arange(40) + 1], axis=1)
    assert sum(map(len, check(chain, 10))) == 40
    assert sum(map(len, check(np.zeros((5, 2), np.int64), 4))) == MOST_STEPS * 2  # all rows alike: one per batch
    assert num_steps(np.stack([np.arange(9), np.arange(9)], axis=1), 4) == 3  # twice in one row is no repeat


def test_a_text_in_most_rows_does_not_make_batches_of_two_rows() -> None:
    texts = pairs(400, *[1] * 600)
    batches = check(texts, 64)
    assert len(batches) == MOST_STEPS * 16
    left_out = set(range(1000)) - set(np.concatenate(batches).tolist())
    assert len(left_out) == 400 - MOST_STEPS * 16
    assert all(texts[row, 1] == 0 for row in left_out)
    other = check(texts, 64, epoch=1)
    assert left_out != set(range(1000)) - set(np.concatenate(other).tolist())


@pytest.mark.parametrize("texts", [pairs(*[1] * 60), pairs(*[4] * 20, *[1] * 30)])
def test_a_pure_function_of_seed_and_epoch(texts: Ints) -> None:
    def batches(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in check(texts, 8, seed, epoch)]

    assert batches(0, 3) == batches(0, 3)
    assert batches(0, 3) != batches(0, 4)
    assert batches(0, 3) != batches(1, 3)
    assert len(batches(0, 3)) == len(batches(1, 4))


def test_all_rows_meet_each_other() -> None:
    """Over the epochs any two rows that may stand together do, also those of repeated texts."""
    texts = pairs(*[2] * 6, *[1] * 6)
    together = np.zeros((18, 18), bool)
    for epoch in range(200):
        for batch in epoch_batches(texts, 6, seed=0, epoch=epoch):
            together[np.ix_(batch, batch)] = True
    may = texts[:, 1, None] != texts[None, :, 1]
    assert together[may].all()
