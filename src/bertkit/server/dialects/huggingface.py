"""Hugging Face's task shapes: what ``huggingface_hub.InferenceClient`` and ``@huggingface/inference`` send to a URL."""

from __future__ import annotations

from typing import Any

from bertkit.server.calls import Answer, Look, ServerFacts
from bertkit.server.dialects import inputs, tei_words
from bertkit.server.dialects.inputs import Form, Question
from bertkit.server.dialects.route import Asked, Dialect, Planned, Reply, Route, facts_of, json_reply
from bertkit.server.dialects.task_bodies import AnyInputs, GenerateInputs
from bertkit.server.failures import Failure

_PATH = "/models/{model}"


def _renamed(name: str) -> Form:
    """Writing text under another name, that of its only field."""

    def ask(body: GenerateInputs, model: str | None) -> Question:
        asked = inputs.generate(body, model)

        def present(answer: Answer) -> Any:
            return [{name: next(iter(each.values()))} for each in answer.results]

        return Question(asked.call, present)

    return Form(name, GenerateInputs, ask, [{name: "La rive."}])


_FORMS = {form.name: form for form in inputs.FORMS.values()} | {
    "summarization": _renamed("summary_text"),
    "translation": _renamed("translation_text"),
    "text-generation": _renamed("generated_text"),
}


def _of_task(name: str, form: Form) -> Route:
    def plan(asked: Asked) -> Planned:
        return form.ask(asked.body, asked.model).planned()

    summary = (form.body.__doc__ or "").partition("\n")[0]
    return Route("POST", f"{_PATH}/pipeline/{name}", plan, summary, form.body, answer=form.answer)


def _own_task(asked: Asked) -> Planned:
    return inputs.by_model(asked.facts, inputs.given_in(asked), inputs.FORMS).planned()


def _info(asked: Asked) -> Planned:
    return Planned(Look(model=asked.model), lambda found: json_reply(tei_words.info(found)))


def _health(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        return Reply(b"", 200 if facts_of(found).state in ("ready", "unloaded") else 503)

    return Planned(Look(model=asked.model), render)


def _error(failure: Failure, status: int) -> Any:
    return {"error": failure.message}


DIALECT = Dialect(
    "huggingface",
    (
        Route("POST", _PATH, _own_task, "The own task of a model.", AnyInputs, needs_facts=True),
        *(_of_task(name, form) for name, form in _FORMS.items()),
        Route("GET", f"{_PATH}/info", _info, "A model, and the limits of the server.", answer=tei_words.INFO),
        Route("GET", f"{_PATH}/health", _health, "Whether a model answers: 200 or 503, without a body."),
    ),
    _error,
)
