"""bertkit's own routes: one for each task, one text or many, all results in the order of what was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from bertkit.server.calls import Answer, Call, Look, Overflow, ServerFacts, Task
from bertkit.server.dialects.route import (
    Asked,
    Body,
    Count,
    Dialect,
    Ids,
    Planned,
    Reply,
    Route,
    Share,
    Text,
    Texts,
    TextsOrIds,
    as_base64,
    json_reply,
    listed,
)
from bertkit.server.failures import Failure


class Common(Body):
    """What every task takes."""

    model: Annotated[str | None, Field(description="name of a model; by default the first that does the task")] = None
    timeout: Annotated[
        float | None, Field(gt=0, le=3600, description="seconds after which the answer is not wanted any more")
    ] = None
    priority: Annotated[
        Literal["interactive", "bulk"], Field(description="bulk work waits behind interactive requests")
    ] = "interactive"
    facts: Annotated[bool, Field(description="also say the model's revision, engine, calibration and dev scores")] = (
        False
    )

    def call(self, task: Task, items: Sequence[Any], overflow: Overflow | None = None, **options: Any) -> Call:
        """The call, without options that were not given."""
        given = {name: value for name, value in options.items() if value is not None}
        return Call(
            task=task,
            items=items,
            model=self.model,
            options=given,
            overflow=overflow,
            timeout=self.timeout,
            bulk=self.priority == "bulk",
        )

    def reply(self, answer: Answer, results: Sequence[Any]) -> Reply:
        """The results with what is said of every answer."""
        body: dict[str, Any] = {
            "model": answer.model.name,
            "results": results,
            "truncated": answer.truncated,
            "usage": {"tokens": sum(answer.tokens)},
        }
        if self.facts:
            model = answer.model
            body["facts"] = {
                "revision": model.revision,
                "engine": model.engine,
                "temperature": model.temperature,
                "dev_scores": model.dev_scores,
            }
        return json_reply(body)


Reading = Annotated[
    Literal["error", "truncate"] | None,
    Field(description="a text that is too long is refused, or cut; by default as the model was trained, else refused"),
]
Windows = Annotated[
    Literal["error", "truncate", "window"] | None,
    Field(description="the same; 'window': it is read whole, in windows that overlap"),
]
Pair = Annotated[list[str], Field(min_length=2, max_length=2, examples=[["He went to the bank.", "It was closed."]])]


class Embed(Common):
    """Texts to vectors."""

    input: TextsOrIds
    overflow: Reading = None
    normalize: bool | None = None
    dimensions: Annotated[Count | None, Field(description="keep the first numbers of each vector")] = None
    prompt: str | None = None
    prompt_name: str | None = None
    tokens: Annotated[bool, Field(description="a vector for each token in place of one for the text")] = False
    encoding: Literal["float", "base64"] = "float"


class Sparse(Common):
    """Texts to weights of words."""

    input: Texts
    overflow: Reading = None
    top_k: Count | None = None


class Similarity(Common):
    """One text compared with others."""

    source: Text
    sentences: Annotated[list[str], Field(min_length=1)]
    overflow: Reading = None


class Classify(Common):
    """Labels of texts or pairs."""

    input: Annotated[str | list[str | Pair], Field(examples=[["A film to remember."]])]
    overflow: Windows = None
    top_k: Annotated[Count | None, Field(description="the most probable labels; by default all")] = None
    function: Literal["softmax", "sigmoid", "none"] | None = None
    threshold: Annotated[
        Share | None, Field(description="leave out labels of a lower score: none may be left, which is an abstention")
    ] = None


class NextSentence(Common):
    """Whether the second text of a pair follows the first."""

    input: Annotated[Pair | list[Pair], Field(examples=[[["He went to the bank.", "It was closed."]]])]
    overflow: Reading = None


class ZeroShot(Common):
    """Labels that the model was not trained on."""

    input: Texts
    labels: Annotated[list[str], Field(min_length=1, examples=[["sports", "politics"]])]
    multi_label: bool = False
    template: Annotated[str | None, Field(description="the hypothesis, with {} for the label")] = None


class Tag(Common):
    """Entities in texts of any length."""

    input: Texts
    aggregation: Literal["none", "simple", "first", "average", "max"] = "simple"
    unit: Annotated[Literal["codepoint", "utf16", "utf8"], Field(description="what start and end count")] = "codepoint"
    threshold: Share | None = None


class Redact(Common):
    """Texts with their entities replaced by placeholders."""

    input: Texts
    labels: Annotated[list[str] | None, Field(description="types of entities to replace; by default all")] = None
    threshold: Share | None = None


class Question(Body):
    """A question and the text that holds its answer."""

    question: Annotated[str, Field(examples=["Where is the bank?"])]
    context: Annotated[str, Field(examples=["The bank is by the river."])]


class AnswerQuestions(Common):
    """Answers as slices of their contexts, of any length."""

    input: Question | list[Question]
    top_k: Count | None = None
    unit: Literal["codepoint", "utf16", "utf8"] = "codepoint"


class ChoiceQuestion(Body):
    """A context and its possible continuations."""

    context: Annotated[str, Field(examples=["She put the kettle on."])]
    choices: Annotated[list[str], Field(min_length=2, examples=[["The water boiled.", "The car started."]])]


class Choose(Common):
    """The likeliest of several choices."""

    input: ChoiceQuestion | list[ChoiceQuestion]
    overflow: Reading = None


class FillMask(Common):
    """Words in the place of masks."""

    input: Annotated[str | list[str], Field(examples=["The [MASK] of the river."])]
    top_k: Count = 5
    targets: Annotated[list[str] | None, Field(description="only these words are considered")] = None
    overflow: Reading = None


class Generate(Common):
    """Text that a BART or T5 writes."""

    input: Texts
    max_new_tokens: Count | None = None
    num_beams: Count | None = None


class Tokenize(Common):
    """The pieces of texts."""

    input: Texts
    add_special_tokens: bool = True


class Decode(Common):
    """Ids of tokens back to text."""

    ids: Ids | list[Ids]
    skip_special_tokens: bool = True


class Analyze(Common):
    """All heads of a model at once."""

    input: Annotated[str | list[str | Pair], Field(examples=[["A film to remember."]])]


class Attention(Common):
    """How much each piece of a text attends to each other one, in one layer."""

    input: Annotated[str | Pair, Field(examples=["The bank of the river."])]
    layer: Annotated[Count | None, Field(description="from 1 on; by default the top one")] = None
    head: Annotated[Count | None, Field(description="from 1 on; by default all")] = None
    overflow: Reading = None


class Explain(Common):
    """Which words moved a label: how much its probability drops without each of them."""

    input: Annotated[str | Pair, Field(examples=["A film to remember."])]
    label: Annotated[str | None, Field(description="by default the most probable one")] = None
    overflow: Reading = None


class Map(Common):
    """Texts as points in a plane, similar ones near each other."""

    input: Annotated[list[str], Field(min_length=3, max_length=1000, examples=[["A river.", "A lake.", "A loan."]])]
    method: Annotated[Literal["pca", "tsne"], Field(description="t-SNE needs scikit-learn")] = "pca"
    overflow: Reading = None


def _paired(given: Any) -> Sequence[Any]:
    items, _ = listed(given)
    return [tuple(item) if isinstance(item, list) else item for item in items]


def _embed(asked: Asked) -> Planned:
    body: Embed = asked.body
    items, _ = listed(body.input)
    own = {"normalize": body.normalize, "dimensions": body.dimensions}
    prompts = {"prompt": body.prompt, "prompt_name": body.prompt_name}
    call = body.call("embed-tokens" if body.tokens else "embed", items, body.overflow, **own, **prompts)

    def render(answer: Answer) -> Reply:
        vectors = answer.results
        return body.reply(answer, list(map(as_base64, vectors)) if body.encoding == "base64" else vectors)

    return Planned(call, render)


def _sparse(asked: Asked) -> Planned:
    body: Sparse = asked.body

    def render(answer: Answer) -> Reply:
        return body.reply(answer, [found.as_dict() for found in answer.results])

    return Planned(body.call("sparse", listed(body.input)[0], body.overflow, top_k=body.top_k), render)


def _similarity(asked: Asked) -> Planned:
    body: Similarity = asked.body
    item = {"source_sentence": body.source, "sentences": body.sentences}
    return Planned(body.call("similarity", [item], body.overflow), lambda answer: body.reply(answer, answer.results[0]))


def _classify(asked: Asked) -> Planned:
    body: Classify = asked.body
    call = body.call("classify", _paired(body.input), body.overflow, top_k=body.top_k, function_to_apply=body.function)
    least = body.threshold or 0.0

    def render(answer: Answer) -> Reply:
        kept = [[label for label in found if label["score"] >= least] for found in answer.results]
        return body.reply(answer, kept if body.threshold is not None else answer.results)

    return Planned(call, render)


def _next_sentence(asked: Asked) -> Planned:
    body: NextSentence = asked.body
    alone = isinstance(body.input[0], str)
    pairs: Sequence[Any] = [body.input] if alone else body.input
    call = body.call("next-sentence", list(map(tuple, pairs)), body.overflow)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _zero_shot(asked: Asked) -> Planned:
    body: ZeroShot = asked.body
    options = {"candidate_labels": tuple(body.labels), "multi_label": body.multi_label or None}
    call = body.call("zero-shot", listed(body.input)[0], None, **options, hypothesis_template=body.template)

    def render(answer: Answer) -> Reply:
        ranked = [zip(found["labels"], found["scores"], strict=True) for found in answer.results]
        return body.reply(answer, [[{"label": label, "score": score} for label, score in each] for each in ranked])

    return Planned(call, render)


def in_units(text: str, spans: Sequence[dict[str, Any]], unit: str) -> list[dict[str, Any]]:
    """Spans whose ``start`` and ``end`` count code units of UTF-16, or bytes of UTF-8, in place of code points."""
    if unit == "codepoint" or text.isascii():
        return list(spans)
    size: Callable[[str], int] = {
        "utf16": lambda part: len(part.encode("utf-16-le", "surrogatepass")) // 2,
        "utf8": lambda part: len(part.encode("utf-8", "surrogatepass")),
    }[unit]
    return [{**each, "start": size(text[: each["start"]]), "end": size(text[: each["end"]])} for each in spans]


def _tag(asked: Asked) -> Planned:
    body: Tag = asked.body
    texts, _ = listed(body.input)
    least = body.threshold or 0.0

    def render(answer: Answer) -> Reply:
        kept = [[one for one in found if one["score"] >= least] for found in answer.results]
        return body.reply(answer, [in_units(text, found, body.unit) for text, found in zip(texts, kept, strict=True)])

    return Planned(body.call("tag", texts, aggregation_strategy=body.aggregation), render)


def _redact(asked: Asked) -> Planned:
    body: Redact = asked.body
    labels = None if body.labels is None else tuple(body.labels)
    call = body.call("redact", listed(body.input)[0], labels=labels, threshold=body.threshold)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _answer(asked: Asked) -> Planned:
    body: AnswerQuestions = asked.body
    questions = body.input if isinstance(body.input, list) else [body.input]
    items = [{"question": each.question, "context": each.context} for each in questions]

    def render(answer: Answer) -> Reply:
        results = []
        for item, found in zip(items, answer.results, strict=True):
            spans = in_units(item["context"], found if isinstance(found, list) else [found], body.unit)
            results.append(spans if isinstance(found, list) else spans[0])
        return body.reply(answer, results)

    return Planned(body.call("answer", items, top_k=body.top_k), render)


def _choose(asked: Asked) -> Planned:
    body: Choose = asked.body
    questions = body.input if isinstance(body.input, list) else [body.input]
    items = [{"context": each.context, "choices": each.choices} for each in questions]
    return Planned(body.call("choose", items, body.overflow), lambda answer: body.reply(answer, answer.results))


def _fill_mask(asked: Asked) -> Planned:
    body: FillMask = asked.body
    targets = None if body.targets is None else tuple(body.targets)
    call = body.call("fill-mask", listed(body.input)[0], body.overflow, top_k=body.top_k, targets=targets)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _generate(asked: Asked) -> Planned:
    body: Generate = asked.body
    options = {"max_new_tokens": body.max_new_tokens, "num_beams": body.num_beams}
    return Planned(
        body.call("generate", listed(body.input)[0], None, **options), lambda answer: body.reply(answer, answer.results)
    )


def _tokenize(asked: Asked) -> Planned:
    body: Tokenize = asked.body
    call = body.call("tokenize", listed(body.input)[0], add_special_tokens=body.add_special_tokens)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _decode(asked: Asked) -> Planned:
    body: Decode = asked.body
    call = body.call("decode", listed(body.ids)[0], skip_special_tokens=body.skip_special_tokens)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _analyze(asked: Asked) -> Planned:
    body: Analyze = asked.body
    return Planned(body.call("analyze", _paired(body.input)), lambda answer: body.reply(answer, answer.results))


def _one(given: str | list[str]) -> tuple[str, str | None]:
    return (given, None) if isinstance(given, str) else (given[0], given[1])


def _attention(asked: Asked) -> Planned:
    body: Attention = asked.body
    call = body.call("attention", [_one(body.input)], body.overflow, layer=body.layer, head=body.head)
    return Planned(call, lambda answer: body.reply(answer, answer.results[0]))


def _explain(asked: Asked) -> Planned:
    body: Explain = asked.body
    call = body.call("explain", [_one(body.input)], body.overflow, label=body.label)
    return Planned(call, lambda answer: body.reply(answer, answer.results[0]))


def _map(asked: Asked) -> Planned:
    body: Map = asked.body
    call = body.call("map", [{"texts": body.input}], body.overflow, method=body.method)
    return Planned(call, lambda answer: body.reply(answer, answer.results[0]))


def _info(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        return json_reply({"version": found.version, "limits": found.limits, "models": found.models})

    return Planned(Look(model=asked.model), render)


def _error(failure: Failure, status: int) -> Any:
    said: dict[str, Any] = {"type": failure.kind, "message": failure.message}
    if failure.param is not None:
        said["param"] = failure.param
    return {"error": said}


def _post(name: str, plan: Callable[[Asked], Planned], body: type[Body], *keys: str) -> Route:
    return Route("POST", f"/v1/{name}", plan, (body.__doc__ or "").partition("\n")[0], body, keys=frozenset(keys))


DIALECT = Dialect(
    "bertkit",
    (
        _post("embed", _embed, Embed, "input"),
        _post("sparse", _sparse, Sparse),
        _post("similarity", _similarity, Similarity),
        _post("classify", _classify, Classify, "input"),
        _post("next-sentence", _next_sentence, NextSentence),
        _post("zero-shot", _zero_shot, ZeroShot),
        _post("tag", _tag, Tag),
        _post("redact", _redact, Redact),
        _post("answer", _answer, AnswerQuestions),
        _post("choose", _choose, Choose),
        _post("fill-mask", _fill_mask, FillMask),
        _post("generate", _generate, Generate),
        _post("tokenize", _tokenize, Tokenize),
        _post("decode", _decode, Decode),
        _post("analyze", _analyze, Analyze),
        _post("attention", _attention, Attention),
        _post("explain", _explain, Explain),
        _post("map", _map, Map),
        Route("GET", "/v1/info", _info, "The server, its limits and its models."),
    ),
    _error,
)
