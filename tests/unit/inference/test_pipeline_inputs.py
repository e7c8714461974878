"""What a pipeline accepts, and what its results carry."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.errors import InputError
from bertkit.inference.pipeline_inputs import join_pairs, read_request
from bertkit.inference.pipeline_results import Embedding, Score


def read(inputs: Any, **options: Any) -> tuple[str, list[tuple[str, str | None]]]:
    request = read_request(inputs, **{"tuple_is_pair": True, **options})
    return request.shape, list(request.items)


def test_one_text() -> None:
    assert read("a") == ("one", [("a", None)])
    assert read("") == ("one", [("", None)])


@pytest.mark.parametrize("pair", [("a", "b"), {"text": "a", "text_pair": "b"}])
def test_one_pair(pair: Any) -> None:
    assert read(pair) == ("one", [("a", "b")])


def test_a_tuple_is_a_collection_where_pairs_mean_nothing() -> None:
    assert read(("a", "b"), tuple_is_pair=False) == ("list", [("a", None), ("b", None)])


def test_collections_keep_their_order_and_know_their_length() -> None:
    assert read([]) == ("list", [])
    assert read(["a", ("b", "c"), ["d", "e"], {"text": "f"}]) == (
        "list",
        [("a", None), ("b", "c"), ("d", "e"), ("f", None)],
    )
    assert read(np.array(["a", "b"])) == ("list", [("a", None), ("b", None)])
    assert read_request(["a"] * 7, tuple_is_pair=True).total == 7


def test_any_other_iterable_is_read_lazily() -> None:
    drawn = []

    def texts() -> Iterator[str]:
        for number in range(10):
            drawn.append(number)
            yield str(number)

    request = read_request(texts(), tuple_is_pair=True)
    assert (request.shape, request.total, drawn) == ("lazy", None, [])
    next(request.items)
    assert drawn == [0]


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (["a", 3], "text 1 must be a str, got int"),
        (["a", None], r"text 1 is missing \(None\): leave out such rows, with series.dropna\(\)"),
        (["a", b"b"], r"text 1 must be a str, got bytes; decode it first"),
        ([["a", 1]], "the second half of text 0 must be a str, got int"),
        ([["a", "b", "c"]], "text 0 must be a str, got list"),
        ({"txt": "a"}, r"the keys \['txt'\]; expected 'text' and 'text_pair'"),
        ([{"text": 1}], "'text' of text 0 must be a str"),
        ([{"text": "a", "text_pair": 1}], "'text_pair' of text 0 must be a str"),
        (7, "an iterable of texts, got int"),
        (b"bytes", "the text must be a str, got bytes"),
        (None, "got NoneType"),
    ],
)
def test_what_is_no_text_is_named(inputs: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read(inputs)


def test_a_pair_can_be_required() -> None:
    with pytest.raises(InputError, match="text 1 is a single text"):
        read([("a", "b"), "c"], pair_required=True)
    with pytest.raises(InputError, match="no 'text_pair'"):
        read({"text": "a"}, pair_required=True)


def test_two_arguments_become_pairs() -> None:
    assert join_pairs("a", "b") == ("a", "b")
    assert join_pairs(["a", "b"], ["c", "d"]) == [("a", "c"), ("b", "d")]
    assert join_pairs(["a"], None) == ["a"]
    with pytest.raises(InputError, match="2 first texts but 1 second"):
        join_pairs(["a", "b"], ["c"])
    with pytest.raises(InputError, match="one text and one list"):
        join_pairs(["a", "b"], "c")


def test_an_embedding_is_an_array_that_knows_its_text() -> None:
    values = np.arange(3, dtype=np.float32)
    vector = Embedding.of(values.copy(), num_tokens=5, truncated=True)
    assert isinstance(vector, np.ndarray)
    assert (vector.num_tokens, vector.truncated) == (5, True)
    again = pickle.loads(pickle.dumps(vector))
    assert (again.num_tokens, again.truncated) == (5, True)
    np.testing.assert_array_equal(again, values)
    assert torch.equal(torch.from_numpy(vector), torch.arange(3.0))


def test_what_is_computed_from_an_embedding_claims_nothing() -> None:
    vector = Embedding.of(np.ones(3, np.float32), num_tokens=5, truncated=True)
    for derived in (vector[:2], vector * 2, np.stack([vector, vector]), vector.copy()):
        assert (getattr(derived, "num_tokens", None), getattr(derived, "truncated", None)) == (None, None)
    assert not hasattr(np.asarray(vector), "truncated")


def test_a_score_is_a_float() -> None:
    score = Score(0.5, truncated=True)
    assert score == 0.5
    assert json.dumps([score]) == "[0.5]"
    again = pickle.loads(pickle.dumps(score))
    assert (again, again.truncated) == (0.5, True)
