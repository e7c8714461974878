"""The cache of exact answers: the same request finds its answer, and its bytes are those of memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.server.cache import AnswerCache, digest_of
from bertkit.server.open_model import Results

KEY = ("embed", None, ("normalize", True))
TEXTS = st.lists(st.one_of(st.text(), st.lists(st.integers(0, 9)), st.tuples(st.text(), st.none())), max_size=5)


def results(count: int = 1) -> Results:
    return Results([np.zeros(32, np.float32) for _ in range(count)], [5] * count, [False] * count)


@given(TEXTS, TEXTS)
def test_equal_requests_have_one_digest_and_others_have_others(one: list[object], other: list[object]) -> None:
    again = pickle.loads(pickle.dumps(one))  # equal, of other objects
    assert digest_of(KEY, one) == digest_of(KEY, again)
    assert (digest_of(KEY, one) == digest_of(KEY, other)) == (one == other)
    assert digest_of(KEY, one) != digest_of((*KEY, ("dimensions", 8)), one)


def test_equal_requests_may_be_pickled_in_two_ways() -> None:
    """Why the digest is not of the pickled request."""
    text = "a film"
    one, other = [text, text], [text, "".join(["a ", "film"])]
    assert one == other
    assert pickle.dumps(one) != pickle.dumps(other)
    assert digest_of(KEY, one) == digest_of(KEY, other)
    assert digest_of(KEY, "\ud800") != digest_of(KEY, "\ud801"), "half a pair of UTF-16"


@pytest.mark.parametrize("length", [10, 20_000])
def test_a_full_cache_takes_the_memory_that_it_was_given(length: int) -> None:
    most = 2_000_000
    cache = AnswerCache(most)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(8000):
            cache.keep(digest_of(KEY, [f"{number} " + "x" * length]), results())
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.9 * most < cache.num_bytes <= most
    assert 0.7 * most < taken <= 1.05 * most
    assert cache.get(digest_of(KEY, ["0 " + "x" * length])) is None, "it was full"
    found = cache.get(digest_of(KEY, ["7999 " + "x" * length]))
    assert found is not None
    assert found.tokens == [5]
    assert cache.hits == 1


def test_an_answer_that_is_larger_than_the_cache_is_not_kept() -> None:
    cache = AnswerCache(1000)
    cache.keep(digest_of(KEY, ["small"]), results())
    cache.keep(digest_of(KEY, ["large"]), results(20))
    assert cache.get(digest_of(KEY, ["small"])) is not None
    assert cache.get(digest_of(KEY, ["large"])) is None
