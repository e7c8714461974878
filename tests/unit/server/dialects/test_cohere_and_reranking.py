"""Cohere's embed, and reranking for the clients of Cohere, Jina, vLLM and Infinity."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from bertkit.server.dialects.cohere import DIALECT
from bertkit.server.failures import Failure
from dialect_helpers import RANKED, VECTORS, post, refused

RERANK = {"model": "ranks", "query": "q", "documents": ["a", "b"]}


def test_all_kinds_of_numbers() -> None:
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    asking = post("/v2/embed", {"texts": ["a", "b"], "embedding_types": kinds})
    said = asking.said(VECTORS)["embeddings"]
    assert list(said) == kinds
    assert said["float"] == VECTORS.tolist()
    for name, shift in (("int8", 0), ("uint8", 128)):
        numbers = np.array(said[name], np.float32) - shift
        assert np.abs(numbers).max() == 127
        cosines = (numbers * VECTORS).sum(1) / np.linalg.norm(numbers, axis=1) / np.linalg.norm(VECTORS, axis=1)
        assert cosines.min() > 0.9999
    assert said["ubinary"] == [[0b10010110], [255]]
    assert said["binary"] == [[0b10010110 - 128], [127]]


def test_int8_of_nothing_is_nothing() -> None:
    asking = post("/v2/embed", {"texts": ["a"], "embedding_types": ["int8"]})
    assert asking.said([np.zeros(8, np.float32)])["embeddings"]["int8"] == [[0] * 8]


@pytest.mark.parametrize(
    ("fields", "options", "overflow"),
    [
        ({"input_type": "search_query"}, {"prompts": ("search_query", "query")}, "truncate"),
        ({"input_type": "search_document"}, {"prompts": ("search_document", "document", "passage")}, "truncate"),
        ({"input_type": "clustering"}, {"prompts": ("clustering",)}, "truncate"),
        ({"truncate": "NONE"}, {}, "error"),
        ({"truncate": "START"}, {}, "truncate-left"),
        ({"output_dimension": 4, "max_tokens": 16}, {"dimensions": 4, "max_length": 16}, "truncate"),
    ],
)
def test_what_embed_may_say(fields: Any, options: Any, overflow: str) -> None:
    for path in ("/v1/embed", "/v2/embed"):
        call = post(path, {"texts": ["a"], "model": "vectors", **fields}).call
        assert (dict(call.options), call.overflow) == ({"normalize": True, **options}, overflow)


def test_the_first_version_has_bare_vectors_unless_it_names_kinds() -> None:
    said = post("/v1/embed", {"texts": ["a"]}).said(VECTORS[:1])
    assert (said["response_type"], said["embeddings"]) == ("embeddings_floats", [VECTORS[0].tolist()])
    said = post("/v1/embed", {"texts": ["a"], "embedding_types": ["ubinary"]}).said(VECTORS[:1])
    assert (said["response_type"], said["embeddings"]) == ("embeddings_by_type", {"ubinary": [[0b10010110]]})
    assert said["texts"] == ["a"]
    assert said["meta"]["api_version"] == {"version": "1"}


def test_what_embed_refuses() -> None:
    assert refused("/v2/embed", {"images": ["data:"]}).param == "images"
    assert refused("/v2/embed", {"texts": []}).kind == "empty"
    assert refused("/v2/embed", {"inputs": [{"content": [{"type": "image_url"}]}]}).param == "inputs"
    reply = DIALECT.refusal(Failure("too_long", "x"))
    assert (reply.status, json.loads(reply.body)) == (400, {"message": "x"})


def test_rerank_of_the_second_version_has_no_documents() -> None:
    asking = post("/v2/rerank", {**RERANK, "top_n": 1})
    assert asking.call.options == {"top_k": 1, "function_to_apply": "sigmoid"}
    said = asking.said([RANKED], "ranks")
    assert said["results"] == [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.25}]
    asked = post("/v2/rerank", {**RERANK, "return_documents": True}).said([RANKED], "ranks")
    assert asked["results"][0]["document"] == {"text": "b"}


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_rerank_of_jina_and_the_first_version(path: str) -> None:
    said = post(path, RERANK).said([RANKED], "ranks")
    assert said["results"][0] == {"index": 1, "relevance_score": 0.9, "document": {"text": "b"}}
    assert (said["model"], said["usage"]) == ("ranks", {"prompt_tokens": 5, "total_tokens": 5})
    said = post(path, {**RERANK, "return_documents": False}).said([RANKED], "ranks")
    assert said["results"][0] == {"index": 1, "relevance_score": 0.9}


def test_documents_may_be_objects() -> None:
    objects = [{"text": "a"}, {"text": "b", "id": 3}]
    assert post("/v1/rerank", {**RERANK, "documents": objects}).call.items[0]["documents"] == ["a", "b"]
    titled = [{"title": "t", "body": "a"}, {"title": "u", "body": "b"}]
    asking = post("/v1/rerank", {**RERANK, "documents": titled, "rank_fields": ["title", "body"]})
    assert asking.call.items[0]["documents"] == ["t\na", "u\nb"]
    assert refused("/v1/rerank", {**RERANK, "documents": titled}).param == "documents"
    assert refused("/v1/rerank", {**RERANK, "documents": []}).kind == "empty"
    assert refused("/v1/rerank", {**RERANK, "top_n": 0}).param == "top_n"


def test_infinity_has_plain_documents() -> None:
    said = post("/infinity/rerank", {**RERANK, "return_documents": True, "raw_scores": True}).said([RANKED], "ranks")
    assert said["results"][0] == {"index": 1, "relevance_score": 0.9, "document": "b"}
    assert said["object"] == "rerank"
    assert "document" not in post("/infinity/rerank", RERANK).said([RANKED], "ranks")["results"][0]
    unnamed = post("/infinity/rerank", {**RERANK, "model": "default/not-specified"})
    assert unnamed.call.model is None
