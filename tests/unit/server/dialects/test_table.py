"""The routes together: who has which path, and what their bodies are called."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from bertkit.server.dialects.route import STATUS, dumps
from bertkit.server.dialects.table import ALL, routes
from bertkit.server.failures import Failure
from bertkit.server.openapi import describe
from dialect_helpers import post, refused


def test_shared_paths_are_told_apart_by_keys() -> None:
    shared = {place: found for place, found in routes().items() if len(found) > 1}
    assert {path for _, path in shared} == {"/rerank", "/v1/rerank", "/v1/embed", "/v1/classify", "/classify"}
    for found in shared.values():
        for (_, one, keys), (_, other, its) in combinations(found, 2):
            assert keys
            assert its
            assert not keys & its
            assert one.body is not None
            assert other.body is not None
            # A key that chooses a route is one of its fields.
            assert keys <= set(one.body.model_fields)
            assert its <= set(other.body.model_fields)


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("/rerank", {"query": "q", "texts": ["a"]}, "text-embeddings-inference"),
        ("/rerank", {"query": "q", "documents": ["a"]}, "jina"),
        ("/v1/rerank", {"query": "q", "documents": ["a"]}, "jina"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_n": 1}, "jina"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "top_k": 1}, "bertkit"),
        ("/v1/rerank", {"query": "q", "documents": ["a"], "wait": 3}, "bertkit"),
        ("/v1/embed", {"input": "a"}, "bertkit"),
        ("/v1/embed", {"texts": ["a"]}, "cohere"),
        ("/v1/classify", {"input": "a"}, "bertkit"),
        ("/v1/classify", {"text": "a"}, "lemonade"),
        ("/classify", {"input": ["a"]}, "vllm"),
        ("/classify", {"text": "a"}, "lemonade"),
    ],
)
def test_a_key_chooses_the_dialect(path: str, body: dict[str, object], name: str) -> None:
    assert post(path, body).dialect.name == name


def test_the_description_names_every_body_once() -> None:
    document = describe(routes(), mcp=True)
    assert not [name for name in document["components"]["schemas"] if "__" in name]
    assert json.loads(dumps(document))["paths"]["/models/{model}"]["post"]["summary"]
    for (method, path), found in routes().items():
        for dialect, route, _ in found:
            assert route.summary, f"{dialect.name} {path}"
            assert (route.body is None) == (method == "GET"), path


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("kind", STATUS)
def test_every_failure_has_a_status_and_a_body_in_every_dialect(dialect: object, kind: str) -> None:
    reply = dialect.refusal(Failure(kind, "a cause", param="input", retry_after=0.25))  # type: ignore[attr-defined,arg-type]
    assert 400 <= reply.status < 600
    assert reply.headers["retry-after-ms"] == "250"
    if reply.body:
        said = json.loads(reply.body)
        fixed = kind == "overloaded" and said == {"error": "Model is overloaded", "error_type": "Overloaded"}
        assert fixed or "a cause" in reply.body.decode()


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"input": 3}, "input"),
        ("/v1/embeddings", {"model": "a"}, "input"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v2/embed", {"texts": ["a"], "embedding_types": ["int4"]}, "embedding_types"),
        ("/score", {"queries": "a", "documents": 3}, "documents"),
        ("/api/embed", {"input": "a"}, "model"),
        ("/models/tags", {"inputs": "a", "parameters": {"aggregation_strategy": "most"}}, "parameters"),
        ("/models/nli", {"inputs": "a", "parameters": {"candidate_labels": []}}, "parameters"),
    ],
)
def test_a_wrong_field_is_named(path: str, body: dict[str, object], param: str) -> None:
    failure = refused(path, body)
    assert failure.kind == "invalid"
    assert failure.param == param
    assert f"`{param}`" in failure.message
