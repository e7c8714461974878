"""Vectors of many rows as one matrix: the same numbers as row by row, in their order, for every kind of engine."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch

from bertkit import BertConfig, BertModel
from bertkit.engine.backend import Pack, Values, Wanted
from bertkit.engine.inference_engine import InferenceEngine, rows_of, vectors_of
from bertkit.errors import CheckpointError
from bertkit.ragged import Floats, Ints, Ragged, boundaries_of

MEAN = Wanted(("last_hidden_state",), ("mean",))


def texts(lengths: list[int]) -> Ragged:
    sizes = np.array(lengths)
    ids = np.random.default_rng(0).integers(0, 50, int(sizes.sum()), dtype=np.int32)
    return Ragged(ids, boundaries_of(sizes), np.zeros(len(ids), np.int8), sizes)


class MeanId:
    """A back-end whose vector of a row is the mean of its ids and its length, in small packs."""

    config, model_class, model, place, dtype, max_tokens = None, "none", None, "cpu", "float32", 32
    packs_ahead = 0

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        found = [(ids.mean(), len(ids)) for ids in np.split(pack.ids, pack.boundaries[1:-1])]
        return {"last_hidden_state": np.array(found, np.float32)}

    def num_threads(self, lengths: Ints) -> int:
        return self.threads

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_stay_in_their_order(threads: int) -> None:
    rows = texts([3, 1, 40, 7, 7, 2, 31, 5] * 9)
    engine, done = InferenceEngine(MeanId(threads)), []  # type: ignore[arg-type]
    found = engine.matrix(rows, MEAN, vectors_of, done.append)
    expected: Floats = np.array([(row.mean(), len(row)) for row in rows], np.float32)
    assert np.array_equal(found, expected)
    assert sum(done) == len(rows)


def test_the_numbers_are_those_of_rows() -> None:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    engine = InferenceEngine.of(BertModel(BertConfig(vocab_size=50, **shape)).eval())
    rows = texts([3, 5, 40, 7, 7, 2, 31, 5])
    assert np.array_equal(engine.matrix(rows, MEAN, vectors_of), np.stack(engine.run(rows, MEAN, rows_of)))


def test_values_that_are_not_finite_are_refused() -> None:
    class Broken(MeanId):
        def compute(self, pack: Pack, wanted: Wanted) -> Values:
            return {name: x * np.float32(np.nan) for name, x in super().compute(pack, wanted).items()}

    with pytest.raises(CheckpointError, match="not finite"):
        InferenceEngine(Broken(1)).matrix(texts([3, 4]), MEAN, vectors_of)  # type: ignore[arg-type]
