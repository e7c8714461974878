"""Infinity's shapes under ``/infinity``, where its clients' base address points."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.server.calls import Answer, Look, ServerFacts
from bertkit.server.dialects.ranking import RankRequest
from bertkit.server.dialects.route import (
    Asked,
    Dialect,
    LenientBody,
    Planned,
    Reply,
    Route,
    Texts,
    call_of,
    json_reply,
    listed,
    new_id,
    now,
    some,
    usage_of,
)
from bertkit.server.dialects.vectors import EXAMPLE, encoded
from bertkit.server.failures import Failure

#: What its clients send where no model was named.
_UNNAMED = "default/not-specified"


class InfinityEmbedRequest(LenientBody):
    """Texts to vectors."""

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, Field(ge=0, description="keep the first numbers of each vector; 0: all")] = 0
    modality: Literal["text"] = "text"


class InfinityClassifyRequest(LenientBody):
    """Labels of texts."""

    input: Annotated[list[str], Field(examples=[["A film to remember."]])]
    model: str | None = None
    raw_scores: Annotated[bool, Field(description="the model's numbers in place of probabilities")] = False


def _named(model: str | None) -> str | None:
    return None if model == _UNNAMED else model


def _about(answer: Answer) -> dict[str, Any]:
    return {"id": new_id("infinity-"), "created": now()}


def _embeddings(asked: Asked) -> Planned:
    body: InfinityEmbedRequest = asked.body
    some(body.input, "input")
    options = {"normalize": True, "dimensions": body.dimensions or None}
    call = call_of("embed", listed(body.input)[0], _named(body.model), "truncate", **options)
    return Planned(call, lambda answer: encoded(answer, body.encoding_format, **_about(answer)))


def _rerank(asked: Asked) -> Planned:
    body: RankRequest = asked.body.model_copy(update={"model": _named(asked.body.model)})

    def render(answer: Answer) -> Reply:
        results = body.results(answer, documents=bool(body.return_documents), plain=True)
        usage = {"model": answer.model.name, "usage": usage_of(answer)}
        return json_reply({"object": "rerank", "results": results, **usage, **_about(answer)})

    return Planned(body.call(), render)


def _classify(asked: Asked) -> Planned:
    body: InfinityClassifyRequest = asked.body
    some(body.input, "input")
    function = "none" if body.raw_scores else None

    def render(answer: Answer) -> Reply:
        usage = {"model": answer.model.name, "usage": usage_of(answer)}
        return json_reply({"object": "classify", "data": answer.results, **usage, **_about(answer)})

    call = call_of("classify", body.input, _named(body.model), "truncate", function_to_apply=function)
    return Planned(call, render)


#: What it calls what a model does.
_CAPABILITIES = {"embed": "embed", "rerank": "rerank", "classify": "classify"}


def _models(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        data = [
            {
                "id": model.name,
                "stats": {},
                "object": "model",
                "owned_by": "infinity",
                "created": model.created,
                "backend": model.engine,
                "capabilities": [_CAPABILITIES[task] for task in model.tasks if task in _CAPABILITIES],
            }
            for model in found.models
        ]
        return json_reply({"object": "list", "data": data})

    return Planned(Look(), render)


def _health(asked: Asked) -> Planned:
    return Planned(Look(), lambda found: json_reply({"unix": float(now())}))


def _error(failure: Failure, status: int) -> Any:
    return {"error": {"message": failure.message, "type": None, "param": failure.param, "code": status}}


_ABOUT = {"model": "m", "usage": EXAMPLE["usage"], "id": "infinity-1", "created": 1764374400}
DIALECT = Dialect(
    "infinity",
    (
        Route(
            "POST",
            "/infinity/embeddings",
            _embeddings,
            "Texts to vectors.",
            InfinityEmbedRequest,
            answer={**EXAMPLE, **_ABOUT},
        ),
        Route(
            "POST",
            "/infinity/rerank",
            _rerank,
            "A query, and documents to order by how well they answer it.",
            RankRequest,
            answer={"object": "rerank", "results": [{"index": 0, "relevance_score": 0.93}], **_ABOUT},
        ),
        Route(
            "POST",
            "/infinity/classify",
            _classify,
            "Labels of texts.",
            InfinityClassifyRequest,
            answer={"object": "classify", "data": [[{"label": "positive", "score": 0.98}]], **_ABOUT},
        ),
        Route("GET", "/infinity/models", _models, "All models."),
        Route("GET", "/infinity/health", _health, "Whether the server runs.", answer={"unix": 1764374400.0}),
    ),
    _error,
    {"unknown_model": 400, "wrong_task": 400},
)
