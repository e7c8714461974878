"""The dialects over HTTP: one answer in all of them, what they refuse, and stock clients."""

from __future__ import annotations

import base64
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.server.batcher import Batcher
from server_helpers import ask, save_models, serving

CLIENTS = Path(__file__).parents[2] / "clients"
TEXTS = ["the film was good", "a bad film"]
LONG = "film " * 300

#: Path, the key of the texts, further fields, and where the vectors stand.
VECTORS: list[tuple[str, str, Any, Callable[[Any], Any]]] = [
    ("/v1/embed", "input", {"model": "vectors", "normalize": True}, lambda said: said["results"]),
    ("/v1/embeddings", "input", {"model": "vectors"}, lambda said: [each["embedding"] for each in said["data"]]),
    ("/models/vectors/embed", "inputs", {}, lambda said: said),
    ("/models/vectors", "inputs", {"parameters": {}}, lambda said: said),
    ("/v1/embed", "texts", {"model": "vectors"}, lambda said: said["embeddings"]),
    ("/v2/embed", "texts", {"model": "vectors"}, lambda said: said["embeddings"]["float"]),
    (
        "/pooling",
        "input",
        {"model": "vectors", "encoding_format": "base64"},
        lambda said: [np.frombuffer(base64.b64decode(each["data"]), "<f4") for each in said["data"]],
    ),
    ("/infinity/embeddings", "input", {"model": "vectors"}, lambda said: [each["embedding"] for each in said["data"]]),
    ("/api/embed", "input", {"model": "vectors:latest"}, lambda said: said["embeddings"]),
]


def test_all_dialects_give_the_same_vectors(server: Any) -> None:
    found = []
    for path, key, fields, vectors in VECTORS:
        reply = ask(server.address, path, {key: TEXTS, **fields})
        assert reply.status == 200, reply.body
        found.append(np.array(vectors(reply.body), np.float32))
    assert found[0].shape == (2, 32)
    for other in found[1:]:
        assert np.abs(other - found[0]).max() < 1e-5


def test_without_a_name_the_model_is_asked_whose_own_task_it_is(server: Any) -> None:
    # The first model of the server is a classifier, which would make vectors, too.
    for path, body, model in (
        ("/v1/embeddings", {"input": "a"}, "vectors"),
        ("/v1/embed", {"input": "a"}, "vectors"),
        ("/classify", {"input": "a"}, "labels"),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, "ranks"),
    ):
        assert ask(server.address, path, body).body["model"] == model


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/rerank", {"query": "a", "texts": ["b"], "documents": ["b"]}, 422),
        ("/rerank", {"query": "a"}, 422),
        ("/rerank", {"query": "a", "texts": []}, 400),
        ("/v1/classify", {"input": "a", "text": "b"}, 422),
        ("/v1/embeddings", {"input": LONG, "model": "vectors"}, 400),
        ("/v1/embeddings", {"input": " ", "model": "vectors"}, 400),
        ("/v1/embeddings", {"input": "a", "model": "other"}, 404),
        ("/v1/embeddings", {"input": ["a"] * 17, "model": "vectors"}, 400),
        ("/v2/embed", {"texts": [LONG], "model": "vectors", "truncate": "NONE"}, 400),
        ("/v2/embed", {"texts": [LONG], "model": "vectors"}, 200),
        ("/models/vectors/embed", {"inputs": LONG}, 200),
        ("/models/vectors/embed", {"inputs": LONG, "truncate": False}, 422),
        ("/models/vectors/embed", {"inputs": ["a"] * 17}, 422),
        ("/models/vectors/embed", {"inputs": ""}, 400),
        ("/models/vectors/rerank", {"query": "a", "texts": ["b"]}, 424),
        ("/models/other", {"inputs": "a"}, 404),
        ("/models/other/health", None, 404),
        ("/models/tags", {"inputs": 3}, 422),
        ("/infinity/embeddings", {"input": ["a"], "model": "other"}, 400),
        ("/api/embed", {"input": ["a"], "model": "other"}, 404),
        ("/api/embed", {"input": LONG, "model": "vectors", "truncate": False}, 400),
        ("/score", {"queries": ["a", "b"], "documents": ["c", "d", "e"]}, 400),
        ("/vertex", {"instances": [{"inputs": "a"}, {"inputs": 3}]}, 422),
        ("/invocations", {}, 422),
        ("/", {"inputs": "a"}, 200),
        ("/embed", [1], 422),
        ("/embed", b"{", 400),
    ],
)
def test_statuses(server: Any, path: str, body: Any, status: int) -> None:
    reply = ask(server.address, path, body)
    assert reply.status == status, reply.body
    if status != 200:
        assert any(word in str(reply.body) for word in ("error", "message", "detail"))


