"""Ollama, Infinity and Lemonade."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bertkit.server.dialects import infinity, ollama
from bertkit.server.failures import Failure
from dialect_helpers import LABELS, VECTORS, ask, get, post


def test_ollama_embeds() -> None:
    asking = post("/api/embed", {"model": "vectors:latest", "input": "a", "keep_alive": "5m", "options": {}})
    assert (asking.call.model, asking.call.overflow) == ("vectors", "truncate")
    assert asking.said(VECTORS[:1]) == {
        "model": "vectors:latest",
        "embeddings": [VECTORS[0].tolist()],
        "total_duration": 6_000_000,
        "load_duration": 0,
        "prompt_eval_count": 5,
    }
    exact = post("/api/embed", {"model": "vectors", "input": ["a"], "truncate": False, "dimensions": 4}).call
    assert (exact.overflow, exact.options) == ("error", {"normalize": True, "dimensions": 4})


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/embed", {"model": "vectors", "input": []}, {"model": "vectors", "embeddings": []}),
        ("/api/embed", {"model": "vectors", "input": ""}, {"model": "vectors", "embeddings": []}),
        ("/api/embeddings", {"model": "vectors:latest"}, {"embedding": []}),
    ],
)
def test_ollama_looks_at_a_model_for_nothing(path: str, body: Any, said: Any) -> None:
    assert json.loads(post(path, body).seen().body) == said


def test_ollama_lists_and_shows() -> None:
    for path in ("/api/tags", "/api/ps"):
        first = json.loads(get(path).body)["models"][0]
        assert (first["name"], first["model"], first["details"]["family"]) == ("vectors", "vectors", "bert")
        assert first["modified_at"] == "2025-11-29T00:00:00+00:00"
    shown = json.loads(post("/api/show", {"name": "vectors:latest"}).seen().body)
    assert shown["model_info"] == {
        "general.architecture": "bert",
        "bert.context_length": 512,
        "bert.embedding_length": 8,
        "bert.vocab_size": 100,
    }
    assert shown["capabilities"] == ["embedding"]
    assert json.loads(get("/api/version").body) == {"version": "0.2"}


def test_ollama_says_failures_as_one_text() -> None:
    reply = ollama.DIALECT.refusal(Failure("unknown_model", "no model"))
    assert (reply.status, json.loads(reply.body)) == (404, {"error": "no model"})
    assert ollama.DIALECT.refusal(Failure("too_long", "x")).status == 400


def test_infinity_embeds_and_classifies() -> None:
    asking = post("/infinity/embeddings", {"input": "a", "model": "default/not-specified", "dimensions": 0})
    assert (asking.call.model, asking.call.options) == (None, {"normalize": True})
    said = asking.said(VECTORS[:1])
    assert said["data"] == [{"object": "embedding", "index": 0, "embedding": VECTORS[0].tolist()}]
    assert said["id"].startswith("infinity-")
    said = post("/infinity/classify", {"input": ["a"], "model": "labels", "raw_scores": True}).said([LABELS], "labels")
    assert (said["object"], said["data"]) == ("classify", [LABELS])
    listed = json.loads(get("/infinity/models").body)["data"]
    assert [each["capabilities"] for each in listed if each["id"] == "ranks"] == [["rerank", "classify", "embed"]]
    assert "unix" in json.loads(get("/infinity/health").body)
    assert infinity.DIALECT.refusal(Failure("unknown_model", "x")).status == 400


@pytest.mark.parametrize("path", ["/classify", "/v1/classify", "/api/v1/classify"])
def test_lemonade(path: str) -> None:
    asking = post(path, {"text": "a", "top_k": 0})
    assert (list(asking.call.items), asking.call.options) == (["a"], {})
    assert asking.said([LABELS], "labels") == {"labels": {"good": 0.75, "dull": 0.2, "bad": 0.05}}
    assert post(path, {"text": "a", "top_k": 2}).call.options == {"top_k": 2}
    assert ask("POST", path, {"text": "a"}).dialect.name == "lemonade"
