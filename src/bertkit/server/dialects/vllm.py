"""vLLM's pooling routes: score, classify and pooling."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from bertkit.server.calls import Answer, Overflow, Task
from bertkit.server.dialects.route import (
    Asked,
    Count,
    Dialect,
    LenientBody,
    Planned,
    Reply,
    Route,
    TextsOrIds,
    call_of,
    json_reply,
    listed,
    new_id,
    now,
    some,
    usage_of,
)
from bertkit.server.dialects.vectors import ByteOrder, Encoding, Floats, NumberType, as_numbers, bytes_reply
from bertkit.server.failures import Failure


class Pooled(LenientBody):
    """What all of them may say."""

    model: Annotated[str | None, Field(description="by default the first that does it")] = None
    user: str | None = None
    truncate_prompt_tokens: Annotated[
        int | None, Field(ge=-1, description="cut texts to so many tokens; -1: to what the model reads")
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, Field(description="at which side; by default at the right one")
    ] = None
    use_activation: Annotated[bool | None, Field(description="false: the model's numbers in place of scores")] = None

    @property
    def overflow(self) -> Overflow:
        """What becomes of long texts."""
        if self.truncate_prompt_tokens is None:
            return "error"
        return "truncate-left" if self.truncation_side == "left" else "truncate"

    @property
    def max_length(self) -> int | None:
        """Tokens to which they are cut; None: what the model reads."""
        limit = self.truncate_prompt_tokens
        return limit if limit is not None and limit > 0 else None


Side = str | list[str] | None


class ScoreRequest(Pooled):
    """How well texts answer others: one against many, or pairs."""

    queries: Annotated[Side, Field(examples=["What is a bank?"])] = None
    documents: Annotated[Side, Field(examples=[["The side of a river.", "A tall tree."]])] = None
    items: Annotated[Side, Field(description="another name of `documents`")] = None
    text_1: Annotated[Side, Field(description="another name of `queries`")] = None
    text_2: Annotated[Side, Field(description="another name of `documents`")] = None
    data_1: Annotated[Side, Field(description="another name of `queries`")] = None
    data_2: Annotated[Side, Field(description="another name of `documents`")] = None


class VllmClassifyRequest(Pooled):
    """Probabilities of all labels, in the order of their numbers; no label where the model abstains."""

    input: TextsOrIds


class PoolingRequest(Pooled):
    """What a model computes of texts: a vector or probabilities of labels, of each text or of each of its tokens."""

    input: TextsOrIds
    task: Annotated[
        Literal["embed", "token_embed", "classify", "token_classify"] | None,
        Field(description="by default the model's own"),
    ] = None
    dimensions: Count | None = None
    encoding_format: Encoding = "float"
    embed_dtype: NumberType = "float32"
    endianness: ByteOrder = "native"


def _sides(body: ScoreRequest) -> tuple[list[str], list[str]]:
    found = []
    for names in (("queries", "text_1", "data_1"), ("documents", "items", "text_2", "data_2")):
        given = [side for name in names if (side := getattr(body, name)) is not None]
        if len(given) != 1:
            raise Failure("invalid", f"one of {', '.join(names)} is needed, got {len(given)}", param=names[0])
        found.append([given[0]] if isinstance(given[0], str) else given[0])
        some(found[-1], names[0])
    first, second = found
    if len(first) not in (1, len(second)):
        raise Failure(
            "invalid",
            f"{len(first)} queries and {len(second)} documents: expected one query, or pairs",
            param="queries",
        )
    return first, second


def _score(asked: Asked) -> Planned:
    body: ScoreRequest = asked.body
    first, second = _sides(body)
    if len(first) == 1:
        items = [{"query": first[0], "documents": second}]
    else:
        items = [{"query": one, "documents": [other]} for one, other in zip(first, second, strict=True)]
    function = "none" if body.use_activation is False else "sigmoid"
    call = call_of("rerank", items, body.model, body.overflow, function_to_apply=function, max_length=body.max_length)

    def render(answer: Answer) -> Reply:
        found = [sorted(ranked, key=lambda each: each["index"]) for ranked in answer.results]
        scores = [each["score"] for ranked in found for each in ranked]
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
        return json_reply(_list("score-", answer, data))

    return Planned(call, render)


def _list(prefix: str, answer: Answer, data: Sequence[Any]) -> dict[str, Any]:
    return {
        "id": new_id(prefix),
        "object": "list",
        "created": now(),
        "model": answer.model.name,
        "data": data,
        "usage": {**usage_of(answer), "completion_tokens": 0},
    }


def _by_number(answer: Answer) -> list[Floats]:
    """Scores of each text in the order of the labels' numbers."""
    found = []
    for labels in answer.results:
        scores = {each["label"]: each["score"] for each in labels}
        found.append(np.array([scores[label] for label in answer.model.labels or scores], np.float32))
    return found


