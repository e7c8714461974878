"""Lemonade and its ort-server: one text to its labels, by the key ``text``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from bertkit.server.calls import Answer
from bertkit.server.dialects.route import Asked, Dialect, LenientBody, Planned, Reply, Route, Text, call_of, json_reply
from bertkit.server.failures import Failure


class LemonadeClassifyRequest(LenientBody):
    """Labels of a text."""

    text: Text
    model: Annotated[str | None, Field(description="by default the first classifier")] = None
    top_k: Annotated[int | None, Field(ge=0, description="the most probable labels; 0: all")] = None


def _classify(asked: Asked) -> Planned:
    body: LemonadeClassifyRequest = asked.body

    def render(answer: Answer) -> Reply:
        return json_reply({"labels": {each["label"]: each["score"] for each in answer.results[0]}})

    return Planned(call_of("classify", [body.text], body.model, "truncate", top_k=body.top_k or None), render)


def _error(failure: Failure, status: int) -> Any:
    return {"error": {"message": failure.message, "type": failure.kind}}


DIALECT = Dialect(
    "lemonade",
    tuple(
        Route(
            "POST",
            path,
            _classify,
            "Labels of a text.",
            LemonadeClassifyRequest,
            answer={"labels": {"safe": 0.98, "injection": 0.02}},
            keys=frozenset({"text"}),
        )
        for path in ("/classify", "/v1/classify", "/api/v1/classify")
    ),
    _error,
    dict.fromkeys(("invalid", "empty", "too_many"), 400),
)
