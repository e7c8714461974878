"""What the own routes answer is what the description says, also of examples; other answers are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bertkit.server.dialects.bertkit import DIALECT
from bertkit.server.dialects.bertkit_examples import ANSWERS
from bertkit.server.dialects.bertkit_schemas import SCHEMAS
from bertkit.server.dialects.table import routes
from bertkit.server.openapi import describe
from server_helpers import ask

jsonschema = pytest.importorskip("jsonschema")
SPAN = {"question": "was it good", "context": "the film was very good"}
CHOICE = {"context": "a film", "choices": ["the end", "a start"]}
#: By task: a model, and bodies of several forms of answers.
ASKED: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "embed": (
        "vectors",
        [
            {"input": "film", **more}
            for more in ({}, {"encoding": "base64"}, {"tokens": True}, {"chunk": "sentence"}, {"facts": True})
        ],
    ),
    "similarity": ("vectors", [{"source": "film", "sentences": ["end"]}]),
    "rerank": ("ranks", [{"query": "film", "documents": ["end"], "facts": True}]),
    "classify": ("labels", [{"input": "film", **more} for more in ({}, {"function": "none"}, {"facts": True})]),
    "next-sentence": ("next", [{"input": ["a film", "the end"]}]),
    "zero-shot": ("nli", [{"input": "film", "labels": ["a", "b"]}]),
    "tag": ("tags", [{"input": "a good film " * 5, "aggregation": how} for how in ("simple", "none")]),
    "redact": ("tags", [{"input": "a good film " * 5}]),
    "answer": ("answers", [{"input": SPAN}, {"input": SPAN, "top_k": 2}]),
    "choose": ("choices", [{"input": CHOICE}]),
    "fill-mask": ("masks", [{"input": "a [MASK] film"}, {"input": "a [MASK] [MASK]"}]),
    "tokenize": ("vectors", [{"input": "film"}]),
    "decode": ("vectors", [{"ids": [5, 6]}]),
    "attention": ("vectors", [{"input": "film"}, {"input": ["film", "end"], "head": 1}]),
    "explain": ("labels", [{"input": "a good film"}]),
    "map": ("vectors", [{"input": ["film", "end", "good"]}]),
}


def conforms(task: str, answer: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(SCHEMAS[task]).is_valid(answer))


@pytest.mark.parametrize("task", ASKED)
def test_answers_are_as_described(server: Any, task: str) -> None:
    model, bodies = ASKED[task]
    for body in bodies:
        reply = ask(server.address, f"/v1/{task}", {"model": model, **body})
        assert reply.status == 200, reply.body
        jsonschema.validate(reply.body, SCHEMAS[task])
        assert not conforms(task, {**reply.body, "more": 1})
        assert not conforms(task, {**reply.body, "results": [None]})
        assert not conforms(task, {key: value for key, value in reply.body.items() if key != "truncated"})


def test_examples_are_as_described() -> None:
    assert SCHEMAS.keys() == ANSWERS.keys()
    for task, answer in ANSWERS.items():
        jsonschema.validate(answer, SCHEMAS[task])
    document = describe(routes())
    for route in DIALECT.routes:
        good = document["paths"][route.path][route.method.lower()]["responses"]["200"]["content"]
        assert ("schema" in next(iter(good.values()))) != route.lines
    for response in document["components"]["responses"].values():
        content = response.get("content", {}).get("application/json", {})
        for example in content.get("examples", {}).values() if "schema" in content else ():
            jsonschema.validate(example["value"], content["schema"])


def test_the_server_describes_itself_as_described(server: Any) -> None:
    schema = next(route.schema for route in DIALECT.routes if route.path == "/v1/info")
    jsonschema.validate(ask(server.address, "/v1/info").body, schema)
