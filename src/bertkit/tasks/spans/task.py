"""Question answering: a question and a context in, a piece of the context out. SQuAD v1.1 and v2.0.

An answer is a text and the character where it begins in its context, so that ``context[start : start + len(text)]`` is
the answer, always. ``squad`` has an answer to each question (Rajpurkar et al. 2016); ``squad2`` has questions without
any (Rajpurkar et al. 2018), and right is then the empty text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, InputError, TextError
from bertkit.tasks.examples import BuiltIn, place_of
from bertkit.tasks.spans.metrics import answer_points, best_threshold, with_threshold

#: What an example is called where a file has no lines.
QUESTION = "question"


class Answer(NamedTuple):
    """A right answer: ``context[start : start + len(text)] == text``."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The character behind it."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class SpanExample:
    """One question about one context; ``title`` is of the article, which groups contexts, and may be empty.

    answers: in the file's order; empty where the question has no answer, None where the file does not say (test).
    row: number of the question in the file, from 1; in JSONL the line, in Parquet the record.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] | None = None
    row: int = 0
    source: str = ""
    title: str = ""

    @classmethod
    def of(cls, item: Any, where: str) -> Self:
        """A question in the one form; checked when it is drawn."""
        if isinstance(item, Mapping):
            unknown = sorted(str(key) for key in item.keys() - {"question", "context", "id"})
            if unknown or not {"question", "context"} <= item.keys():
                raise InputError(f"{where} is a dict with {sorted(map(str, item))}; expected 'question' and 'context'")
            asked, context = item["question"], item["context"]
        elif is_question(item):
            asked, context = item.question, item.context
        elif isinstance(item, tuple | list) and len(item) == 2:
            asked, context = item
        else:
            raise InputError(f'{where} must be {{"question": ..., "context": ...}}, got {type(item).__name__}')
        for name, value in (("question", asked), ("context", context)):
            if not isinstance(value, str):
                raise InputError(f"the {name} of {where} must be a str, got {type(value).__name__}")
            if not value.strip():
                raise TextError(f"the {name} of {where} is empty")
        return cls("", asked, context)

    @property
    def where(self) -> str:
        """File, row and id for error messages."""
        return f"{place_of(self.source, self.row, QUESTION)} (id {self.id})"

    @property
    def label(self) -> str | None:
        """Text of the first answer, empty if there is no answer; None if the file has no answers."""
        return None if self.answers is None else self.answers[0].text if self.answers else ""


def is_question(item: Any) -> bool:
    """Whether an object has a question and a context."""
    return isinstance(getattr(item, "question", None), str) and isinstance(getattr(item, "context", None), str)


@dataclass(frozen=True, slots=True)
class SpanTask(BuiltIn):
    """Spans of contexts, and with ``no_answers`` the metrics of v2.0. ``version`` is in the names of its files."""

    form: ClassVar[str] = "span"

    name: str
    no_answers: bool
    version: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what :func:`score_answers` gives."""
        halves = ("HasAns_exact", "HasAns_f1", "NoAns_exact", "NoAns_f1") if self.no_answers else ()
        return ("f1", "exact_match", *halves)

    @property
    def main_metric(self) -> str:
        """F1, the metric of both papers that says more."""
        return "f1"


SQUAD = SpanTask(
    name="squad",
    about="where in the paragraph is the answer? (SQuAD v1.1, Rajpurkar et al. 2016)",
    no_answers=False,
    version="1.1",
    folders=("squad", "squad1", "squad11", "squadv11"),
)
SQUAD2 = SpanTask(
    name="squad2",
    about="where in the paragraph is the answer, if it has one? (SQuAD v2.0, Rajpurkar et al. 2018)",
    no_answers=True,
    version="2.0",
    folders=("squad2", "squadv2", "squad20", "squadv20", "squad"),
)


class AnswerScores(NamedTuple):
    """Scores from 0 to 1, and the threshold above which a null score meant "no answer"; None if that is not asked."""

    scores: dict[str, float]
    threshold: float | None = None


def score_answers(
    task: SpanTask,
    examples: Sequence[SpanExample],
    answers: Sequence[str],
    null_scores: npt.ArrayLike | None = None,
    threshold: float | None = None,
) -> AnswerScores:
    """Score one answer for each of n labelled questions by the task's official rules.

    ``answers`` are the final word, or with ``null_scores`` ``(n,)`` the best texts that are not empty: a null score
    says how much "no answer" is preferred to that text, which it replaces above the threshold. A threshold of None
    takes the one that gives these questions the highest F1, as the paper does on dev (Devlin et al. 2019, section 4.3).
    """
    if not examples:
        raise InputError("nothing to score: no questions")
    for example in examples:
        if example.answers is None:
            raise DataError(f"{example.where} has no 'answers', so it cannot be scored")
    references = [[answer.text for answer in example.answers or ()] for example in examples]
    points = answer_points(answers, references, no_answers=task.no_answers)
    has_answer = np.array([bool(example.answers) for example in examples])
    if task.no_answers and null_scores is not None:
        nulls = np.asarray(null_scores, dtype=np.float64)
        if threshold is None:
            threshold, _ = best_threshold(points.f1, has_answer, nulls)
        points = with_threshold(points, has_answer, nulls, threshold)
    found = {"f1": float(points.f1.mean()), "exact_match": float(points.exact.mean())}
    for prefix, chosen in (("HasAns", has_answer), ("NoAns", ~has_answer)):
        if task.no_answers and chosen.any():
            found[f"{prefix}_exact"] = float(points.exact[chosen].mean())
            found[f"{prefix}_f1"] = float(points.f1[chosen].mean())
    return AnswerScores(found, threshold if task.no_answers else None)
