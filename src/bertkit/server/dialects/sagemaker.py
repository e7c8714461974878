"""What Amazon SageMaker asks of a container: ``/ping``, and ``/invocations`` for the first model's own task."""

from __future__ import annotations

from bertkit.server.calls import Look, ServerFacts
from bertkit.server.dialects import inputs, tei_words
from bertkit.server.dialects.route import Asked, Dialect, Planned, Reply, Route
from bertkit.server.dialects.task_bodies import AnyInputs


def _ping(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        return Reply(b"", 503 if any(model.state in ("loading", "failed") for model in found.models) else 200)

    return Planned(Look(), render)


def _invocations(asked: Asked) -> Planned:
    return inputs.by_model(asked.facts, inputs.given_in(asked), inputs.BARE_FORMS).planned()


DIALECT = Dialect(
    "sagemaker",
    (
        Route("GET", "/ping", _ping, "200 if all models answer, without a body."),
        Route("POST", "/invocations", _invocations, "The own task of the first model.", AnyInputs, needs_facts=True),
    ),
    tei_words.error,
    tei_words.STATUSES,
)
