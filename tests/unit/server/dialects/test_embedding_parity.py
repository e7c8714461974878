"""One answer in every dialect that makes vectors: the same numbers, order and count of tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dialect_helpers import VECTORS, post

TEXTS = ["one text", "another"]


def unpacked(given: str) -> Any:
    return np.frombuffer(base64.b64decode(given), "<f4")


#: Path, body, where the vectors stand, and where the count of tokens.
ALL: list[tuple[str, Any, Callable[[Any], Any], Callable[[Any], int] | None]] = [
    (
        "/v1/embed",
        {"input": TEXTS},
        lambda said: said["results"],
        lambda said: said["usage"]["tokens"],
    ),
    (
        "/v1/embeddings",
        {"input": TEXTS},
        lambda said: [each["embedding"] for each in said["data"]],
        lambda said: said["usage"]["total_tokens"],
    ),
    (
        "/v1/embeddings",
        {"input": TEXTS, "encoding_format": "base64"},
        lambda said: [unpacked(each["embedding"]) for each in said["data"]],
        lambda said: said["usage"]["prompt_tokens"],
    ),
    ("/embed", {"inputs": TEXTS}, lambda said: said, None),
    ("/models/vectors/embed", {"inputs": TEXTS}, lambda said: said, None),
    ("/models/vectors", {"inputs": TEXTS}, lambda said: said, None),
    ("/models/vectors/pipeline/feature-extraction", {"inputs": TEXTS}, lambda said: said, None),
    ("/", {"inputs": TEXTS}, lambda said: said, None),
    ("/invocations", {"inputs": TEXTS}, lambda said: said, None),
    (
        "/vertex",
        {"instances": [{"inputs": text} for text in TEXTS]},
        lambda said: [vector for each in said["predictions"] for vector in each],
        None,
    ),
    (
        "/v1/embed",
        {"texts": TEXTS},
        lambda said: said["embeddings"],
        lambda said: said["meta"]["tokens"]["input_tokens"],
    ),
    (
        "/v2/embed",
        {"texts": TEXTS, "model": "vectors", "input_type": "search_query"},
        lambda said: said["embeddings"]["float"],
        lambda said: said["meta"]["billed_units"]["input_tokens"],
    ),
    (
        "/v2/embed",
        {"inputs": [{"content": [{"type": "text", "text": text}]} for text in TEXTS], "embedding_types": ["base64"]},
        lambda said: list(map(unpacked, said["embeddings"]["base64"])),
        lambda said: said["meta"]["billed_units"]["input_tokens"],
    ),
    (
        "/pooling",
        {"input": TEXTS, "task": "embed"},
        lambda said: [each["data"] for each in said["data"]],
        lambda said: said["usage"]["total_tokens"],
    ),
    (
        "/infinity/embeddings",
        {"input": TEXTS, "model": "vectors"},
        lambda said: [each["embedding"] for each in said["data"]],
        lambda said: said["usage"]["prompt_tokens"],
    ),
    (
        "/api/embed",
        {"model": "vectors:latest", "input": TEXTS},
        lambda said: said["embeddings"],
        lambda said: said["prompt_eval_count"],
    ),
]


@pytest.mark.parametrize(("path", "body", "vectors", "tokens"), ALL, ids=[str(each[:2])[:60] for each in ALL])
def test_all_say_the_same(path: str, body: Any, vectors: Any, tokens: Any) -> None:
    asking = post(path, body)
    assert asking.call.task == "embed"
    assert list(asking.call.items) == TEXTS
    said = asking.said(VECTORS)
    assert np.array_equal(np.array(vectors(said), np.float32), VECTORS)
    if tokens is not None:
        assert tokens(said) == 10
    if path != "/v1/embed" or "texts" in body:
        assert asking.call.options["normalize"] is True


def test_older_ollama_clients_get_one_vector_as_the_model_makes_it() -> None:
    asking = post("/api/embeddings", {"model": "vectors", "prompt": "one text"})
    assert asking.call.options == {}
    assert asking.said(VECTORS[:1]) == {"embedding": VECTORS[0].tolist()}
