"""OpenAI's shapes, with the fields that Jina and vLLM add."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bertkit.server.dialects.openai import DIALECT
from bertkit.server.failures import Failure
from dialect_helpers import LABELS, VECTORS, get, post, refused


def test_a_list_of_embeddings() -> None:
    asking = post("/v1/embeddings", {"input": ["a", "b"], "model": "vectors", "user": "u"})
    assert (asking.call.model, asking.call.overflow) == ("vectors", "error")
    assert asking.said(VECTORS) == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": VECTORS[0].tolist()},
            {"object": "embedding", "index": 1, "embedding": VECTORS[1].tolist()},
        ],
        "model": "vectors",
        "usage": {"prompt_tokens": 10, "total_tokens": 10},
    }


@pytest.mark.parametrize(
    ("fields", "options", "overflow"),
    [
        ({"dimensions": 4}, {"normalize": True, "dimensions": 4}, "error"),
        ({"normalized": False, "truncate": True}, {"normalize": False}, "truncate"),
        ({"task": "retrieval.query"}, {"normalize": True, "prompts": ("retrieval.query", "query")}, "error"),
        ({"task": "text-matching"}, {"normalize": True, "prompts": ("text-matching",)}, "error"),
        ({"truncate_prompt_tokens": -1}, {"normalize": True}, "truncate"),
        ({"truncate_prompt_tokens": 16}, {"normalize": True, "max_length": 16}, "truncate"),
    ],
)
def test_fields_of_jina_and_vllm(fields: Any, options: Any, overflow: str) -> None:
    call = post("/v1/embeddings", {"input": "a", **fields}).call
    assert (dict(call.options), call.overflow) == (options, overflow)


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ("a", ["a"]),
        ([{"text": "a"}, "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
    ],
)
def test_inputs(given: Any, items: Any) -> None:
    assert list(post("/v1/embeddings", {"input": given}).call.items) == items


def test_vectors_in_fewer_bits_and_as_bytes() -> None:
    asking = post("/v1/embeddings", {"input": ["a"], "embedding_type": ["ubinary"]})
    assert asking.said(VECTORS[:1])["data"][0]["embedding"] == [0b10010110]
    asking = post("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "bytes"})
    reply = asking.reply(VECTORS)
    assert reply.media_type == "application/octet-stream"
    assert np.array_equal(np.frombuffer(reply.body, "<f4").reshape(2, 8), VECTORS)
    said = json.loads(reply.headers["metadata"])
    assert [(each["start"], each["end"], each["shape"]) for each in said["data"]] == [(0, 32, [8]), (32, 64, [8])]
    assert said["usage"]["total_tokens"] == 10
    asking = post("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "bytes_only"})
    assert asking.reply(VECTORS).headers == {}
    with pytest.raises(Failure, match="bytes_only"):
        post("/v1/embeddings", {"input": "a", "encoding_format": "bytes"}).reply([VECTORS[0]] * 257)


def test_texts_that_are_read_as_one() -> None:
    asking = post("/v1/embeddings", {"input": ["a", {"text": "b"}], "late_chunking": True, "dimensions": 2})
    assert (asking.call.task, asking.call.items) == ("embed-chunks", [{"parts": ["a", "b"]}])
    assert asking.call.options == {"normalize": True, "dimensions": 2}
    chunks = [{"start": 0, "end": 1, "num_tokens": 1, "vector": vector} for vector in VECTORS[:2]]
    said = asking.said([chunks])
    assert [one["embedding"] for one in said["data"]] == [vector.tolist() for vector in VECTORS[:2]]


def test_what_is_not_done_is_refused() -> None:
    assert refused("/v1/embeddings", {"input": [[5, 6]], "late_chunking": True}).param == "late_chunking"
    assert refused("/v1/embeddings", {"input": []}).kind == "empty"
    assert refused("/v1/embeddings", {"input": "a", "embedding_type": ["float", "binary"]}).param == "embedding_type"


def test_models() -> None:
    one = {"id": "vectors", "object": "model", "created": 1_764_374_400, "owned_by": "bertkit"}
    assert json.loads(get("/v1/models/vectors").body) == one
    assert json.loads(get("/v1/models").body)["data"][0] == one


def test_moderations() -> None:
    asking = post("/v1/moderations", {"input": ["a", "b"], "model": "omni-moderation-latest"})
    assert (asking.call.task, asking.call.model, list(asking.call.items)) == ("classify", None, ["a", "b"])
    hate = [{"label": "hate", "score": 0.75}, {"label": "Not_Hate", "score": 0.25}]
    said = asking.said([hate, LABELS], "labels")
    assert said["results"][0] == {
        "flagged": True,
        "categories": {"hate": True},
        "category_scores": {"hate": 0.75},
        "category_applied_input_types": {"hate": ["text"]},
    }
    assert said["results"][1]["categories"] == {"dull": False, "bad": False}
    assert said["results"][1]["flagged"] is False
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert list(post("/v1/moderations", {"input": parts, "model": "labels"}).call.items) == ["a\nb"]
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert refused("/v1/moderations", {"input": image}).param == "input"


@pytest.mark.parametrize(
    ("labels", "categories"),
    [
        (("SAFE", "INJECTION"), {"INJECTION"}),
        (("toxic", "non-toxic"), {"toxic"}),
        (("nothate", "hate"), {"hate"}),
        (("LABEL_0", "LABEL_1"), {"LABEL_1"}),
        (("nonconsensual", "notorious", "neutral"), {"nonconsensual", "notorious"}),
    ],
)
def test_labels_that_mean_that_nothing_is_wrong(labels: tuple[str, ...], categories: set[str]) -> None:
    results = [[{"label": label, "score": 0.5} for label in labels]]
    said = post("/v1/moderations", {"input": "a"}).said(results, "labels")["results"][0]
    assert set(said["categories"]) == set(said["category_scores"]) == categories


@pytest.mark.parametrize(
    ("failure", "status", "kind", "code", "param"),
    [
        (Failure("unknown_model", "x"), 404, "invalid_request_error", "model_not_found", "model"),
        (Failure("invalid", "x", param="input"), 400, "invalid_request_error", None, "input"),
        (Failure("empty", "x"), 400, "invalid_request_error", None, None),
        (Failure("too_long", "x"), 400, "invalid_request_error", "context_length_exceeded", None),
        (Failure("wrong_task", "x", param="model"), 400, "invalid_request_error", "unsupported_model", "model"),
        (Failure("unauthorized", "x"), 401, "invalid_request_error", "invalid_api_key", None),
        (Failure("overloaded", "x", retry_after=1.5), 429, "requests", "rate_limit_exceeded", None),
        (Failure("not_ready", "x", retry_after=1.0), 503, "server_error", "not_ready", None),
        (Failure("fault", "x"), 500, "server_error", None, None),
    ],
    ids=lambda value: value.kind if isinstance(value, Failure) else None,
)
def test_failures(failure: Failure, status: int, kind: str, code: str | None, param: str | None) -> None:
    reply = DIALECT.refusal(failure)
    said = {"message": "x", "type": kind, "param": param, "code": code}
    assert (reply.status, json.loads(reply.body)) == (status, {"error": said})
    if failure.retry_after == 1.5:
        assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("2", "1500")


def test_a_long_text_is_told_its_length() -> None:
    failure = Failure("too_long", "x", details={"num_tokens": 600, "limit": 512})
    assert "512 tokens, and you requested 600" in json.loads(DIALECT.refusal(failure).body)["error"]["message"]