def test_headers_of_text_embeddings_inference(server: Any) -> None:
    reply = ask(server.address, "/models/vectors/embed", {"inputs": TEXTS})
    assert reply.headers["x-compute-characters"] == str(sum(map(len, TEXTS)))
    assert int(reply.headers["x-compute-tokens"]) > 4
    parts = [int(reply.headers[f"x-{name}-time"]) for name in ("queue", "tokenization", "inference")]
    assert abs(int(reply.headers["x-total-time"]) - sum(parts)) <= 2  # each is rounded
    long = ask(server.address, "/models/vectors/embed", {"inputs": ["film " * 20_000]})
    assert int(long.headers["x-tokenization-time"]) > 0


OVER = "Input validation error: `dimensions` should be smaller than the maximum embedding dimension."


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (
            "/models/vectors/rerank",
            {"query": "a", "texts": ["b"]},
            (424, "Backend error: model is not a re-ranker model", "Backend"),
        ),
        (
            "/models/vectors/predict",
            {"inputs": "a"},
            (424, "Backend error: Model is not a classifier model", "Backend"),
        ),
        ("/models/vectors/embed", {"inputs": "a", "dimensions": 33}, (422, OVER, "Validation")),
        (
            "/models/vectors/embed",
            {"inputs": "a", "dimensions": 0},
            (422, "`dimensions` should be positive", "Validation"),
        ),
    ],
)
def test_messages_of_text_embeddings_inference(
    server: Any, path: str, body: Any, expected: tuple[int, str, str]
) -> None:
    """Word for word, through the service: a request for what the model does is answered."""
    reply = ask(server.address, path, body)
    assert (reply.status, reply.body["error"], reply.body["error_type"]) == expected
    assert ask(server.address, "/models/vectors/embed", {"inputs": "a", "dimensions": 32}).status == 200
    assert ask(server.address, "/models/ranks/rerank", {"query": "a", "texts": ["b"]}).status == 200


def test_an_overloaded_model_in_the_words_of_text_embeddings_inference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed, may_go_on = Batcher._computed, threading.Event()
    with (
        serving(*save_models(tmp_path, ("vectors",)), max_requests=1, max_batch_tokens=16) as (_, address),
        ThreadPoolExecutor(8) as pool,
    ):
        monkeypatch.setattr(Batcher, "_computed", lambda self, batch: may_go_on.wait(60) and computed(self, batch))
        sent = [pool.submit(ask, address, "/embed", {"inputs": "a good film"}) for _ in range(8)]
        refused = next(as_completed(sent, timeout=60)).result()  # nothing is computed meanwhile
        assert (refused.status, refused.body) == (
            429,
            {"error": "Model is overloaded", "error_type": "Overloaded"},
        )
        assert int(refused.headers["retry-after"]) >= 1
        may_go_on.set()


def test_prompts_that_a_model_lacks_change_nothing(server: Any) -> None:
    said = [
        ask(server.address, "/v2/embed", {"texts": TEXTS, "model": "vectors", "input_type": kind}).body["embeddings"]
        for kind in ("search_query", "search_document", "no such thing")
    ]
    assert said[0] == said[1] == said[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["openai", "huggingface_hub", "ollama", pytest.param("cohere", marks=pytest.mark.campaign)]
)
def test_stock_clients(server: Any, name: str) -> None:
    pytest.importorskip(name)
    program = CLIENTS / f"{name.removesuffix('_hub')}_client.py"
    done = subprocess.run([sys.executable, program, server.address], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_names_the_clients_in_the_versions_that_are_tested() -> None:
    page = (CLIENTS.parents[1] / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
    names = {
        name: value for name, value in runpy.run_path(str(CLIENTS / "run.py")).items() if name in ("PACKAGES", "NPM")
    }
    asked = " ".join(given for each in names.values() for given in each.values()).split()
    pinned = [" ".join(re.split("==|(?<=.)@(?=[0-9])", given)) for given in asked if re.search("[=@][0-9]", given)]
    assert len(pinned) > 15
    assert [each for each in pinned if each not in page] == []
    programs = {file.name.removesuffix("_client.py") for file in CLIENTS.glob("*_client.py")}
    assert programs == names["PACKAGES"].keys(), "each is run"
    assert {f"npm/{file.stem}" for file in (CLIENTS / "npm").glob("*.mjs")} - {"npm/client_helpers"} == names[
        "NPM"
    ].keys()


@pytest.mark.campaign
def test_all_clients_in_environments_of_their_own() -> None:
    """Those of PyPI and npm in the versions that ``tests/clients/run.py`` names, and schemathesis."""
    done = subprocess.run([sys.executable, CLIENTS / "run.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
