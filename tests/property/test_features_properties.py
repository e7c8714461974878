"""Batches are a partition within their bounds, and packed rows are what a simple loop packs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.batch import pack
from bertkit.errors import ConfigError, InputError
from bertkit.tasks.text.features import FeatureSet, collate, token_budget_batches

LENGTHS = st.lists(st.integers(1, 60), min_size=0, max_size=120)


@given(
    LENGTHS,
    st.one_of(st.none(), st.integers(60, 300)),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 50)),
)
@settings(max_examples=500)
def test_every_row_once_within_the_bounds(
    lengths: list[int],
    max_tokens: int | None,
    max_sequences: int | None,
    seed: int | None,
    epoch: int,
    window: int | None,
) -> None:
    if max_tokens is None and max_sequences is None:
        return
    arguments = {
        "max_tokens": max_tokens,
        "max_sequences": max_sequences,
        "seed": seed,
        "epoch": epoch,
        "window": window,
    }
    batches = token_budget_batches(lengths, **arguments)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(batches)
    for batch in batches:
        assert max_tokens is None or sum(lengths[row] for row in batch) <= max_tokens
        assert max_sequences is None or len(batch) <= max_sequences
    assert batches == token_budget_batches(np.array(lengths), **arguments)
    if seed is None and window is None:
        assert [row for batch in batches for row in batch] == list(range(len(lengths)))
        for batch, following in itertools.pairwise(batches):  # none could have taken one row more
            full = max_sequences is not None and len(batch) == max_sequences
            assert full or sum(lengths[row] for row in [*batch, following[0]]) > (max_tokens or 10**9)


def test_plain_batches_of_32() -> None:
    first = token_budget_batches(np.ones(100), max_sequences=32, seed=1)
    assert [len(batch) for batch in first] == [32, 32, 32, 4]
    assert first == token_budget_batches(np.full(100, 7), max_sequences=32, seed=1)  # lengths do not matter here
    assert first != token_budget_batches(np.ones(100), max_sequences=32, seed=2)
    assert first != token_budget_batches(np.ones(100), max_sequences=32, seed=1, epoch=1)


def test_a_shuffle_is_fair() -> None:
    """Each of 3 rows comes first about equally often over epochs; a control for a generator seeded wrongly."""
    counts = np.zeros(3)
    for epoch in range(600):
        counts[token_budget_batches([1, 1, 1], max_sequences=1, seed=0, epoch=epoch)[0][0]] += 1
    assert counts.min() > 150


def test_a_window_makes_batches_even() -> None:
    lengths = np.random.default_rng(0).integers(2, 128, 4096)

    def spread(batches: list[list[int]]) -> float:
        return float(np.mean([np.ptp(lengths[batch]) for batch in batches]))

    plain = token_budget_batches(lengths, max_sequences=32, seed=0)
    sorted_in_windows = token_budget_batches(lengths, max_sequences=32, seed=0, window=1024)
    assert spread(sorted_in_windows) < spread(plain) / 10
    firsts = [lengths[batch[0]] for batch in sorted_in_windows[:32]]
    assert firsts != sorted(firsts, reverse=True), "shuffled batches must not run from long to short"
    in_order = token_budget_batches(lengths, max_sequences=32, window=1024)
    assert [lengths[batch[0]] for batch in in_order[:32]] == sorted(
        (lengths[b[0]] for b in in_order[:32]), reverse=True
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give max_tokens, max_sequences, or both"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_sequences": -1}, "max_sequences must be at least 1"),
        ({"max_sequences": 1, "window": 0}, "window must be at least 1"),
    ],
)
def test_bad_bounds(arguments: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        token_budget_batches([1, 2], **arguments)


def test_a_row_over_the_budget_is_named() -> None:
    with pytest.raises(InputError, match="row 1 has 9 tokens, more than max_tokens=8"):
        token_budget_batches([3, 9, 4], max_tokens=8)


def feature_set(lengths: list[int], seed: int, labels: np.ndarray | None = None) -> FeatureSet:
    rng = np.random.default_rng(seed)
    total = sum(lengths)
    return FeatureSet(
        rng.integers(0, 30522, total).astype(np.int32),
        rng.integers(0, 2, total).astype(np.int8),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.array(lengths, dtype=np.int64),
        labels,
    )


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(0, 9), st.data())
@settings(max_examples=200)
def test_collate_equals_pack(lengths: list[int], seed: int, data: st.DataObject) -> None:
    features = feature_set(lengths, seed, np.arange(len(lengths)))
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=40))
    got = collate(features, rows, "classification")
    chosen = [features[row] for row in rows]
    expected = pack([f.input_ids for f in chosen], [f.token_type_ids for f in chosen])
    assert got.layout == expected.layout
    for name in ("input_ids", "token_type_ids", "position_ids"):
        assert getattr(got, name).dtype == torch.int64
        assert torch.equal(getattr(got, name), getattr(expected, name))
    assert got.targets["labels"].tolist() == rows
    taken = features.select(rows)
    assert len(taken) == len(rows)
    assert all(np.array_equal(taken[place].input_ids, chosen[place].input_ids) for place in range(len(rows)))
    again = collate(taken, range(len(rows)), "classification")
    assert torch.equal(again.input_ids, got.input_ids)
    assert torch.equal(again.targets["labels"], got.targets["labels"])


def test_targets_by_kind() -> None:
    scores = feature_set([2, 3], 0, np.array([0.5, 4.0], dtype=np.float32))
    batch = collate(scores, [1, 0], "regression")
    assert (batch.targets["labels"].dtype, batch.targets["labels"].tolist()) == (torch.float32, [4.0, 0.5])
    whole = feature_set([2, 3], 0, np.array([1, 0]))
    assert collate(whole, [0], "regression").targets["labels"].dtype == torch.float32
    assert collate(whole, [0], "classification").targets["labels"].dtype == torch.int64
    assert not collate(whole, [0]).targets
    with pytest.raises(InputError, match="no labels"):
        collate(feature_set([2], 0), [0], "classification")
    with pytest.raises(InputError, match="at least one row"):
        collate(whole, [])
    with pytest.raises(IndexError):
        whole[2]
    assert whole[-1].label == 0
