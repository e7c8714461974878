"""Batches are a partition within their bounds, and packed rows are what a simple loop packs."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertkit.batch import collate, pack
from bertkit.engine.rows import SMALLEST_PACK, pack_by_length
from bertkit.errors import InputError
from bertkit.ragged import Ragged, boundaries_of, concatenate


@given(lengths=st.lists(st.integers(0, 40), max_size=60), max_tokens=st.integers(1, 60))
def test_every_row_is_in_one_pack_and_packs_are_full(lengths: list[int], max_tokens: int) -> None:
    packs = pack_by_length(np.array(lengths, dtype=np.int64), max_tokens)
    assert sorted(row for rows in packs for row in rows) == list(range(len(lengths)))
    for rows in packs:
        assert len(rows) == 1 or sum(lengths[row] for row in rows) <= max_tokens
    for rows, following in itertools.pairwise(packs):  # none could have taken one row more
        assert sum(lengths[row] for row in [*rows, following[0]]) > max_tokens
    order = [row for rows in packs for row in rows]
    assert order == sorted(order, key=lambda row: (-lengths[row], row)), "longest first, equal ones in their order"


def finished_last(lengths: list[int], packs: list[list[int]], workers: int) -> int:
    """When the last of the workers has finished, each of which takes the next pack when it is free: tokens are time."""
    free = [0] * workers
    for rows in packs:
        heapq.heapreplace(free, free[0] + sum(lengths[row] for row in rows))
    return max(free)


@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=200),
    max_tokens=st.integers(1, 2000),
    workers=st.integers(2, 9),
)
def test_workers_finish_together(lengths: list[int], max_tokens: int, workers: int) -> None:
    packs = pack_by_length(np.array(lengths, dtype=np.int64), max_tokens, workers)
    order = [row for rows in packs for row in rows]
    assert order == sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    assert all(len(rows) == 1 or sum(lengths[row] for row in rows) <= max_tokens for rows in packs)
    late = finished_last(lengths, packs, workers) - sum(lengths) / workers
    assert late <= max(SMALLEST_PACK, max(lengths))


def test_full_packs_leave_workers_waiting() -> None:
    lengths = [100] * 90
    full = pack_by_length(np.array(lengths), 1000)
    shared = pack_by_length(np.array(lengths), 1000, 2)
    assert finished_last(lengths, full, 2) == 5000
    assert finished_last(lengths, shared, 2) == 4500


def feature_set(lengths: list[int], seed: int, labels: np.ndarray | None = None) -> Ragged:
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    return Ragged(
        rng.integers(0, 30522, total).astype(np.int32),
        boundaries_of(lengths),
        rng.integers(0, 2, total).astype(np.int8),
        np.array(lengths, dtype=np.int64),
        labels=labels,
    )


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(0, 9), st.data())
def test_collate_equals_pack(lengths: list[int], seed: int, data: st.DataObject) -> None:
    features = feature_set(lengths, seed, np.arange(len(lengths)))
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=40))
    got = collate(features, rows, {"labels": features.labels})
    expected = pack([features[row] for row in rows], [features.types(row) for row in rows])
    assert got.layout == expected.layout
    for name in ("input_ids", "token_type_ids", "position_ids"):
        assert getattr(got, name).dtype == torch.int64
        assert torch.equal(getattr(got, name), getattr(expected, name))
    assert got.targets["labels"].tolist() == rows
    taken = features.select(rows)
    assert len(taken) == len(rows)
    assert all(np.array_equal(taken[place], features[row]) for place, row in enumerate(rows))
    again = collate(taken, range(len(rows)), {"labels": taken.labels})
    assert torch.equal(again.input_ids, got.input_ids)
    assert torch.equal(again.targets["labels"], got.targets["labels"])
    joined = concatenate([features, taken])
    assert [row.tolist() for row in joined] == [row.tolist() for part in (features, taken) for row in part]


def test_targets_are_those_of_the_rows_or_of_their_tokens() -> None:
    scores = feature_set([2, 3], 0, np.array([0.5, 4.0], dtype=np.float32))
    batch = collate(scores, [1, 0], {"labels": scores.labels}, {"tags": np.arange(5)})
    assert (batch.targets["labels"].dtype, batch.targets["labels"].tolist()) == (torch.float32, [4.0, 0.5])
    assert batch.targets["tags"].tolist() == [2, 3, 4, 0, 1]
    whole = feature_set([2, 3], 0, np.array([1, 0]))
    assert collate(whole, [0], {"labels": whole.labels}).targets["labels"].dtype == torch.int64
    assert not collate(whole, [0]).targets
    with pytest.raises(InputError, match="no labels"):
        collate(feature_set([2], 0), [0], {"labels": None})
    with pytest.raises(InputError, match="at least one row"):
        collate(whole, [])
    with pytest.raises(IndexError):
        whole[2]
    assert whole[-1].tolist() == whole[1].tolist()
