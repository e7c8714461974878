"""What Google's Vertex AI asks of a container: instances in, predictions out (``AIP_PREDICT_ROUTE=/vertex``)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from bertkit.server.calls import Answer
from bertkit.server.dialects import inputs, tei_words
from bertkit.server.dialects.route import Asked, Dialect, LenientBody, Planned, Reply, Route, json_reply, some
from bertkit.server.failures import Failure


class Instances(LenientBody):
    """Several requests of the first model's own task; all with the same options, which may stand beside them."""

    instances: Annotated[list[dict[str, Any]], Field(examples=[[{"inputs": "The bank of the river."}]])]
    parameters: dict[str, Any] | None = None


def _predict(asked: Asked) -> Planned:
    body: Instances = asked.body
    some(body.instances, "instances")
    common = {} if body.parameters is None else {"parameters": body.parameters}
    questions = [inputs.by_model(asked.facts, {**common, **each}, inputs.BARE_FORMS) for each in body.instances]
    first = questions[0].call
    if any(replace(each.call, items=first.items) != first for each in questions):
        raise Failure("invalid", "`instances` must all have the same options: send the others apart", param="instances")
    items = [item for each in questions for item in each.call.items]

    def render(answer: Answer) -> Reply:
        predictions, start = [], 0
        for each in questions:
            end = start + len(each.call.items)
            predictions.append(each.present(replace(answer, results=answer.results[start:end])))
            start = end
        return json_reply({"predictions": predictions})

    return Planned(replace(first, items=items), render)


DIALECT = Dialect(
    "vertex",
    (
        Route(
            "POST",
            "/vertex",
            _predict,
            "The own task of the first model, of several instances.",
            Instances,
            answer={"predictions": [[[0.0125, -0.0531, 0.0342]]]},
            needs_facts=True,
        ),
    ),
    tei_words.error,
    tei_words.STATUSES,
)
