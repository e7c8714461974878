"""OpenAI: embeddings (with Jina's and vLLM's fields), models, and moderations by a classifier of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.server.calls import Answer, Call, Look, ModelFacts, ServerFacts
from bertkit.server.dialects.route import (
    Asked,
    Count,
    Dialect,
    Ids,
    LenientBody,
    ListOfIds,
    Planned,
    Reply,
    Route,
    TextObject,
    call_of,
    facts_of,
    json_reply,
    listed,
    new_id,
    some,
    text_of,
)
from bertkit.server.dialects.task_bodies import cut_at
from bertkit.server.dialects.vectors import EXAMPLE, KINDS, Encoding, Kind, encoded, openai_list
from bertkit.server.failures import Failure
from bertkit.server.failures import Kind as FailureKind
from bertkit.server.label_rule import LabelRule

#: Names of prompts that mean the same as a ``task`` of Jina's.
_PROMPTS: Mapping[str, Sequence[str]] = {
    "retrieval.query": ("retrieval.query", "query"),
    "retrieval.passage": ("retrieval.passage", "passage", "document"),
}


class EmbeddingRequest(LenientBody):
    """Texts to vectors."""

    input: Annotated[
        str | Annotated[list[str | TextObject], Field(fail_fast=True)] | Ids | ListOfIds,
        Field(description="texts, or the ids of their tokens", examples=[["The bank of the river."]]),
    ]
    model: Annotated[str | None, Field(description="by default the first that makes vectors")] = None
    encoding_format: Encoding = "float"
    dimensions: Annotated[Count | None, Field(description="keep the first numbers of each vector")] = None
    user: str | None = None
    task: Annotated[
        str | None, Field(description="what the texts are for, as Jina says it: the model's prompt of that name")
    ] = None
    normalized: Annotated[bool, Field(description="vectors of length 1")] = True
    truncate: Annotated[bool, Field(description="cut texts that are too long in place of refusing them")] = False
    truncate_prompt_tokens: Annotated[
        int | None, Field(ge=-1, description="cut texts to so many tokens, as vLLM does; -1: to what the model reads")
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, Field(description="at which side, as vLLM does; by default at the right one")
    ] = None
    late_chunking: Annotated[
        bool, Field(description="read the texts as one, in their order, and give a vector for each")
    ] = False
    embedding_type: Annotated[
        Kind | list[Kind] | None, Field(description="numbers in fewer bits, as Jina sends them")
    ] = None

    @property
    def prompts(self) -> Sequence[str] | None:
        """Names of prompts for what the texts are for."""
        return None if self.task is None else _PROMPTS.get(self.task, (self.task,))


def _embeddings(asked: Asked) -> Planned:
    body: EmbeddingRequest = asked.body
    some(body.input, "input")
    items, _ = listed(body.input)
    kinds = [body.embedding_type] if isinstance(body.embedding_type, str) else body.embedding_type or []
    if len(kinds) > 1:
        raise Failure("invalid", "embedding_type must be one kind", param="embedding_type")

    def render(answer: Answer) -> Reply:
        if body.late_chunking:
            answer = replace(answer, results=[chunk["vector"] for chunk in answer.results[0]])
        if kinds:
            return openai_list(answer, list(map(KINDS[kinds[0]], answer.results)))
        return encoded(answer, body.encoding_format)

    return Planned(_in_context(body, items) if body.late_chunking else _one_by_one(body, items), render)


def _one_by_one(body: EmbeddingRequest, items: Sequence[Any]) -> Call:
    cut = body.truncate_prompt_tokens
    return call_of(
        "embed",
        [item if isinstance(item, list) else text_of(item) for item in items],
        body.model,
        cut_at(body.truncate or cut is not None, body.truncation_side or "right", None),
        normalize=body.normalized,
        dimensions=body.dimensions,
        prompts=body.prompts,
        max_length=cut if cut and cut > 0 else None,
    )


def _in_context(body: EmbeddingRequest, items: Sequence[Any]) -> Call:
    """Texts as the parts of one. Nothing is cut: what is longer than the model reads is read in windows."""
    if any(isinstance(item, list) for item in items):
        raise Failure("invalid", "late_chunking needs texts, not the ids of their tokens", param="late_chunking")
    options: dict[str, Any] = {
        "normalize": body.normalized,
        "dimensions": body.dimensions,
        "prompts": body.prompts,
    }
    return call_of("embed-chunks", [{"parts": list(map(text_of, items))}], body.model, **options)


def _model(model: ModelFacts) -> dict[str, Any]:
    return {"id": model.name, "object": "model", "created": model.created, "owned_by": "bertkit"}


def _models(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        return json_reply({"object": "list", "data": list(map(_model, found.models))})

    return Planned(Look(), render)


def _one_model(asked: Asked) -> Planned:
    return Planned(Look(model=asked.model), lambda found: json_reply(_model(facts_of(found))))


class InputPart(LenientBody):
    """A text among parts of other kinds."""

    type: Literal["text"]
    text: str


class ModerationRequest(LenientBody):
    """Whether texts are harmful, by the labels of a classifier."""

    input: Annotated[str | list[str | InputPart], Field(examples=["I will find you."])]
    model: Annotated[
        str | None, Field(description="by default, and by the names of OpenAI's own, the first classifier")
    ] = None


#: Labels that mean that nothing is wrong, in small letters without signs.
_HARMLESS = frozenset(
    "acceptable benign clean good ham harmless label0 legit legitimate neutral no none normal ok okay other positive "
    "safe".split()
)


def _plain(label: str) -> str:
    return "".join(letter for letter in label.casefold() if letter.isalnum())


def _harmful(labels: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Scores by label, without labels that mean that nothing is wrong: by their names, or as ``not_x`` beside ``x``."""
    names = {_plain(each["label"]) for each in labels}
    negated = {prefix + name for name in names for prefix in ("no", "non", "not")}
    return {each["label"]: each["score"] for each in labels if _plain(each["label"]) not in _HARMLESS | negated}


