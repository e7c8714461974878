"""The form ``{"inputs": ..., "parameters": ...}`` of Hugging Face's servers: bodies, calls and answers of every task.

text-embeddings-inference, Inference Endpoints, SageMaker and Vertex speak it, each at other paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.server.calls import Answer, Call, ModelFacts, Task
from bertkit.server.dialects.route import (
    Asked,
    Body,
    Planned,
    call_of,
    json_reply,
    listed,
    read,
    some,
)
from bertkit.server.dialects.task_bodies import (
    AnswerInputs,
    AnyInputs,
    ChooseInputs,
    ClassifyInputs,
    Cut,
    EmbedInputs,
    FillMaskInputs,
    GenerateInputs,
    PairInputs,
    PredictInputs,
    RerankInputs,
    SimilarityInputs,
    TagInputs,
    TagOptions,
    TextInputs,
    TextPair,
    ZeroShotInputs,
)
from bertkit.server.failures import Failure


@dataclass(frozen=True, slots=True)
class Question:
    """A call, and what the values of its answer are in JSON."""

    call: Call
    present: Callable[[Answer], Any]

    def planned(self) -> Planned:
        """The same for a route."""
        return Planned(self.call, lambda answer: json_reply(self.present(answer)))


Ask = Callable[[Any, str | None], Question]


def _options(body: Body | None) -> dict[str, Any]:
    """Those that were given; lists as tuples, so that they may be keys."""
    given = {} if body is None else body.model_dump(exclude_none=True)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def _one_or_all(alone: bool) -> Callable[[Answer], Any]:
    return lambda answer: answer.results[0] if alone else answer.results


def embed(body: EmbedInputs, model: str | None = None) -> Question:
    """A list of vectors, also of one text."""
    items, _ = listed(body.inputs)
    some(items, "inputs")
    if body.dimensions is not None and body.dimensions < 1:
        raise Failure("invalid", "`dimensions` should be positive", param="dimensions")
    options = {"normalize": body.normalize, "dimensions": body.dimensions, "prompt_name": body.prompt_name}
    return Question(call_of("embed", items, model, body.overflow(), **options), lambda answer: answer.results)


def token_vectors(body: TextInputs, model: str | None = None) -> Question:
    """A vector of each token of each text."""
    items, _ = listed(body.inputs)
    some(items, "inputs")
    call = call_of("embed-tokens", items, model, body.overflow(), prompt_name=body.prompt_name)
    return Question(call, lambda answer: answer.results)


def sparse(body: TextInputs, model: str | None = None) -> Question:
    """The numbers of words in the vocabulary that are not 0, by number."""
    items, _ = listed(body.inputs)
    some(items, "inputs")

    def present(answer: Answer) -> Any:
        return [
            [
                {"index": index, "value": value}
                for index, value in zip(found.ids.tolist(), found.weights.tolist(), strict=True)
            ]
            for found in answer.results
        ]

    return Question(call_of("sparse", items, model, body.overflow()), present)


def rerank(body: RerankInputs, model: str | None = None) -> Question:
    """Numbers of texts and their scores, best first."""
    some(body.texts, "texts")
    item = {"query": body.query, "documents": body.texts}
    function = "none" if body.raw_scores else "sigmoid"

    def present(answer: Answer) -> Any:
        ranked = answer.results[0]
        texts = [{"text": body.texts[each["index"]]} if body.return_text else {} for each in ranked]
        return [
            {"index": each["index"], **text, "score": each["score"]} for each, text in zip(ranked, texts, strict=True)
        ]

    return Question(call_of("rerank", [item], model, body.overflow(), function_to_apply=function), present)


def similarity(body: SimilarityInputs, model: str | None = None) -> Question:
    """A cosine for each text."""
    some(body.inputs.sentences, "sentences")
    cut = body.parameters or Cut()
    item = {"source_sentence": body.inputs.source_sentence, "sentences": body.inputs.sentences}
    call = call_of("similarity", [item], model, cut.overflow(), prompt_name=cut.prompt_name)
    return Question(call, lambda answer: answer.results[0])


def _pair_or_text(given: str | TextPair) -> Any:
    if isinstance(given, str):
        return given
    return given.text if given.text_pair is None else (given.text, given.text_pair)


def classify(body: ClassifyInputs, model: str | None = None) -> Question:
    """A list of labels for each text: of one text in a list of one."""
    given = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    some(given, "inputs")
    call = call_of("classify", list(map(_pair_or_text, given)), model, **_options(body.parameters))
    return Question(call, lambda answer: answer.results)


def _sequence(given: list[str]) -> Any:
    if len(given) not in (1, 2):
        raise Failure(
            "invalid",
            "`inputs` must be a string, a pair of strings [string, string] or a batch of mixed strings and pairs "
            "[[string], [string, string], ...]",
            param="inputs",
        )
    return given[0] if len(given) == 1 else tuple(given)


def predict(body: PredictInputs, model: str | None = None) -> Question:
    """Labels of one sequence, or a list of those for each of a batch."""
    given: Any = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    alone = not given or isinstance(given[0], str)
    items = [_sequence(each) for each in ([given] if alone else given)]
    function = "none" if body.raw_scores else None

    def present(answer: Answer) -> Any:
        found = [[{"score": one["score"], "label": one["label"]} for one in labels] for labels in answer.results]
        return found[0] if alone else found

    return Question(call_of("classify", items, model, body.overflow(), function_to_apply=function), present)


def tag(body: TagInputs, model: str | None = None) -> Question:
    """Entities of a text, or a list of those for each of several."""
    items, alone = listed(body.inputs)
    some(items, "inputs")
    return Question(call_of("tag", items, model, **_options(body.parameters or TagOptions())), _one_or_all(alone))


def answer_question(body: AnswerInputs, model: str | None = None) -> Question:
    """One answer, or with ``top_k`` above 1 a list; a list of either for several questions.

    ``doc_stride`` is not read: it is an overlap there and a step here.
    """
    given = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    some(given, "inputs")
    options = _options(body.parameters)
    if options.get("top_k") == 1:
        del options["top_k"]
    items = [{"question": each.question, "context": each.context} for each in given]
    return Question(call_of("answer", items, model, **options), _one_or_all(not isinstance(body.inputs, list)))


def fill_mask(body: FillMaskInputs, model: str | None = None) -> Question:
    """Guesses for a text with one mask; a list of those for several masks, and another for several texts."""
    items, alone = listed(body.inputs)
    some(items, "inputs")
    return Question(call_of("fill-mask", items, model, **_options(body.parameters)), _one_or_all(alone))


def zero_shot(body: ZeroShotInputs, model: str | None = None) -> Question:
    """Labels of a text, or a list of those for each of several."""
    items, alone = listed(body.inputs)
    some(items, "inputs")
    options = _options(body.parameters)
    if isinstance(body.parameters.candidate_labels, str):
        options["candidate_labels"] = tuple(
            label.strip() for label in body.parameters.candidate_labels.split(",") if label.strip()
        )

    def present(answer: Answer) -> Any:
        found = [
            [{"label": label, "score": score} for label, score in zip(each["labels"], each["scores"], strict=True)]
            for each in answer.results
        ]
        return found[0] if alone else found

    return Question(call_of("zero-shot", items, model, **options), present)


def generate(body: GenerateInputs, model: str | None = None) -> Question:
    """A text for each text."""
    items, _ = listed(body.inputs)
    some(items, "inputs")
    return Question(call_of("generate", items, model, **_options(body.parameters)), lambda answer: answer.results)


def next_sentence(body: PairInputs, model: str | None = None) -> Question:
    """A verdict on a pair, or a list of those."""
    some(body.inputs, "inputs")
    alone = isinstance(body.inputs[0], str)
    pairs: Sequence[Any] = [body.inputs] if alone else body.inputs
    if any(len(pair) != 2 for pair in pairs):
        raise Failure("invalid", "`inputs` must be a pair of texts, or a list of pairs", param="inputs")
    return Question(call_of("next-sentence", list(map(tuple, pairs)), model), _one_or_all(alone))


def choose(body: ChooseInputs, model: str | None = None) -> Question:
    """A choice, or a list of those."""
    given = body.inputs if isinstance(body.inputs, list) else [body.inputs]
    some(given, "inputs")
    items = [{"context": each.context, "choices": each.choices} for each in given]
    return Question(call_of("choose", items, model), _one_or_all(not isinstance(body.inputs, list)))


@dataclass(frozen=True, slots=True)
class Form:
    """How a task is asked: its name at Hugging Face, its body and an example of an answer."""

    name: str
    body: type[Body]
    ask: Ask
    answer: Any


_SCORES = [{"label": "positive", "score": 0.98}, {"label": "negative", "score": 0.02}]
#: By what a model is asked.
FORMS: Mapping[Task, Form] = {
    "embed": Form("feature-extraction", EmbedInputs, embed, [[0.0125, -0.0531, 0.0342]]),
    "sparse": Form("sparse-encoding", TextInputs, sparse, [[{"index": 2924, "value": 1.86}]]),
    "similarity": Form("sentence-similarity", SimilarityInputs, similarity, [0.71, 0.12]),
    "rerank": Form("text-ranking", RerankInputs, rerank, [{"index": 1, "score": 0.93}, {"index": 0, "score": 0.02}]),
    "classify": Form("text-classification", ClassifyInputs, classify, [_SCORES]),
    "zero-shot": Form("zero-shot-classification", ZeroShotInputs, zero_shot, _SCORES),
    "tag": Form(
        "token-classification",
        TagInputs,
        tag,
        [{"entity_group": "LOC", "score": 0.99, "word": "Bern", "start": 8, "end": 12}],
    ),
    "answer": Form(
        "question-answering", AnswerInputs, answer_question, {"answer": "Bern", "score": 0.9, "start": 8, "end": 12}
    ),
    "choose": Form(
        "multiple-choice",
        ChooseInputs,
        choose,
        {"choice": "The water boiled.", "index": 0, "score": 0.97, "scores": [0.97, 0.03]},
    ),
    "fill-mask": Form(
        "fill-mask",
        FillMaskInputs,
        fill_mask,
        [{"sequence": "the bank of the river.", "score": 0.21, "token": 2924, "token_str": "bank"}],
    ),
    "next-sentence": Form(
        "next-sentence", PairInputs, next_sentence, {"label": "is_next", "score": 0.99, "is_next": 0.99}
    ),
    "generate": Form("text2text-generation", GenerateInputs, generate, [{"generated_text": "La rive."}]),
}
#: As text-embeddings-inference does it, which has no list around the labels of one text.
BARE_FORMS: Mapping[Task, Form] = {**FORMS, "classify": Form("predict", PredictInputs, predict, _SCORES)}
#: Parts of ``inputs`` or ``parameters`` that only one task has: a model that does it is asked for it.
_TELLING: Mapping[str, Task] = {
    "source_sentence": "similarity",
    "candidate_labels": "zero-shot",
    "question": "answer",
    "choices": "choose",
}


def task_of(facts: ModelFacts, given: Mapping[str, Any]) -> Task:
    """What a body asks of a model: mostly the model's own task."""
    parts = [part for part in (given.get("inputs"), given.get("parameters")) if isinstance(part, Mapping)]
    for name, task in _TELLING.items():
        if task in facts.tasks and any(name in part for part in parts):
            return task
    return next((task for task in facts.tasks if task in FORMS), facts.tasks[0] if facts.tasks else "embed")


def by_model(facts: ModelFacts | None, given: Mapping[str, Any], forms: Mapping[Task, Form]) -> Question:
    """The question of a body to a model, by the task of the model."""
    if facts is None:
        raise Failure("unknown_model", "there is no model")
    task = task_of(facts, given)
    if task not in forms:
        raise Failure("wrong_task", f"the model {facts.name} does {task!r}, which is not asked in this form")
    form = forms[task]
    return form.ask(read(form.body, given), facts.name)


def given_in(asked: Asked) -> dict[str, Any]:
    """The fields of a body of ``AnyInputs`` that were sent."""
    body: AnyInputs = asked.body
    return body.model_dump(exclude_unset=True)
