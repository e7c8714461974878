"""Paths whose task is that of the model: POST /, /models/{model}, SageMaker's and Vertex's."""

from __future__ import annotations

from typing import Any

import pytest

from bertkit.server.dialects.route import Asked
from bertkit.server.dialects.tei import DIALECT as TEI
from bertkit.server.failures import Failure
from dialect_helpers import LABELS, MODELS, RANKED, VECTORS, get, post, refused

SPAN = {"entity_group": "PER", "score": 0.5, "word": "a", "start": 0, "end": 1}
ANSWER = {"answer": "a", "score": 0.5, "start": 0, "end": 1}
GUESSES = [{"sequence": "a b", "score": 0.5, "token": 7, "token_str": "b"}]
CHOICE = {"choice": "b", "index": 0, "score": 0.5, "scores": [0.5, 0.5]}
NEXT = {"label": "is_next", "score": 0.75, "is_next": 0.75}
ZERO_SHOT = {"labels": ["x", "y"], "scores": [0.75, 0.25]}
SHOWN = [{"label": "x", "score": 0.75}, {"label": "y", "score": 0.25}]
#: Model, body, task, result, and what is said of it.
ASKED: list[tuple[str, Any, str, Any, Any]] = [
    ("vectors", {"inputs": "a"}, "embed", VECTORS[0], [VECTORS[0].tolist()]),
    (
        "vectors",
        {"inputs": {"source_sentence": "a", "sentences": ["b"]}, "parameters": {}},
        "similarity",
        [0.5],
        [0.5],
    ),
    (
        "ranks",
        {"query": "q", "texts": ["a", "b"]},
        "rerank",
        RANKED,
        [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.25}],
    ),
    ("tags", {"inputs": "a", "parameters": {}}, "tag", [SPAN], [SPAN]),
    ("answers", {"inputs": {"question": "q", "context": "a"}}, "answer", ANSWER, ANSWER),
    ("masks", {"inputs": "a [MASK]"}, "fill-mask", GUESSES, GUESSES),
    ("choices", {"inputs": {"context": "a", "choices": ["b", "c"]}}, "choose", CHOICE, CHOICE),
    ("next", {"inputs": ["a", "b"]}, "next-sentence", NEXT, NEXT),
    ("nli", {"inputs": "a", "parameters": {"candidate_labels": ["x", "y"]}}, "zero-shot", ZERO_SHOT, SHOWN),
    ("nli", {"inputs": "a", "parameters": {"candidate_labels": "x, y"}}, "zero-shot", ZERO_SHOT, SHOWN),
    ("writer", {"inputs": "a"}, "generate", {"generated_text": "b"}, [{"generated_text": "b"}]),
]


@pytest.mark.parametrize(("model", "body", "task", "result", "said"), ASKED, ids=[f"{a[0]} {a[2]}" for a in ASKED])
@pytest.mark.parametrize("path", ["/", "/invocations", "/models/{}", "/vertex"])
def test_the_model_and_the_body_say_the_task(
    path: str, model: str, body: Any, task: str, result: Any, said: Any
) -> None:
    body = {"instances": [body]} if path == "/vertex" else body
    asking = post(path.format(model), body, first=model)
    assert (asking.call.task, asking.call.model) == (task, model)
    given = asking.said([result], model)
    assert (given["predictions"][0] if path == "/vertex" else given) == said


def test_labels_are_bare_but_at_models() -> None:
    for path in ("/", "/invocations"):
        assert post(path, {"inputs": "a"}, first="labels").said([LABELS], "labels") == LABELS
    assert post("/models/labels", {"inputs": "a"}).said([LABELS], "labels") == [LABELS]
    assert post("/vertex", {"instances": [{"inputs": "a"}]}, "labels").said([LABELS], "labels") == {
        "predictions": [LABELS]
    }


def test_instances_are_one_call() -> None:
    body = {"instances": [{"inputs": ["a", "b"]}, {"inputs": "c"}]}
    asking = post("/vertex", body)
    assert list(asking.call.items) == ["a", "b", "c"]
    one, two = VECTORS.tolist()
    assert asking.said([*VECTORS, VECTORS[0]]) == {"predictions": [[one, two], [one]]}
    several = {"instances": [{"inputs": "a"}, {"inputs": "b", "normalize": False}]}
    assert refused("/vertex", several).param == "instances"
    assert refused("/vertex", {"instances": []}).kind == "empty"
    common = post("/vertex", {"instances": [{"inputs": "a"}], "parameters": {"top_k": 2}}, first="masks")
    assert common.call.options == {"top_k": 2}


def test_what_the_task_does_not_read_is_refused() -> None:
    assert refused("/", {"query": "q"}, first="ranks").param == "texts"
    assert refused("/models/answers", {"inputs": "a"}).param == "inputs"
    assert refused("/models/vectors", {}).param == "inputs"
    assert refused("/models/next", {"inputs": ["a", "b", "c"]}).param == "inputs"
    route = next(route for route in TEI.routes if route.path == "/")
    assert route.body is not None
    with pytest.raises(Failure, match="no model"):
        route.plan(Asked(route.body(), None, None))


def test_health_and_ping() -> None:
    assert get("/ping").status == 200
    assert get("/models/vectors/health").status == 200
    assert get("/ping").body == b""
    assert set(MODELS) >= {"vectors"}
