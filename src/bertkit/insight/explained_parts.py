"""Which tag of a tagger, and which answer of a reader, is explained. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bertkit.errors import InputError, TextError
from bertkit.inference.question_answering import QuestionAnsweringPipeline
from bertkit.insight.read_text import ReadText, number_of
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.tags import OUTSIDE
from bertkit.ragged import Floats

TEXTS, TAGS, ANSWERS = TASKS = ("text-classification", "token-classification", "question-answering")


@dataclass(frozen=True, slots=True)
class ExplainedTag:
    """The tag of a word: the place of the word, the number of the tag, that of the likeliest one, and its probability.

    token: the first piece of the word, whose tag it is.
    """

    place: int
    token: int
    number: int
    best: int
    share: float


@dataclass(frozen=True, slots=True)
class ExplainedAnswer:
    """An answer with its first and its last token; of "no answer" both are the first token of all.

    share: the probability that the model gives it; None for another answer than its own.
    """

    label: str
    predicted: str
    first: int
    last: int
    share: float | None


def tag_of(
    read: ReadText, logits_SC: Floats, names: Mapping[int, str], label: str | None, word: int | str | None
) -> ExplainedTag:
    """The tag of a ``word``, by default the surest one; ``label``: another tag than the likeliest.

    Raises:
        InputError: no such word or tag, or no word has a tag.
    """
    shares_WC = softmax(logits_SC[[each.tokens[0] for each in read.words]])
    best_W = shares_WC.argmax(axis=1)
    if word is None:
        tagged = [place for place, best in enumerate(best_W.tolist()) if names[best] != OUTSIDE]
        if not tagged:
            raise InputError(f"the model tags every word {OUTSIDE}; say which word's tag to explain with word=")
        place = max(tagged, key=lambda each: float(shares_WC[each].max()))
    else:
        place = read.place_of(word)
    best = int(best_W[place])
    number = best if label is None else number_of(label, names)
    return ExplainedTag(place, read.words[place].tokens[0], number, best, float(shares_WC[place, number]))


def answer_of(
    pipe: QuestionAnsweringPipeline, read: ReadText, question: str, context: str, label: str | None
) -> ExplainedAnswer:
    """The model's answer, or the piece ``label`` of the context.

    Raises:
        InputError: ``label`` is no piece of the context.
        TextError: the context has no word.
    """
    ends = [word.end for word in read.words if word.second]
    if not ends:
        raise TextError(f"the context has no word that could be an answer: {context!r:.60}")
    seen, window = context[: max(ends)], len(read.ids)
    asked = {"question": question, "context": seen}
    # The usual limit of a question, half a window, may be less than this question; the window holds both texts.
    answers: Any = pipe(asked, max_seq_len=window, max_question_len=window, align_to_words=False, top_k=1)
    (found,) = answers
    start, end, share = found["start"], found["end"], found["score"]
    if label is not None and label != found["answer"]:
        if not label.strip() or label not in seen:
            raise InputError(f"{label!r:.60} is no piece of the context, so it cannot be the answer to explain")
        start, share = seen.index(label), None
        end = start + len(label)
    inside = [
        token
        for token, (part, span) in enumerate(zip(read.parts, read.spans, strict=True))
        if part == 1 and span[0] < end and start < span[1]
    ]
    first, last = (inside[0], inside[-1]) if inside else (0, 0)
    predicted = found["answer"] or "(no answer)"
    return ExplainedAnswer(label or predicted, predicted, first, last, share)


def check_texts(task: str, text: str, second: str | None) -> None:
    """InputError or TextError for texts that a model of a task does not read."""
    if second is None and task == ANSWERS:
        raise InputError("an answer has a question and a context: give both, the question first")
    if second is not None and task == TAGS:
        raise InputError("a tagger reads single texts, got two; leave one out")
    for each in (text, second):
        if each is not None and not isinstance(each, str):
            raise InputError(f"a text must be a str, got {type(each).__name__}")
        if each is not None and not each.strip():
            raise TextError("a text is empty, so it has no word that could explain anything")
