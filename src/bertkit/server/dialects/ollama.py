"""Ollama: embeddings, and what its clients look up before they ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from bertkit.server.calls import Answer, Look, ModelFacts, Overflow, ServerFacts
from bertkit.server.dialects.route import (
    Asked,
    Count,
    Dialect,
    LenientBody,
    Planned,
    Reply,
    Route,
    Texts,
    call_of,
    facts_of,
    json_reply,
    listed,
)
from bertkit.server.failures import Failure


class OllamaEmbedRequest(LenientBody):
    """Texts to vectors of length 1."""

    model: Annotated[str, Field(examples=["all-minilm"])]
    input: Texts
    truncate: Annotated[bool, Field(description="cut texts that are too long; false: refuse them")] = True
    dimensions: Annotated[Count | None, Field(description="keep the first numbers of each vector")] = None


class OllamaEmbeddingsRequest(LenientBody):
    """One text to a vector, as older clients ask for it."""

    model: Annotated[str, Field(examples=["all-minilm"])]
    prompt: Annotated[str, Field(examples=["The bank of the river."])] = ""


class ShowRequest(LenientBody):
    """What is known of a model."""

    model: str = ""
    name: Annotated[str, Field(description="another name of `model`")] = ""


def _named(model: str) -> str:
    return model.removesuffix(":latest")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _embed(asked: Asked) -> Planned:
    body: OllamaEmbedRequest = asked.body
    if not body.input:  # asks for the model to be loaded
        return Planned(
            Look(model=_named(body.model)), lambda found: json_reply({"model": body.model, "embeddings": []})
        )
    options = {"normalize": True, "dimensions": body.dimensions}
    overflow: Overflow = "truncate" if body.truncate else "error"

    def render(answer: Answer) -> Reply:
        return json_reply(
            {
                "model": body.model,
                "embeddings": answer.results,
                "total_duration": _nanoseconds(answer.times.total),
                "load_duration": 0,
                "prompt_eval_count": sum(answer.tokens),
            }
        )

    return Planned(call_of("embed", listed(body.input)[0], _named(body.model), overflow, **options), render)


def _embeddings(asked: Asked) -> Planned:
    body: OllamaEmbeddingsRequest = asked.body
    name = _named(body.model)
    if not body.prompt:
        return Planned(Look(model=name), lambda found: json_reply({"embedding": []}))
    call = call_of("embed", [body.prompt], name, "truncate")
    return Planned(call, lambda answer: json_reply({"embedding": answer.results[0]}))


def _details(model: ModelFacts) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "safetensors",
        "family": model.family,
        "families": [model.family],
        "parameter_size": "",
        "quantization_level": model.precision,
    }


def _listed(model: ModelFacts) -> dict[str, Any]:
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": _time(model),
        "size": model.num_bytes,
        "digest": model.revision or "",
        "details": _details(model),
    }


def _time(model: ModelFacts) -> str:
    return datetime.fromtimestamp(model.created, UTC).isoformat()


def _tags(asked: Asked) -> Planned:
    return Planned(Look(), lambda found: json_reply({"models": list(map(_listed, found.models))}))


def _running(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        ready = [model for model in found.models if model.state == "ready"]
        return json_reply(
            {"models": [{**_listed(model), "size_vram": 0, "context_length": model.max_length} for model in ready]}
        )

    return Planned(Look(), render)


def _show(asked: Asked) -> Planned:
    body: ShowRequest = asked.body

    def render(found: ServerFacts) -> Reply:
        model = facts_of(found)
        about = {
            "general.architecture": model.family,
            f"{model.family}.context_length": model.max_length,
            f"{model.family}.embedding_length": model.width,
            f"{model.family}.vocab_size": model.vocabulary,
        }
        return json_reply(
            {
                "modified_at": _time(model),
                "details": _details(model),
                "model_info": about,
                "capabilities": ["embedding"] if "embed" in model.tasks else [],
            }
        )

    return Planned(Look(model=_named(body.model or body.name)), render)


def _version(asked: Asked) -> Planned:
    return Planned(Look(), lambda found: json_reply({"version": found.version}))


def _error(failure: Failure, status: int) -> Any:
    return {"error": failure.message}


_DETAILS = {"format": "safetensors", "family": "bert", "quantization_level": "float32"}
_MODEL: Mapping[str, Any] = {
    "name": "all-minilm",
    "model": "all-minilm",
    "modified_at": "2026-11-29T00:00:00+00:00",
    "size": 90868376,
    "digest": "9f1c...",
    "details": _DETAILS,
}
_VECTOR = [0.0125, -0.0531, 0.0342]
DIALECT = Dialect(
    "ollama",
    (
        Route(
            "POST",
            "/api/embed",
            _embed,
            "Texts to vectors of length 1.",
            OllamaEmbedRequest,
            answer={
                "model": "all-minilm",
                "embeddings": [_VECTOR],
                "total_duration": 4100000,
                "load_duration": 0,
                "prompt_eval_count": 8,
            },
            schema={"type": "object", "required": ["model", "embeddings"]},  # all that is said of an empty text
        ),
        Route(
            "POST",
            "/api/embeddings",
            _embeddings,
            "One text to a vector.",
            OllamaEmbeddingsRequest,
            answer={"embedding": _VECTOR},
        ),
        Route("GET", "/api/tags", _tags, "All models.", answer={"models": [_MODEL]}),
        Route("GET", "/api/ps", _running, "Models that are loaded.", answer={"models": [_MODEL]}),
        Route(
            "POST",
            "/api/show",
            _show,
            "What is known of a model.",
            ShowRequest,
            answer={"details": _DETAILS, "model_info": {"bert.embedding_length": 384}, "capabilities": ["embedding"]},
        ),
        Route("GET", "/api/version", _version, "The version of the server.", answer={"version": "0.1.0"}),
    ),
    _error,
    dict.fromkeys(("invalid", "empty", "too_long", "too_many", "wrong_task"), 400),
)
