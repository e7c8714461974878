"""Cohere: embed in all its kinds of numbers, and rerank (cohere-python 7.3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.server.calls import Answer, Overflow
from bertkit.server.dialects.ranking import RankRequest
from bertkit.server.dialects.route import (
    Asked,
    Count,
    Dialect,
    LenientBody,
    Planned,
    Reply,
    Route,
    call_of,
    json_reply,
    new_id,
    some,
)
from bertkit.server.dialects.vectors import KINDS, Kind
from bertkit.server.failures import Failure

#: Names of prompts that mean the same as an ``input_type``.
_PROMPTS: Mapping[str, Sequence[str]] = {
    "search_query": ("search_query", "query"),
    "search_document": ("search_document", "document", "passage"),
}
_OVERFLOWS: Mapping[str, Overflow] = {"NONE": "error", "START": "truncate-left", "END": "truncate"}


class Content(LenientBody):
    """A part of an input."""

    type: Literal["text"]
    text: str


class Mixed(LenientBody):
    """An input of parts, all of them texts."""

    content: Annotated[list[Content], Field(min_length=1)]


class CohereEmbedRequest(LenientBody):
    """Texts to vectors, in one kind of numbers or several."""

    texts: Annotated[list[str] | None, Field(examples=[["The bank of the river."]])] = None
    inputs: Annotated[list[Mixed] | None, Field(description="the same as objects with parts")] = None
    images: Annotated[list[str] | None, Field(description="not read here")] = None
    model: Annotated[str | None, Field(description="by default the first that makes vectors")] = None
    input_type: Annotated[
        str | None, Field(description="what the texts are for: the model's prompt of that name, where it has one")
    ] = None
    embedding_types: Annotated[list[Kind] | None, Field(description="int8 and uint8 are scaled to each vector")] = None
    truncate: Annotated[
        Literal["NONE", "START", "END"],
        Field(description="cut the end or the start of long texts, or refuse them"),
    ] = "END"
    output_dimension: Count | None = None
    max_tokens: Annotated[int | None, Field(ge=3)] = None


def _meta(answer: Answer, version: str, **billed: int) -> dict[str, Any]:
    return {"api_version": {"version": version}, "billed_units": billed, "tokens": {"input_tokens": sum(answer.tokens)}}


def _embed(asked: Asked, version: str) -> Planned:
    body: CohereEmbedRequest = asked.body
    if body.images:
        raise Failure("invalid", "images are not read here", param="images")
    texts = list(body.texts or ())
    texts += ["\n".join(part.text for part in each.content) for each in body.inputs or ()]
    some(texts, "texts")
    call = call_of(
        "embed",
        texts,
        body.model,
        _OVERFLOWS[body.truncate],
        normalize=True,
        dimensions=body.output_dimension,
        prompts=None if body.input_type is None else _PROMPTS.get(body.input_type, (body.input_type,)),
        max_length=body.max_tokens,
    )

    def render(answer: Answer) -> Reply:
        kinds = body.embedding_types or ["float"]
        by_kind: Any = {kind: list(map(KINDS[kind], answer.results)) for kind in kinds}
        bare = version == "1" and not body.embedding_types
        return json_reply(
            {
                "id": new_id("embd-"),
                "response_type": "embeddings_floats" if bare else "embeddings_by_type",
                "embeddings": by_kind["float"] if bare else by_kind,
                "texts": texts,
                "meta": _meta(answer, version, input_tokens=sum(answer.tokens)),
            }
        )

    return Planned(call, render)


def _rerank(asked: Asked) -> Planned:
    body: RankRequest = asked.body

    def render(answer: Answer) -> Reply:
        results = body.results(answer, documents=bool(body.return_documents))
        return json_reply({"id": new_id("rank-"), "results": results, "meta": _meta(answer, "2", search_units=1)})

    return Planned(body.call(), render)


def _error(failure: Failure, status: int) -> Any:
    return {"message": failure.message}


def _example(version: str, vectors: Any) -> dict[str, Any]:
    return {
        "id": "embd-1",
        "response_type": "embeddings_floats" if version == "1" else "embeddings_by_type",
        "embeddings": vectors,
        "texts": ["The bank of the river."],
        "meta": {"api_version": {"version": version}, "billed_units": {"input_tokens": 8}},
    }


_VECTORS = [[0.0125, -0.0531, 0.0342]]
_SUMMARY = "Texts to vectors, in one kind of numbers or several."
DIALECT = Dialect(
    "cohere",
    (
        Route(
            "POST",
            "/v1/embed",
            lambda asked: _embed(asked, "1"),
            _SUMMARY,
            CohereEmbedRequest,
            answer=_example("1", _VECTORS),
            keys=frozenset({"texts", "images"}),
        ),
        Route(
            "POST",
            "/v2/embed",
            lambda asked: _embed(asked, "2"),
            _SUMMARY,
            CohereEmbedRequest,
            answer=_example("2", {"float": _VECTORS}),
        ),
        Route(
            "POST",
            "/v2/rerank",
            _rerank,
            "A query, and documents to order by how well they answer it.",
            RankRequest,
            answer={"id": "rank-1", "results": [{"index": 0, "relevance_score": 0.93}]},
        ),
    ),
    _error,
    dict.fromkeys(("invalid", "empty", "too_long", "too_many", "wrong_task"), 400),
)
