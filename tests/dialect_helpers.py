"""Requests to the dialects without a server: a body to its call, and results to the bytes of the reply."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertkit.server.calls import Answer, Call, Limits, Look, ModelFacts, ServerFacts, Task, Times
from bertkit.server.dialects.route import Asked, Dialect, Planned, Reply, read
from bertkit.server.dialects.table import routes
from bertkit.server.failures import Failure

LIMITS = Limits(max_items=32, max_body_bytes=10**6, max_batch_tokens=4096, max_queue_tokens=65_536, max_requests=512)
VECTORS = np.array(
    [[3.0, -4.0, 0.0, 12.0, -1.0, 2.0, 0.5, -0.25], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]], np.float32
)
LABELS = [{"label": "good", "score": 0.75}, {"label": "dull", "score": 0.2}, {"label": "bad", "score": 0.05}]
RANKED = [{"index": 1, "score": 0.9, "text": "b"}, {"index": 0, "score": 0.25, "text": "a"}]
OF_TOKENIZERS: tuple[Task, ...] = ("tokenize", "decode")


def facts(name: str = "vectors", *tasks: Task, **more: Any) -> ModelFacts:
    """What is known of a model."""
    known: dict[str, Any] = {"state": "ready", "source": f"/models/{name}", "created": 1_764_374_400, "width": 8}
    known |= {"family": "bert", "max_length": 512, "vocabulary": 100, "pooling": "mean", "precision": "float32"}
    return ModelFacts(name=name, tasks=(*(tasks or ("embed", "similarity")), *OF_TOKENIZERS), **{**known, **more})


#: The models that the programs of tests/clients ask.
MODELS: Mapping[str, ModelFacts] = {
    each.name: each
    for each in (
        facts("vectors", "embed", "similarity", "embed-tokens"),
        facts("labels", "classify", "embed", "similarity", labels=("bad", "good", "dull")),
        facts("tags", "tag", "redact", "embed"),
        facts("answers", "answer", "embed"),
        facts("choices", "choose", "embed"),
        facts("masks", "fill-mask", "embed"),
        facts("next", "next-sentence", "embed"),
        facts("ranks", "rerank", "classify", "embed"),
        facts("nli", "classify", "zero-shot", "embed"),
        facts("sparse", "sparse", "fill-mask"),
        facts("writer", "generate"),
    )
}


@dataclass(frozen=True)
class Asking:
    """A request that was planned."""

    dialect: Dialect
    planned: Planned

    @property
    def call(self) -> Call:
        """What it asks of a model."""
        assert isinstance(self.planned.call, Call)
        return self.planned.call

    def reply(self, results: Sequence[Any], model: str = "vectors", **more: Any) -> Reply:
        """The reply to results."""
        count = len(results)
        known: dict[str, Any] = {"tokens": [5] * count, "truncated": [False] * count, "characters": 20 * count}
        times = Times(queue=0.001, compute=0.004, total=0.006)
        answer = Answer(results=results, model=MODELS[model], times=times, **{**known, **more})
        return self.planned.render(answer)

    def said(self, results: Sequence[Any], model: str = "vectors", **more: Any) -> Any:
        """The body of that reply."""
        return json.loads(self.reply(results, model, **more).body)

    def seen(self, *names: str) -> Reply:
        """The reply to a look at the server."""
        assert isinstance(self.planned.call, Look)
        name = self.planned.call.model
        models = [MODELS[each] for each in names] or ([MODELS[name]] if name else list(MODELS.values()))
        return self.planned.render(ServerFacts(version="0.2", limits=LIMITS, models=models))


def ask(method: str, path: str, body: Any = None, first: str = "vectors") -> Asking:
    """What a request plans; ``first``: the first model of the server."""
    found, model = _routes_of(method, path)
    dialect, route, _ = found[0]
    if len(found) > 1:
        fitting = [each for each in found if each[2] & body.keys()]
        assert len(fitting) < 2, f"{path} with {list(body)} is of {len(fitting)} dialects"
        dialect, route, _ = fitting[0] if fitting else found[0]
    given = read(route.body, body) if route.body else None
    known = MODELS[model or getattr(given, "model", None) or first] if route.needs_facts else None
    return Asking(dialect, route.plan(Asked(given, model, known)))


def post(path: str, body: Any, first: str = "vectors") -> Asking:
    """What a body plans."""
    return ask("POST", path, body, first)


def get(path: str) -> Reply:
    """What a look shows."""
    return ask("GET", path).seen()


def refused(path: str, body: Any, first: str = "vectors") -> Failure:
    """Why a body is refused."""
    try:
        post(path, body, first)
    except Failure as failure:
        return failure
    raise AssertionError(f"{path} took {body}")


def _routes_of(method: str, path: str) -> tuple[Any, str | None]:
    table = routes()
    if (method, path) in table:
        return table[method, path], None
    for (its, pattern), found in sorted(table.items(), key=lambda item: -len(item[0][1])):
        start, sign, end = pattern.partition("{model}")
        if its == method and sign and path.startswith(start) and path.endswith(end):
            return found, path[len(start) : len(path) - len(end)]
    raise AssertionError(f"no {method} {path}")
