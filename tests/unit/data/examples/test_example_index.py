"""The index of an epoch: the same however it is built, small while it is built and after."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.counter_random import bits, counters_of, stream
from bertkit.data.examples import pairs
from bertkit.data.examples.pairs import ExampleSpans, Rules, Sentences, places_from, stretches
from bertkit.data.examples.pretrain_batches import ExampleIndex, build_index
from pretrain_helpers import ToyTokens, random_tokens

OBJECTIVES = ("mlm+nsp", "mlm", "mlm+sop")


def columns(spans: ExampleSpans) -> list[np.ndarray]:
    return [getattr(spans, name) for name in ExampleSpans.__slots__]


def all_of(index: ExampleIndex) -> ExampleSpans:
    return index.take(np.arange(len(index)))


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=12).filter(
    lambda documents: sum(map(sum, documents)) >= 3
)


@pytest.mark.slow
@given(corpora, st.sampled_from(OBJECTIVES), st.integers(5, 60), st.sampled_from([0.0, 0.5]), st.integers(1, 12))
def test_blocks_make_no_difference(
    documents: list[list[int]], objective: Any, max_seq_length: int, short: float, documents_at_once: int
) -> None:
    """Against all places at once, put in order by a sort of what is drawn at them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "LANE", 3)  # documents of the test are long then
        sentences = Sentences.of(ToyTokens.of(documents))
        rules = Rules(objective, max_seq_length, short, 7, 1)
        ((start, stop),) = stretches(sentences, rules, 10**6)
        places = np.concatenate(list(places_from(sentences, rules, start, stop)))
        if not len(places):
            return
        assert len(np.unique(places)) == len(places)
        expected = places[np.argsort(bits(stream(7, "shuffle", 1), places), kind="stable")]
        index = build_index(sentences, rules, documents_at_once=documents_at_once)
        assert index.places.tolist() == expected.tolist()


#: SHA-256 of all columns of two epochs.
GOLDEN = {
    "mlm+nsp": "f3d023656f9c992e5fc49bd949a0e0b6",
    "mlm": "595e8c438d41653fa275257754b7de96",
    "mlm+sop": "0da399632b9eef393637820b463f2a1e",
}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_examples_are_written_down(objective: Any) -> None:
    """Golden: a run that is resumed with a later version sees the same examples, in the same order."""
    tokens = random_tokens(11, 400, max_sentences=60)
    digest = sha256()
    for epoch in range(2):
        rules = Rules(objective, 64, seed=3, epoch=epoch)
        index = build_index(Sentences.of(tokens), rules, documents_at_once=77)
        for column in columns(all_of(index)):
            digest.update(np.ascontiguousarray(column).data)
    assert digest.hexdigest()[:32] == GOLDEN[objective]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_example_is_the_same_alone_and_among_others(objective: Any) -> None:
    index = build_index(Sentences.of(random_tokens(1, 60)), Rules(objective, 48))
    whole = columns(all_of(index))
    for numbers in ([0], [5, 3, 3], list(range(len(index)))[::-7]):
        chosen = columns(index.take(np.array(numbers)))
        assert [column.tolist() for column in chosen] == [column[numbers].tolist() for column in whole]
        assert [column.dtype for column in chosen] == [column.dtype for column in whole]


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_what_was_drawn_tells_where(key: int, counters: list[int]) -> None:
    at = np.array(counters, np.uint64)
    assert counters_of(key, bits(key, at)).tolist() == counters
    assert counters_of(key, bits(key, at) ^ np.uint64(1)).tolist() != counters, "control"


# ---------------------------------------------------------------------------------------------------------- large


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_more_tokens_than_32_bits_count(objective: Any) -> None:
    """Far inside a corpus, behind 2^33 tokens: the examples are the same but for where they lie."""
    near = Sentences.of(random_tokens(2, 80))
    far = Sentences(near.bounds + (1 << 33), near.documents)
    small, large = (build_index(one, Rules(objective, 48, 0.0)) for one in (near, far))
    assert (small.places.dtype, large.places.dtype) == (np.uint32, np.int64)
    assert sorted(large.places - (1 << 33)) == sorted(small.places)
    here, there = ({tuple(row) for row in np.stack(columns(all_of(one)), axis=1).tolist()} for one in (small, large))
    shift = 1 << 33
    assert {(a - shift, b, c - shift, *rest) for a, b, c, *rest in there} == here


def test_a_corpus_is_not_copied() -> None:
    tokens = random_tokens(3, 50)
    sentences = Sentences.of(tokens)
    assert sentences.bounds is tokens.sentence_boundaries
    assert sentences.documents is tokens.document_boundaries


def test_an_index_needs_few_bytes_an_example() -> None:
    """4 bytes are held; while it is built, 8 more, one block of documents, and one of numbers that are turned back."""
    sentences = Sentences.of(ToyTokens.of([[5, 5]] * 60_000))

    def build(documents_at_once: int) -> tuple[int, ExampleIndex]:
        tracemalloc.start()
        index = build_index(sentences, Rules(max_seq_length=16), documents_at_once=documents_at_once)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, index

    peak, index = build(1000)
    assert len(index) > 60_000
    assert index.places.nbytes == 4 * len(index)
    assert peak < (4 + 8 + 3 * 8) * len(index) + 1_000_000
    assert build(10**6)[0] > 1.5 * peak, "control: all documents at once need more"
