"""What bertkit's own routes answer, as JSON Schema, by the name of the task: for the description of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_STRING: Schema = {"type": "string"}
_BOOLEAN: Schema = {"type": "boolean"}


def _array(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _any(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _or_null(schema: Schema) -> Schema:
    return _any(schema, {"type": "null"})


def _object(more: Schema | bool = False, **fields: Schema) -> Schema:
    """With all of these fields, and no others unless ``more`` says what they are."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": more}


_VECTOR = _array(_NUMBER)
_LABELS = _array(_object(label=_STRING, score=_NUMBER))
_PLACE = {"score": _NUMBER, "start": _COUNT, "end": _COUNT}
_ENTITIES = _array(_object(_any(_STRING, _COUNT), word=_STRING, **_PLACE))  # and its tag and index, or its group
_ANSWER = _object(answer=_STRING, **_PLACE)
_GUESSES = _array(_object(score=_NUMBER, token=_COUNT, token_str=_STRING, sequence=_STRING))
_CHUNK = _object(start=_COUNT, end=_COUNT, num_tokens=_COUNT, vector=_VECTOR)
_SPAN = _object(
    start=_COUNT,
    end=_COUNT,
    redacted_start=_COUNT,
    redacted_end=_COUNT,
    label=_STRING,
    score=_NUMBER,
    word=_STRING,
    placeholder=_STRING,
)
_PIECE = _object(
    id=_COUNT,
    text=_STRING,
    special=_BOOLEAN,
    segment=_COUNT,
    second=_BOOLEAN,
    word=_or_null(_COUNT),
    start=_or_null(_COUNT),
    stop=_or_null(_COUNT),
)
_WORD = _object(text=_STRING, start=_COUNT, end=_COUNT, second=_BOOLEAN, score=_NUMBER, drop=_NUMBER)
_ATTENTION = _object(
    layer=_COUNT,
    layers=_COUNT,
    heads=_COUNT,
    head=_or_null(_COUNT),
    pieces=_array(_PIECE),
    attentions=_array(_array(_VECTOR)),
)
_EXPLANATION = _object(
    label=_STRING,
    predicted=_STRING,
    score=_NUMBER,
    hidden_by={"enum": ["mask", "removal"]},
    words=_array(_WORD),
    word=_or_null(_COUNT),
)
_GRADIENTS = _object(
    label=_STRING,
    predicted=_STRING,
    probability=_or_null(_NUMBER),
    score=_NUMBER,
    baseline=_STRING,
    baseline_score=_NUMBER,
    steps=_COUNT,
    completeness_error=_NUMBER,
    complete=_BOOLEAN,
    agreement=_or_null(_NUMBER),
    words=_array(
        _object(text=_STRING, start=_COUNT, end=_COUNT, second=_BOOLEAN, gradients=_NUMBER, occlusion=_NUMBER)
    ),
    word=_or_null(_COUNT),
)
_MAP = _object(
    True,
    places=_array(_VECTOR),
    axes=_array(_STRING),
    notes=_array(_STRING),
    method=_STRING,
)
#: Of a task what is in ``results``.
_RESULTS: Mapping[str, Schema] = {
    "embed": _array(_any(_VECTOR, _STRING, _array(_VECTOR), _array(_CHUNK))),
    "sparse": _array({"type": "object", "additionalProperties": _NUMBER}),
    "similarity": _VECTOR,
    "rerank": _array(_object(index=_COUNT, score=_NUMBER)),
    "classify": _array(_LABELS),
    "next-sentence": _array(_object(label={"enum": ["is_next", "not_next"]}, score=_NUMBER, is_next=_NUMBER)),
    "zero-shot": _array(_LABELS),
    "tag": _array(_ENTITIES),
    "redact": _array(_object(text=_STRING, spans=_array(_SPAN))),
    "answer": _array(_any(_ANSWER, _array(_ANSWER))),
    "choose": _array(_object(choice=_STRING, index=_COUNT, score=_NUMBER, scores=_VECTOR)),
    "fill-mask": _array(_any(_GUESSES, _array(_GUESSES))),
    "generate": _array({"type": "object", "additionalProperties": _STRING}),
    "tokenize": _array(_array(_PIECE)),
    "decode": _array(_STRING),
    "search": _array(_object(index=_STRING, by=_STRING, hits=_array(_object(True, text=_STRING, score=_NUMBER)))),
    "analyze": _array({"type": "object"}),
    "attention": _ATTENTION,
    "explain": _any(_EXPLANATION, _GRADIENTS),
    "map": _MAP,
}
#: What the fields of a classification are beside its results: only where the model has labels to choose from.
_CHOSEN = {"chosen": _array(_any(_STRING, _array(_STRING), {"type": "null"})), "abstained": _array(_BOOLEAN)}
_FACTS = _object(
    revision=_or_null(_STRING),
    engine=_STRING,
    temperature=_or_null(_NUMBER),
    decides=_or_null({"type": "object"}),
    dev_scores=_or_null({"type": "object", "additionalProperties": _NUMBER}),
)


def _answer(task: str, results: Schema) -> Schema:
    whole = _object(model=_STRING, results=results, truncated=_array(_BOOLEAN), usage=_object(tokens=_COUNT))
    optional = {"facts": _FACTS, **(_CHOSEN if task == "classify" else {})}
    return {**whole, "properties": {**whole["properties"], **optional}}


#: Whole answers.
SCHEMAS: Mapping[str, Schema] = {task: _answer(task, results) for task, results in _RESULTS.items()}
#: What a request is told that cannot be answered.
ERROR = {
    **(error := _object(error=_object(type=_STRING, message=_STRING))),
    "properties": {"error": {**error["properties"]["error"], "additionalProperties": _STRING}},
}
#: The server, its limits and its models.
INFO = _object(
    version=_STRING,
    limits={"type": "object", "additionalProperties": _COUNT},
    models=_array(
        _object(
            True,
            name=_STRING,
            state={"enum": ["unloaded", "loading", "ready", "failed"]},
            tasks=_array(_STRING),
            revision=_or_null(_STRING),
            engine=_STRING,
            labels=_or_null(_array(_STRING)),
            temperature=_or_null(_NUMBER),
            dev_scores=_or_null({"type": "object", "additionalProperties": _NUMBER}),
        )
    ),
    indexes=_array(_object(True, name=_STRING, num_texts=_COUNT, by=_STRING)),
)
