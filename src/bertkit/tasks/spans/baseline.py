"""A baseline for question answering: a likely span in the sentence that shares most words with the question.

In the manner of the sliding window of Richardson et al. (2013), which gave 20 F1 on the whole dev set of SQuAD v1.1
(Rajpurkar et al. 2016, table 5). All it learns is how rare words are and, if questions may have no answer, the
least overlap for an answer.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertkit.tasks.examples import Row
from bertkit.tasks.spans.task import SpanExample, SpanTask, score_answers

_word = re.compile(r"\w+(?:[.,'’\-]\w+)*|[^\w\s]")
_number_question = re.compile(
    r"\bhow (many|much|old|long|far|large|high|tall)\b|\bwhen\b|\bwh(at|ich) (\w+ )?(year|date|day)"
)
#: Words that begin no answer and say little in a question.
STOP_WORDS = frozenset(
    """a an the of in on at to for from by with as and or but is are was were be been being has have had do does did
    what which who whom whose when where why how many much that this these those it its he she his her they their
    there not no than then also can could will would may might should""".split()
)
_NUMBER_WORDS = frozenset("one two three four five six seven eight nine ten eleven twelve hundred thousand".split())
#: Training questions, at most, by which it is learned when to say "no answer".
TUNED_ON = 5000
#: Most words of a candidate.
LONGEST = 8


@dataclass(frozen=True, slots=True)
class _Context:
    """Words of a context: text in lower case, start, end, number of the sentence, and whether it has a capital."""

    words: list[str]
    starts: list[int]
    ends: list[int]
    sentences: list[int]
    capitals: list[bool]


def overlap_baseline(train: Sequence[SpanExample], dev: Sequence[SpanExample], task: SpanTask) -> Row:
    """Count words in train, answer dev. The same input gives the same numbers."""
    started = time.perf_counter()
    rarity = _rarity(train)
    read: dict[str, _Context] = {}
    threshold = None
    if task.no_answers:
        some = train[:: math.ceil(len(train) / TUNED_ON)]
        scored = [_answer(example, rarity, read) for example in some]
        threshold = score_answers(task, some, [text for text, _ in scored], [-score for _, score in scored]).threshold
    found = [_answer(example, rarity, read) for example in dev]
    nulls = [-score for _, score in found] if task.no_answers else None
    result = score_answers(task, dev, [text for text, _ in found], nulls, threshold)
    rule = "; 'no answer' where they share little" if task.no_answers else ""
    return {
        "model": f"a likely span of the sentence that shares most rare words with the question{rule}",
        "name": "word overlap",
        "metrics": result.scores,
        "train_rows": len(train),
        "dev_rows": len(dev),
        "seconds": time.perf_counter() - started,
    }


def _answer(example: SpanExample, rarity: Mapping[str, float], read: dict[str, _Context]) -> tuple[str, float]:
    """The best candidate, and the share of the question's weight that its sentence has."""
    context = read.get(example.context)
    if context is None:
        context = read[example.context] = _read(example.context)
    asked = {word for word in _words(example.question) if word not in STOP_WORDS and word[0].isalnum()}
    if not context.words:
        return "", 0.0
    weight = {word: rarity.get(word, rarity[""]) for word in asked}
    total = sum(weight.values()) or 1.0
    shared: dict[int, float] = {}
    for word, sentence in {(word, s) for word, s in zip(context.words, context.sentences, strict=True)}:
        shared[sentence] = shared.get(sentence, 0.0) + weight.get(word, 0.0) / total
    kind = _kind_of(example.question)
    near = [place for place, word in enumerate(context.words) if word in asked]
    best, best_score = (0, 0), -math.inf
    for first, last in _candidates(context, asked):
        sentence = context.sentences[first]
        distance = min((abs(place - first) for place in near if context.sentences[place] == sentence), default=20)
        score = shared[sentence] + 0.3 * _fits(kind, context, first, last) + 0.1 / (1 + distance)
        if score > best_score:
            best, best_score = (first, last), score
    return example.context[context.starts[best[0]] : context.ends[best[1]]], shared[context.sentences[best[0]]]


def _candidates(context: _Context, asked: set[str]) -> list[tuple[int, int]]:
    """Runs of words without those of the question, outer stop words, punctuation; and their capitals and numbers."""
    found: dict[tuple[int, int], None] = {}
    begin: int | None = None
    for place in range(len(context.words) + 1):
        open_ = place < len(context.words) and context.words[place] not in asked and context.words[place][0].isalnum()
        if open_ and begin is not None and context.sentences[place] != context.sentences[begin]:
            _add_runs(context, begin, place, found)
            begin = place
        elif open_ and begin is None:
            begin = place
        elif not open_ and begin is not None:
            _add_runs(context, begin, place, found)
            begin = None
    return list(found) or [(0, 0)]


def _add_runs(context: _Context, begin: int, stop: int, found: dict[tuple[int, int], None]) -> None:
    def add(first: int, behind: int) -> None:
        while first < behind and context.words[first] in STOP_WORDS:
            first += 1
        while first < behind and context.words[behind - 1] in STOP_WORDS:
            behind -= 1
        if first < behind:
            found[first, min(behind, first + LONGEST) - 1] = None

    add(begin, stop)
    for holds in (lambda place: context.capitals[place], lambda place: _is_number(context.words[place])):
        first = None
        for place in range(begin, stop + 1):
            if place < stop and holds(place):
                first = place if first is None else first
            elif first is not None:
                add(first, place)
                first = None


def _fits(kind: str, context: _Context, first: int, last: int) -> float:
    numbers = any(_is_number(context.words[place]) for place in range(first, last + 1))
    if kind == "number":
        return float(numbers)
    if kind == "name":
        capitals = sum(context.capitals[first : last + 1]) / (last + 1 - first)
        return capitals if not numbers else 0.0
    return 0.5 / (last + 1 - first) if numbers else 0.5


def _kind_of(question: str) -> str:
    text = question.casefold()
    if _number_question.search(text):
        return "number"
    return "name" if re.search(r"\b(who|whom|whose|where)\b", text) else "other"


def _is_number(word: str) -> bool:
    return word[0].isdigit() or word in _NUMBER_WORDS


def _read(text: str) -> _Context:
    context = _Context([], [], [], [], [])
    sentence = 0
    for match in _word.finditer(text):
        word = match.group()
        context.words.append(word.casefold())
        context.starts.append(match.start())
        context.ends.append(match.end())
        context.sentences.append(sentence)
        context.capitals.append(word[0].isupper())
        if word in ".!?。！？":
            sentence += 1
    return context


def _words(text: str) -> list[str]:
    return [match.group().casefold() for match in _word.finditer(text)]


def _rarity(train: Sequence[SpanExample]) -> dict[str, float]:
    """Inverse document frequency over the contexts of train; ``""`` has that of a word never seen."""
    contexts = {example.context for example in train}
    counts: Counter[str] = Counter()
    for context in contexts:
        counts.update(set(_words(context)))
    total = 1 + len(contexts)
    return {"": math.log(total), **{word: math.log(total / (1 + count)) for word, count in counts.items()}}