def _moderations(asked: Asked) -> Planned:
    body: ModerationRequest = asked.body
    some(body.input, "input")
    given = [body.input] if isinstance(body.input, str) else body.input
    # Parts of one message are one input.
    parts = [part.text for part in given if isinstance(part, InputPart)]
    texts = [part for part in given if isinstance(part, str)] + (["\n".join(parts)] if parts else [])
    hosted = body.model is not None and body.model.startswith(("omni-moderation", "text-moderation"))

    def judged(labels: Sequence[Mapping[str, Any]], rule: LabelRule) -> dict[str, Any]:
        scores = _harmful(labels)
        categories = {label: rule.gives(label, score) for label, score in scores.items()}
        return {
            "flagged": any(categories.values()),
            "categories": categories,
            "category_scores": scores,
            "category_applied_input_types": {label: ["text"] for label in scores},
        }

    def render(answer: Answer) -> Reply:
        rule = answer.model.decides or LabelRule(labels=())  # without labels: one number, as of a regression
        results = [judged(labels, rule) for labels in answer.results]
        return json_reply({"id": new_id("modr-"), "model": answer.model.name, "results": results})

    return Planned(call_of("classify", texts, None if hosted else body.model), render)


#: What OpenAI calls the kinds of failure: type and code.
_TYPES: Mapping[FailureKind, tuple[str, str | None]] = {
    "too_long": ("invalid_request_error", "context_length_exceeded"),
    "unknown_model": ("invalid_request_error", "model_not_found"),
    "wrong_task": ("invalid_request_error", "unsupported_model"),
    "unauthorized": ("invalid_request_error", "invalid_api_key"),
    "overloaded": ("requests", "rate_limit_exceeded"),
    "damaged_model": ("server_error", None),
    "missing_package": ("server_error", None),
    "timeout": ("server_error", "timeout"),
    "not_ready": ("server_error", "not_ready"),
    "fault": ("server_error", None),
}


def _error(failure: Failure, status: int) -> Any:
    kind, code = _TYPES.get(failure.kind, ("invalid_request_error", None))
    param = "model" if failure.kind == "unknown_model" else failure.param
    message = failure.message
    if failure.kind == "too_long" and "num_tokens" in failure.details:
        message = (
            f"This model's maximum context length is {failure.details['limit']} tokens, and you requested "
            f"{failure.details['num_tokens']} tokens. Shorten the text, or send `truncate: true`."
        )
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


_MODEL = {"id": "all-MiniLM-L6-v2", "object": "model", "created": 1764374400, "owned_by": "bertkit"}
DIALECT = Dialect(
    "openai",
    (
        *(
            Route("POST", path, _embeddings, "Texts to vectors.", EmbeddingRequest, answer=EXAMPLE, binary=True)
            for path in ("/v1/embeddings", "/embeddings")
        ),
        Route("GET", "/v1/models", _models, "All models.", answer={"object": "list", "data": [_MODEL]}),
        Route("GET", "/v1/models/{model}", _one_model, "One model.", answer=_MODEL),
        Route(
            "POST",
            "/v1/moderations",
            _moderations,
            "Whether texts are harmful.",
            ModerationRequest,
            answer={
                "id": "modr-1",
                "model": "toxic-bert",
                "results": [
                    {
                        "flagged": True,
                        "categories": {"threat": True},
                        "category_scores": {"threat": 0.91},
                        "category_applied_input_types": {"threat": ["text"]},
                    }
                ],
            },
        ),
    ),
    _error,
    dict.fromkeys(("invalid", "empty", "too_long", "too_many", "wrong_task"), 400),
)