def _classify(asked: Asked) -> Planned:
    body: VllmClassifyRequest = asked.body
    raw = body.use_activation is False

    def label(answer: Answer, labels: Sequence[Mapping[str, Any]]) -> str | None:
        """The label that the model decides for; None where it abstains."""
        rule = answer.model.decides
        if raw or rule is None or rule.several:
            best: str = labels[0]["label"]
            return best
        chosen = rule.chosen({each["label"]: each["score"] for each in labels})
        assert not isinstance(chosen, list)
        return chosen

    some(body.input, "input")
    function = "none" if raw else None
    options = {"function_to_apply": function, "max_length": body.max_length}

    def render(answer: Answer) -> Reply:
        return json_reply(
            _list(
                "classify-",
                answer,
                [
                    {"index": index, "label": label(answer, labels), "probs": probs, "num_classes": len(probs)}
                    for index, (labels, probs) in enumerate(zip(answer.results, _by_number(answer), strict=True))
                ],
            )
        )

    return Planned(call_of("classify", listed(body.input)[0], body.model, body.overflow, **options), render)


#: What its tasks are here.
_TASKS: Mapping[str, Task] = {
    "embed": "embed",
    "token_embed": "embed-tokens",
    "classify": "classify",
    "token_classify": "tag-tokens",
}
#: Its task for a model that does this first; otherwise ``embed``.
_USUAL: Mapping[Task, Task] = {"classify": "classify", "tag": "tag-tokens"}


def _pooling(asked: Asked) -> Planned:
    body: PoolingRequest = asked.body
    some(body.input, "input")
    own = asked.facts.tasks[0] if asked.facts and asked.facts.tasks else "embed"
    task = _TASKS[body.task] if body.task else _USUAL.get(own, "embed")
    if body.dimensions is not None and task != "embed":
        raise Failure("invalid", "`dimensions` is for the task 'embed'", param="dimensions")
    raw = body.use_activation is False
    options: dict[str, Any] = {"max_length": body.max_length}
    if task in ("embed", "embed-tokens"):
        options |= {"normalize": not raw, "dimensions": body.dimensions}
    else:
        options["function_to_apply"] = "none" if raw else None
    call = call_of(task, listed(body.input)[0], body.model, body.overflow, **options)

    def render(answer: Answer) -> Reply:
        vectors = _by_number(answer) if task == "classify" else answer.results
        if body.encoding_format in ("bytes", "bytes_only"):
            described = body.encoding_format == "bytes"
            return bytes_reply(answer, vectors, body.embed_dtype, body.endianness, described=described)
        shown: Sequence[Any] = vectors
        if body.encoding_format == "base64":
            packed = [as_numbers(vector, body.embed_dtype, body.endianness).tobytes() for vector in vectors]
            shown = [base64.b64encode(each).decode() for each in packed]
        data = [{"index": index, "object": "pooling", "data": vector} for index, vector in enumerate(shown)]
        return json_reply(_list("pool-", answer, data))

    return Planned(call, render)


def _error(failure: Failure, status: int) -> Any:
    kind = "NotFoundError" if status == 404 else "BadRequestError" if status < 500 else "InternalServerError"
    return {"error": {"message": failure.message, "type": kind, "param": failure.param, "code": status}}


_USAGE = {"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": 0}


def _example(**row: Any) -> dict[str, Any]:
    return {"id": "1", "object": "list", "created": 1764374400, "model": "m", "data": [row], "usage": _USAGE}


DIALECT = Dialect(
    "vllm",
    (
        *(
            Route(
                "POST",
                path,
                _score,
                "How well texts answer others.",
                ScoreRequest,
                answer=_example(index=0, object="score", score=0.93),
            )
            for path in ("/score", "/v1/score")
        ),
        Route(
            "POST",
            "/classify",
            _classify,
            "Probabilities of all labels.",
            VllmClassifyRequest,
            answer=_example(index=0, label="positive", probs=[0.02, 0.98], num_classes=2),
            keys=frozenset({"input"}),
        ),
        Route(
            "POST",
            "/pooling",
            _pooling,
            "What a model computes of texts.",
            PoolingRequest,
            answer=_example(index=0, object="pooling", data=[0.0125, -0.0531, 0.0342]),
            needs_facts=True,
            binary=True,
        ),
    ),
    _error,
    dict.fromkeys(("invalid", "empty", "too_long", "too_many", "wrong_task"), 400),
)
