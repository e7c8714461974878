"""text-embeddings-inference: its routes, messages and headers (router/src/http at 0d124dc)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from bertkit.server.calls import Answer, Look, Task
from bertkit.server.dialects import inputs, tei_words
from bertkit.server.dialects.inputs import Ask, Question
from bertkit.server.dialects.route import (
    Asked,
    Body,
    Dialect,
    Ids,
    LenientBody,
    Planned,
    Reply,
    Route,
    Texts,
    call_of,
    json_reply,
    listed,
    some,
)
from bertkit.server.dialects.task_bodies import AnyInputs, TextInputs
from bertkit.server.failures import Failure


class TokenizeInputs(LenientBody):
    """The pieces of texts."""

    inputs: Texts
    add_special_tokens: bool = True
    prompt_name: Annotated[str | None, Field(description="not done here: pieces are those of the texts alone")] = None


class DecodeInputs(LenientBody):
    """Ids of tokens back to text."""

    ids: Ids | list[Ids] | list[int]
    skip_special_tokens: bool = True


def _tokenize(body: TokenizeInputs, model: str | None = None) -> Question:
    if body.prompt_name is not None:
        raise Failure("invalid", "prompt_name: /tokenize puts no prompt before a text", param="prompt_name")
    items, _ = listed(body.inputs)
    some(items, "inputs")
    call = call_of("tokenize", items, model, add_special_tokens=body.add_special_tokens)
    return Question(call, lambda answer: answer.results)


def _decode(body: DecodeInputs, model: str | None = None) -> Question:
    some(body.ids, "input_ids")
    call = call_of("decode", listed(body.ids)[0], model, skip_special_tokens=body.skip_special_tokens)
    return Question(call, lambda answer: answer.results)


def _info(asked: Asked) -> Planned:
    return Planned(Look(), lambda found: json_reply(tei_words.info(found)))


def _running(asked: Asked) -> Planned:
    return Planned(Look(), lambda found: Reply(b"bertkit is running\n", media_type="text/plain"))


def _own_task(asked: Asked) -> Planned:
    return inputs.by_model(asked.facts, inputs.given_in(asked), inputs.BARE_FORMS).planned()


def _milliseconds(answer: Answer) -> Mapping[str, str]:
    """Times of a request; of computing a batch all that is not the encoder is said to be tokenizing."""
    times = answer.times
    tokenize = times.compute - times.encode if times.encode else 0.0
    parts = (times.queue, tokenize, times.compute - tokenize, times.total)
    queue, tokenizing, compute, total = (str(round(seconds * 1000)) for seconds in parts)
    return {
        "x-compute-type": "cpu",
        "x-compute-time": total,
        "x-compute-characters": str(answer.characters),
        "x-compute-tokens": str(sum(answer.tokens)),
        "x-total-time": total,
        "x-tokenization-time": tokenizing,
        "x-queue-time": queue,
        "x-inference-time": compute,
    }


def _post(path: str, body: type[Body], ask: Ask, example: Any, *keys: str) -> tuple[Route, Route]:
    """The same for the first model that does it, and for one that the path names: a base address for its clients."""
    summary = (body.__doc__ or "").partition("\n")[0]

    def plan(asked: Asked) -> Planned:
        return ask(asked.body, asked.model).planned()

    return (
        Route("POST", path, plan, summary, body, answer=example, keys=frozenset(keys)),
        Route("POST", f"/models/{{model}}{path}", plan, summary, body, answer=example),
    )


def _task(path: str, task: Task, *keys: str) -> tuple[Route, Route]:
    form = inputs.BARE_FORMS[task]
    return _post(path, form.body, form.ask, form.answer, *keys)


DIALECT = Dialect(
    "text-embeddings-inference",
    (
        *_task("/embed", "embed"),
        *_post("/embed_all", TextInputs, inputs.token_vectors, [[[0.0125, -0.0531], [0.0342, 0.0417]]]),
        *_task("/embed_sparse", "sparse"),
        *_task("/predict", "classify"),
        *_task("/rerank", "rerank", "texts"),
        *_task("/similarity", "similarity"),
        *_post(
            "/tokenize",
            TokenizeInputs,
            _tokenize,
            [[{"id": 2924, "text": "bank", "special": False, "start": 4, "stop": 8}]],
        ),
        *_post("/decode", DecodeInputs, _decode, ["the bank of the river."]),
        Route("POST", "/", _own_task, "The own task of the first model.", AnyInputs, needs_facts=True),
        Route("GET", "/", _running, "Whether the server runs."),
        Route("GET", "/info", _info, "The first model, and the limits of the server.", answer=tei_words.INFO),
    ),
    tei_words.error,
    tei_words.STATUSES,
    _milliseconds,
)
