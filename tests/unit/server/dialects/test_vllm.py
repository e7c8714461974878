"""vLLM's score, classify and pooling."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from dialect_helpers import LABELS, RANKED, VECTORS, post, refused


@pytest.mark.parametrize(
    ("first", "second"), [("queries", "documents"), ("queries", "items"), ("text_1", "text_2"), ("data_1", "data_2")]
)
def test_score_in_all_spellings(first: str, second: str) -> None:
    asking = post("/score", {first: "q", second: ["a", "b"]})
    assert list(asking.call.items) == [{"query": "q", "documents": ["a", "b"]}]
    said = asking.said([RANKED], "ranks")
    # In the order of what was sent, whatever is best.
    assert said["data"] == [
        {"index": 0, "object": "score", "score": 0.25},
        {"index": 1, "object": "score", "score": 0.9},
    ]
    assert said["object"] == "list"
    pairs = post("/score", {first: ["p", "q"], second: ["a", "b"]})
    assert list(pairs.call.items) == [{"query": "p", "documents": ["a"]}, {"query": "q", "documents": ["b"]}]
    ranked = [[{"index": 0, "score": 0.5}], [{"index": 0, "score": 0.75}]]
    assert [each["score"] for each in pairs.said(ranked, "ranks")["data"]] == [0.5, 0.75]
    alone = post("/score", {first: "q", second: "a", "use_activation": False})
    assert alone.call.options == {"function_to_apply": "none"}


@pytest.mark.parametrize(
    "body",
    [
        {"queries": ["a", "b"], "documents": ["c", "d", "e"]},
        {"queries": "a"},
        {"queries": "a", "text_1": "b", "documents": "c"},
    ],
)
def test_score_refuses(body: Any) -> None:
    assert refused("/score", body).kind == "invalid"
    assert refused("/score", {"queries": "a", "documents": []}).kind == "empty"


def test_classify_has_probabilities_by_number() -> None:
    asking = post("/classify", {"input": ["a"], "truncate_prompt_tokens": 16})
    assert (asking.call.overflow, asking.call.options) == ("truncate", {"max_length": 16})
    (row,) = asking.said([LABELS], "labels")["data"]
    assert (row["label"], row["num_classes"]) == ("good", 3)
    assert np.allclose(row["probs"], [0.05, 0.75, 0.2])


@pytest.mark.parametrize(
    ("model", "fields", "task", "options"),
    [
        ("vectors", {}, "embed", {"normalize": True}),
        ("vectors", {"use_activation": False, "dimensions": 4}, "embed", {"normalize": False, "dimensions": 4}),
        ("vectors", {"task": "token_embed"}, "embed-tokens", {"normalize": True}),
        ("tags", {}, "tag-tokens", {}),
        ("tags", {"task": "token_classify", "use_activation": False}, "tag-tokens", {"function_to_apply": "none"}),
        ("labels", {}, "classify", {}),
        ("labels", {"use_activation": False}, "classify", {"function_to_apply": "none"}),
        ("labels", {"task": "embed"}, "embed", {"normalize": True}),
    ],
)
def test_pooling_by_task_or_model(model: str, fields: Any, task: str, options: Any) -> None:
    call = post("/pooling", {"input": "a", "model": model, **fields}).call
    assert (call.task, dict(call.options)) == (task, options)


def test_pooling_of_a_classifier_and_of_tokens() -> None:
    said = post("/pooling", {"input": "a", "model": "labels"}).said([LABELS], "labels")
    assert np.allclose(said["data"][0]["data"], [0.05, 0.75, 0.2])
    said = post("/pooling", {"input": "a", "task": "token_embed"}).said([VECTORS])
    assert said["data"] == [{"index": 0, "object": "pooling", "data": VECTORS.tolist()}]
    said = post("/pooling", {"input": ["a", "b"], "task": "token_classify"}).said([VECTORS[:1], VECTORS], "tags")
    assert [each["data"] for each in said["data"]] == [VECTORS[:1].tolist(), VECTORS.tolist()]
    assert refused("/pooling", {"input": "a", "task": "token_embed", "dimensions": 4}).param == "dimensions"


def test_long_texts_are_cut_at_either_side() -> None:
    for fields, overflow in (
        ({}, "error"),
        ({"truncation_side": "left"}, "error"),  # nothing is cut unless a length is given
        ({"truncate_prompt_tokens": -1}, "truncate"),
        ({"truncate_prompt_tokens": 8, "truncation_side": "right"}, "truncate"),
        ({"truncate_prompt_tokens": 8, "truncation_side": "left"}, "truncate-left"),
    ):
        for path in ("/pooling", "/classify", "/v1/embeddings"):
            assert post(path, {"input": "a", **fields}).call.overflow == overflow, (path, fields)


@pytest.mark.parametrize("order", ["native", "little", "big"])
@pytest.mark.parametrize(("kind", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_pooling_in_bytes_of_all_kinds(kind: str, size: int, order: str) -> None:
    body = {"input": ["a", "b"], "embed_dtype": kind, "endianness": order}
    raw = post("/pooling", {**body, "encoding_format": "bytes"}).reply(VECTORS)
    data = json.loads(raw.headers["metadata"])["data"]
    assert [(each["start"], each["end"]) for each in data] == [(0, 8 * size), (8 * size, 16 * size)]
    assert {(each["embed_dtype"], each["endianness"]) for each in data} == {(kind, order)}
    sign = ">" if order == "big" else "<"
    if kind == "bfloat16":
        wide = np.frombuffer(raw.body, f"{sign}u2").astype(np.uint32) << 16
        found = wide.astype(np.uint32).view(np.float32)
    else:
        found = np.frombuffer(raw.body, f"{sign}f{size}").astype(np.float32)
    assert np.array_equal(found.reshape(2, 8), VECTORS)  # all of them have few bits
    said = post("/pooling", {**body, "encoding_format": "base64"}).said(VECTORS)
    assert b"".join(base64.b64decode(each["data"]) for each in said["data"]) == raw.body


def test_bfloat16_is_rounded_to_the_nearest() -> None:
    vector = np.array([1 / 3, -1e-3, 65504.0, 1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    body = {"input": ["a"], "embed_dtype": "bfloat16", "encoding_format": "bytes_only"}
    raw = post("/pooling", body).reply([vector]).body
    found = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).astype(np.uint32).view(np.float32)
    assert np.all(np.abs(found - vector) <= np.abs(vector) * 2**-8)
    assert found[3:].tolist() == [1.0, 1 + 4 * 2**-8]  # halves go to the even neighbor
