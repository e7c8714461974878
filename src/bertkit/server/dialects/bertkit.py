"""bertkit's own routes: one for each task, one text or many, all results in the order of what was sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertkit.server.calls import Answer, Look, ServerFacts, Task
from bertkit.server.dialects.bertkit_bodies import (
    Analyze,
    AnswerQuestions,
    Attention,
    Choose,
    Classify,
    Decode,
    Embed,
    Explain,
    FillMask,
    Generate,
    Map,
    NextSentence,
    Redact,
    Rerank,
    Search,
    Similarity,
    Sparse,
    Tag,
    Tokenize,
    ZeroShot,
)
from bertkit.server.dialects.bertkit_examples import ANSWERS
from bertkit.server.dialects.bertkit_schemas import ERROR, INFO, SCHEMAS
from bertkit.server.dialects.route import (
    Asked,
    Body,
    Dialect,
    Planned,
    Reply,
    Route,
    as_base64,
    in_units,
    json_reply,
    listed,
)
from bertkit.server.failures import Failure, Kind


def _paired(given: Any) -> Sequence[Any]:
    items, _ = listed(given)
    return [tuple(item) if isinstance(item, list) else item for item in items]


def _embed(asked: Asked) -> Planned:
    body: Embed = asked.body
    items, _ = listed(body.input)
    if body.chunk is not None or body.overflow == "chunk":
        return _chunks(body, items)
    own = {"normalize": body.normalize, "dimensions": body.dimensions}
    prompts = {"prompt": body.prompt, "prompt_name": body.prompt_name}
    call = body.call("embed-tokens" if body.tokens else "embed", items, body.overflow, **own, **prompts)

    def render(answer: Answer) -> Reply:
        vectors = answer.results
        return body.reply(answer, list(map(as_base64, vectors)) if body.encoding == "base64" else vectors)

    return Planned(call, render)


def _chunks(body: Embed, items: Sequence[Any]) -> Planned:
    others = {name: getattr(body, name) for name in ("tokens", "prompt", "prompt_name")}
    others |= {"overflow": body.overflow not in (None, "chunk"), "encoding": body.encoding != "float"}
    # The text of ids is not known here.
    others |= {"unit": body.unit != "codepoint" and not all(isinstance(item, str) for item in items)}
    if name := next((name for name, given in others.items() if given), None):
        raise Failure("invalid", f"`{name}` does not go with `chunk`{' of ids' * (name == 'unit')}", param=name)
    size = None if body.chunk in (None, "sentence") else body.chunk
    own = {"normalize": body.normalize, "dimensions": body.dimensions}

    def render(answer: Answer) -> Reply:
        pairs = zip(items, answer.results, strict=True)
        return body.reply(answer, [in_units(text, chunks, body.unit) for text, chunks in pairs])

    return Planned(body.call("embed-chunks", items, None, num_tokens=size, **own), render)


def _sparse(asked: Asked) -> Planned:
    body: Sparse = asked.body

    def render(answer: Answer) -> Reply:
        return body.reply(answer, [found.as_dict() for found in answer.results])

    return Planned(body.call("sparse", listed(body.input)[0], body.overflow, top_k=body.top_k), render)


def _similarity(asked: Asked) -> Planned:
    body: Similarity = asked.body
    item = {"source_sentence": body.source, "sentences": body.sentences}
    return Planned(body.call("similarity", [item], body.overflow), lambda answer: body.reply(answer, answer.results[0]))


def _rerank(asked: Asked) -> Planned:
    body: Rerank = asked.body
    item = {"query": body.query, "documents": body.documents}
    call = body.call("rerank", [item], body.overflow, top_k=body.top_k, function_to_apply=body.function)

    def render(answer: Answer) -> Reply:
        ranked = [{"index": each["index"], "score": each["score"]} for each in answer.results[0]]
        return body.reply(answer, ranked)

    return Planned(call, render)


def _classify(asked: Asked) -> Planned:
    body: Classify = asked.body
    call = body.call("classify", _paired(body.input), body.overflow, function_to_apply=body.function)
    least = -math.inf if body.threshold is None else body.threshold

    def render(answer: Answer) -> Reply:
        kept = [[label for label in found[: body.top_k] if label["score"] >= least] for found in answer.results]
        if (rule := body.rule(answer)) is None:
            return body.reply(answer, kept)
        chosen = [rule.chosen({each["label"]: each["score"] for each in found}) for found in answer.results]
        return body.reply(answer, kept, chosen=chosen, abstained=[one is None for one in chosen])

    return Planned(call, render)


def _next_sentence(asked: Asked) -> Planned:
    body: NextSentence = asked.body
    alone = bool(body.input) and isinstance(body.input[0], str)
    pairs: Sequence[Any] = [body.input] if alone else body.input
    call = body.call("next-sentence", list(map(tuple, pairs)), body.overflow)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _zero_shot(asked: Asked) -> Planned:
    body: ZeroShot = asked.body
    options = {"candidate_labels": tuple(body.labels), "multi_label": body.multi_label or None}
    call = body.call("zero-shot", listed(body.input)[0], body.overflow, **options, hypothesis_template=body.template)

    def render(answer: Answer) -> Reply:
        ranked = [zip(found["labels"], found["scores"], strict=True) for found in answer.results]
        return body.reply(answer, [[{"label": label, "score": score} for label, score in each] for each in ranked])

    return Planned(call, render)


def _tag(asked: Asked) -> Planned:
    body: Tag = asked.body
    texts, _ = listed(body.input)
    least = body.threshold or 0.0

    def render(answer: Answer) -> Reply:
        kept = [[one for one in found if one["score"] >= least] for found in answer.results]
        return body.reply(answer, [in_units(text, found, body.unit) for text, found in zip(texts, kept, strict=True)])

    return Planned(body.call("tag", texts, body.overflow, aggregation_strategy=body.aggregation), render)


def _redact(asked: Asked) -> Planned:
    body: Redact = asked.body
    labels = None if body.labels is None else tuple(body.labels)
    texts, _ = listed(body.input)
    call = body.call("redact", texts, body.overflow, labels=labels, threshold=body.threshold)

    def placed(text: str, found: dict[str, Any]) -> dict[str, Any]:
        spans = in_units(text, found["spans"], body.unit)
        return {**found, "spans": in_units(found["text"], spans, body.unit, ("redacted_start", "redacted_end"))}

    return Planned(call, lambda answer: body.reply(answer, list(map(placed, texts, answer.results))))


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

    return Planned(body.call("answer", items, body.overflow, top_k=body.top_k), render)


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
    call = body.call("generate", listed(body.input)[0], None, **options)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _tokenize(asked: Asked) -> Planned:
    body: Tokenize = asked.body
    texts, _ = listed(body.input)
    call = body.call("tokenize", texts, add_special_tokens=body.add_special_tokens)

    def render(answer: Answer) -> Reply:
        pairs = zip(texts, answer.results, strict=True)
        return body.reply(answer, [in_units(text, pieces, body.unit, ("start", "stop")) for text, pieces in pairs])

    return Planned(call, render)


def _decode(asked: Asked) -> Planned:
    body: Decode = asked.body
    call = body.call("decode", listed(body.ids)[0], skip_special_tokens=body.skip_special_tokens)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _search(asked: Asked) -> Planned:
    body: Search = asked.body
    options = {"index": body.index, "top_k": body.top_k, "by": body.by}
    call = body.call("search", listed(body.query)[0], body.overflow, **options)
    return Planned(call, lambda answer: body.reply(answer, answer.results))


def _analyze(asked: Asked) -> Planned:
    body: Analyze = asked.body
    items = _paired(body.input)

    def placed(item: Any, said: dict[str, Any]) -> dict[str, Any]:
        """Heads that find entities read single texts."""
        return {
            name: in_units(item, found, body.unit) if isinstance(found, list) and "start" in (*found, {})[0] else found
            for name, found in said.items()
        }

    return Planned(
        body.call("analyze", items), lambda answer: body.reply(answer, list(map(placed, items, answer.results)))
    )


def _one(given: str | list[str]) -> tuple[str, str | None]:
    return (given, None) if isinstance(given, str) else (given[0], given[1])


def _inside(asked: Asked, task: Task, field: str, names: tuple[str, str], options: Mapping[str, Any]) -> Planned:
    """Plan a look inside one text or pair; ``names`` are the keys of the places of each part in ``field``."""
    body: Attention | Explain = asked.body
    item = _one(body.input)
    texts = item[0], item[1] or ""

    def render(answer: Answer) -> Reply:
        found = answer.results[0]
        parts = [in_units(texts[part["second"]], [part], body.unit, names)[0] for part in found[field]]
        return body.reply(answer, {**found, field: parts})

    return Planned(body.call(task, [item], body.overflow, **options), render)


def _attention(asked: Asked) -> Planned:
    body: Attention = asked.body
    return _inside(asked, "attention", "pieces", ("start", "stop"), {"layer": body.layer, "head": body.head})


def _explain(asked: Asked) -> Planned:
    body: Explain = asked.body
    return _inside(asked, "explain", "words", ("start", "end"), {"label": body.label, "word": body.word, "by": body.by})


def _map(asked: Asked) -> Planned:
    body: Map = asked.body
    call = body.call("map", [{"texts": body.input}], body.overflow, method=body.method)
    return Planned(call, lambda answer: body.reply(answer, answer.results[0]))


def _info(asked: Asked) -> Planned:
    def render(found: ServerFacts) -> Reply:
        return json_reply(found)

    return Planned(Look(model=asked.model), render)


def _error(failure: Failure, status: int) -> Any:
    said: dict[str, Any] = {"type": failure.kind, "message": failure.message}
    if failure.param is not None:
        said["param"] = failure.param
    return {"error": said}


def _post(name: str, plan: Callable[[Asked], Planned], body: type[Body], *keys: str) -> Route:
    summary = (body.__doc__ or "").partition("\n")[0]
    fails = frozenset[Kind]({"missing_package"} if name == "map" else ())
    own = {"answer": ANSWERS[name], "schema": SCHEMAS[name], "fails": fails}
    return Route("POST", f"/v1/{name}", plan, summary, body, keys=frozenset(keys), **own)


_TASKS = (
    _post("embed", _embed, Embed, "input"),
    _post("sparse", _sparse, Sparse),
    _post("similarity", _similarity, Similarity),
    _post("rerank", _rerank, Rerank, "timeout", "wait", "priority", "facts", "overflow", "top_k", "function"),
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
    _post("search", _search, Search),
    _post("analyze", _analyze, Analyze),
)


def _in_lines(route: Route) -> Route:
    """The same for many bodies, one a line, in a path of its own.

    A path and not a content type of the same path: its limits are others, OpenAPI can describe both, a proxy can be
    told not to buffer it, and a client that sends lines by mistake is told so.
    """
    summary = f"{route.summary} One body a line, and one answer a line, in their order."
    path, answer = route.path.replace("/v1/", "/v1/bulk/"), {"line": 1, **route.answer}
    return replace(route, path=path, summary=summary, answer=answer, keys=frozenset(), lines=True)


DIALECT = Dialect(
    "bertkit",
    (
        *_TASKS,
        *map(_in_lines, _TASKS),
        _post("attention", _attention, Attention),
        _post("explain", _explain, Explain),
        _post("map", _map, Map),
        Route("GET", "/v1/info", _info, "The server, its limits and its models.", schema=INFO),
    ),
    _error,
    failed=ERROR,
)
