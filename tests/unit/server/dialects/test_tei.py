"""text-embeddings-inference to the letter: bodies, answers, messages, statuses, headers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertkit.server.calls import Answer, Times
from bertkit.server.dialects.tei import DIALECT
from bertkit.server.failures import Failure
from dialect_helpers import LABELS, MODELS, RANKED, VECTORS, ask, get, post, refused

CUT_LEFT = "truncate-left"


@pytest.mark.parametrize(
    ("body", "items", "overflow", "options"),
    [
        ({"inputs": "a"}, ["a"], "truncate", {"normalize": True}),
        ({"inputs": ["a", "b"], "truncate": None}, ["a", "b"], "truncate", {"normalize": True}),
        ({"inputs": "a", "truncate": False, "normalize": False}, ["a"], "error", {"normalize": False}),
        ({"inputs": "a", "dimensions": 4}, ["a"], "truncate", {"normalize": True, "dimensions": 4}),
        (
            {"inputs": "a", "prompt_name": "query", "unknown": 1},
            ["a"],
            "truncate",
            {"normalize": True, "prompt_name": "query"},
        ),
        ({"inputs": [5, 6]}, [[5, 6]], "truncate", {"normalize": True}),
        ({"inputs": [[5, 6], [7]]}, [[5, 6], [7]], "truncate", {"normalize": True}),
        ({"inputs": "a", "truncate": True, "truncation_direction": "Left"}, ["a"], CUT_LEFT, {"normalize": True}),
        ({"inputs": "a", "truncation_direction": "left"}, ["a"], CUT_LEFT, {"normalize": True}),
        ({"inputs": "a", "truncate": False, "truncation_direction": "left"}, ["a"], "error", {"normalize": True}),
        ({"inputs": "a", "truncate": True, "truncation_direction": "right"}, ["a"], "truncate", {"normalize": True}),
    ],
)
def test_embed_reads(body: Any, items: Any, overflow: str, options: Any) -> None:
    call = post("/embed", body).call
    assert (call.task, list(call.items), call.overflow, dict(call.options)) == ("embed", items, overflow, options)
    assert call.model is None


def test_one_text_has_a_list_of_one_vector() -> None:
    assert post("/embed", {"inputs": "a"}).said(VECTORS[:1]) == [VECTORS[0].tolist()]


def test_embed_all_and_sparse() -> None:
    asking = post("/embed_all", {"inputs": ["a"]})
    assert asking.call.task == "embed-tokens"
    assert asking.said([VECTORS]) == [VECTORS.tolist()]
    asking = post("/embed_sparse", {"inputs": ["a", "b"]})
    found = [SimpleNamespace(ids=np.array([2, 7], np.int32), weights=np.array([0.5, 1.5], np.float32))] * 2
    assert asking.call.task == "sparse"
    assert asking.said(found) == [[{"index": 2, "value": 0.5}, {"index": 7, "value": 1.5}]] * 2


@pytest.mark.parametrize(
    ("inputs", "items", "alone"),
    [
        ("a", ["a"], True),
        (["a"], ["a"], True),
        (["a", "b"], [("a", "b")], True),
        ([["a"], ["b", "c"]], ["a", ("b", "c")], False),
        ([["a"]], ["a"], False),
    ],
)
def test_predict_reads_texts_pairs_and_batches(inputs: Any, items: Any, alone: bool) -> None:
    asking = post("/predict", {"inputs": inputs})
    assert list(asking.call.items) == items
    said = asking.said([LABELS] * len(items), "labels")
    assert said == (LABELS if alone else [LABELS] * len(items))
    assert post("/predict", {"inputs": inputs, "raw_scores": True}).call.options == {"function_to_apply": "none"}


@pytest.mark.parametrize("inputs", [[], ["a", "b", "c"], [[]], [["a", "b", "c"]]])
def test_predict_refuses_other_shapes(inputs: Any) -> None:
    failure = refused("/predict", {"inputs": inputs})
    assert failure.kind == "invalid"
    assert "batch of mixed strings and pairs" in failure.message


def test_rerank() -> None:
    asking = post("/rerank", {"query": "q", "texts": ["a", "b"]})
    assert list(asking.call.items) == [{"query": "q", "documents": ["a", "b"]}]
    assert asking.call.options == {"function_to_apply": "sigmoid"}
    assert asking.said([RANKED], "ranks") == [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.25}]
    asking = post("/rerank", {"query": "q", "texts": ["a", "b"], "return_text": True, "raw_scores": True})
    assert asking.call.options == {"function_to_apply": "none"}
    assert asking.reply([RANKED], "ranks").body == (
        b'[{"index":1,"text":"b","score":0.9},{"index":0,"text":"a","score":0.25}]'
    )


def test_similarity_tokenize_decode() -> None:
    inputs = {"source_sentence": "a", "sentences": ["b", "c"]}
    asking = post("/similarity", {"inputs": inputs, "parameters": {"truncate": False}})
    assert (asking.call.task, asking.call.overflow) == ("similarity", "error")
    assert asking.said([[0.5, 0.25]]) == [0.5, 0.25]
    pieces = [{"id": 2, "text": "[CLS]", "special": True, "start": None, "stop": None}]
    asking = post("/tokenize", {"inputs": "a", "add_special_tokens": False})
    assert asking.call.options == {"add_special_tokens": False}
    assert asking.said([pieces]) == [pieces]
    assert list(post("/decode", {"ids": [1, 2]}).call.items) == [[1, 2]]
    assert list(post("/decode", {"ids": [[1, 2], [3]]}).call.items) == [[1, 2], [3]]
    assert post("/decode", {"ids": [1, 2]}).said(["a"]) == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/embed", {"inputs": []}, "`inputs` cannot be empty"),
        ("/rerank", {"query": "q", "texts": []}, "`texts` cannot be empty"),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}, "`sentences` cannot be empty"),
        ("/decode", {"ids": []}, "`input_ids` cannot be empty"),
    ],
)
def test_empty_lists(path: str, body: Any, message: str) -> None:
    reply = DIALECT.refusal(refused(path, body))
    assert (reply.status, json.loads(reply.body)) == (400, {"error": message, "error_type": "Empty"})


@pytest.mark.parametrize(
    ("failure", "status", "kind", "message"),
    [
        (
            Failure("too_many", "x", details={"num_items": 33, "limit": 32}),
            422,
            "Validation",
            "batch size 33 > maximum allowed batch size 32",
        ),
        (
            Failure("too_long", "x", details={"num_tokens": 534, "limit": 512}),
            422,
            "Validation",
            "Input validation error: `inputs` must have less than 512 tokens. Given: 534",
        ),
        (
            Failure("empty", "input 0 has no text"),
            400,
            "Empty",
            "Input validation error: `inputs` cannot be empty (input 0 has no text)",
        ),
        (Failure("invalid", "`dimensions` should be positive"), 422, "Validation", "`dimensions` should be positive"),
        (Failure("wrong_task", "no such head"), 424, "Backend", "no such head"),
        (Failure("damaged_model", "score is NaN"), 424, "Backend", "score is NaN"),
        (Failure("overloaded", "Model is overloaded"), 429, "Overloaded", "Model is overloaded"),
        (Failure("not_ready", "loading"), 503, "Unhealthy", "loading"),
    ],
    ids=lambda value: value.kind if isinstance(value, Failure) else None,
)
def test_failures(failure: Failure, status: int, kind: str, message: str) -> None:
    reply = DIALECT.refusal(failure)
    assert (reply.status, json.loads(reply.body)) == (status, {"error": message, "error_type": kind})


def test_a_wrong_key_has_no_body() -> None:
    reply = DIALECT.refusal(Failure("unauthorized", "a key is needed"))
    assert (reply.status, reply.body, reply.headers["www-authenticate"]) == (401, b"", "Bearer")
    assert refused("/embed", {"inputs": "a", "dimensions": 0}).message == "`dimensions` should be positive"


def test_headers_of_a_good_answer() -> None:
    times = Times(queue=0.0012, compute=0.0101, total=0.0124)
    answer = Answer(
        results=VECTORS, model=MODELS["vectors"], tokens=[5, 6], truncated=[False, False], characters=31, times=times
    )
    headers = DIALECT.headers(answer)
    assert {name: headers[f"x-{name}"] for name in ("compute-characters", "compute-tokens", "queue-time")} == {
        "compute-characters": "31",
        "compute-tokens": "11",
        "queue-time": "1",
    }
    assert (headers["x-total-time"], headers["x-inference-time"]) == ("12", "10")
    assert all(value.isdigit() for name, value in headers.items() if name != "x-compute-type")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("vectors", {"embedding": {"pooling": "mean"}}),
        ("sparse", {"embedding": {"pooling": "splade"}}),
        (
            "labels",
            {
                "classifier": {
                    "id2label": {"0": "bad", "1": "good", "2": "dull"},
                    "label2id": {"bad": 0, "good": 1, "dull": 2},
                }
            },
        ),
        ("ranks", {"reranker": {"id2label": {}, "label2id": {}}}),
    ],
)
def test_info(name: str, kind: Any) -> None:
    said = json.loads(ask("GET", "/info").seen(name).body)
    assert said["model_type"] == kind
    assert (said["model_id"], said["max_input_length"], said["max_client_batch_size"]) == (name, 512, 32)
    assert said == json.loads(get(f"/models/{name}/info").body)
