"""The answer to a question, as a piece of the text that holds it: ``pipeline("question-answering", model=...)``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from bertkit.engine.backend import SPAN_LOGITS
from bertkit.engine.inference_engine import tokens_of
from bertkit.engine.rows import QUESTIONS
from bertkit.errors import InputError, LongTextError, TextError, counted
from bertkit.inference.pipeline_base import Encoding, Pipeline
from bertkit.inference.pipeline_inputs import Shaped, is_whole, request_of
from bertkit.inference.pipeline_results import FoundAnswer
from bertkit.ragged import Floats
from bertkit.tasks.spans.decoding import Answers, SpanSearch, find_answers
from bertkit.tasks.spans.features import SpanSettings, SpanWindows, featurize_spans
from bertkit.tasks.spans.task import SpanExample, is_question

_SETTINGS = {
    "max_seq_len": "max_length",
    "doc_stride": "doc_stride",
    "max_question_len": "max_query_length",
    "max_answer_len": "max_answer_length",
}


#: An answer as it is returned, and a question as a caller may pass it.
Answer = FoundAnswer | list[FoundAnswer]
Question = SpanExample | Mapping[str, str] | tuple[str, str] | list[str]


class QuestionAnsweringPipeline(Pipeline):
    """Answers that are exact pieces of the context: ``pipeline("question-answering", model=...)``.

    ``decision`` is what the model was trained and tuned with (its ``decision.json``): how long windows are, and for a
    model of questions that may have no answer the threshold that was tuned on dev.
    """

    task: ClassVar[str] = "question-answering"
    unit: ClassVar[str] = "questions"

    def __call__(
        self,
        inputs: str | Question | Iterable[str | Question] | None = None,
        context: str | Iterable[str] | None = None,
        *,
        question: str | Question | Iterable[str | Question] | None = None,
        top_k: int | None = None,
        handle_impossible_answer: bool | None = None,
        null_threshold: float | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        doc_stride: int | None = None,
        align_to_words: bool = True,
        truncation: bool = False,
        progress: bool | None = None,
    ) -> Shaped[Answer]:
        """Answer questions from contexts of any length.

        A question gives ``{"score": p, "start": i, "end": j, "answer": context[i:j]}``, and with ``truncation=True``
        ``truncated``, or with ``top_k`` a list of those: p is the probability of this answer among all pieces of the
        context (and "no answer", where that is possible; its answer is ``""`` at 0).

        inputs: ``{"question": ..., "context": ...}``, a list or an iterable of those; or a question (or several), with
            ``context``. ``question`` is another name of it, as in ``transformers``.
        context: the text with the answer; for several questions one text for all of them, or one for each.
        top_k: as many answers a question, best first, in a list; not given: the best one, not in a list.
        handle_impossible_answer: "no answer" is possible, and is then the empty text; not given: as the model was
            trained (``squad2``).
        null_threshold: "no answer" wins when its score is more than this above that of the best span; not given: what
            was tuned on dev, else 0.
        max_answer_len: most word pieces of an answer; not given: as trained, else 30.
        max_seq_len: most word pieces of a window, special tokens and question included; not given: as trained, else
            384, and never more than the model reads.
        max_question_len: most word pieces of a question; not given: as trained, else 64, and at most half a window.
        doc_stride: word pieces from the beginning of one window to that of the next; not given: as trained, else 128.
        align_to_words: answers that begin or end inside a word are extended to whole words.
        truncation: False (default) refuses a question of more than ``max_question_len`` pieces, True cuts it. A context
            is never cut: a long one is read in windows that overlap.

        Deviates from ``transformers``: ``doc_stride`` is the step, as in the paper's code, not the overlap;
        ``max_answer_len`` is 30, not 15; probabilities are over spans (see :mod:`bertkit.tasks.spans.decoding`); a list
        of one question gives a list of one.
        """
        given = _join(inputs if question is None else question, context)
        lengths = (max_seq_len, doc_stride, max_question_len, max_answer_len)
        settings = self._read_settings(dict(zip(_SETTINGS, lengths, strict=True)), truncation)
        with_null, threshold = self._read_refusal(handle_impossible_answer, null_threshold)
        if top_k is not None and not is_whole(top_k):
            raise InputError(f"top_k must be a whole number from 1, got {top_k!r}")
        search = SpanSearch(top_k or 1, settings.max_answer_length, with_null, align_to_words)

        def windows_of(questions: list[SpanExample], first: int) -> Encoding[Floats, Answer]:
            windows = featurize_spans(questions, self.tokenizer, settings)
            if not truncation:
                _check_questions(windows, settings, first)

            def answers(values: list[Floats]) -> Iterator[Answer]:
                logits = np.concatenate(values)
                best = find_answers(windows, logits[:, 0], logits[:, 1], search)
                for number, (asked, found) in enumerate(zip(questions, best, strict=True)):
                    note = {"truncated": bool(windows.truncated[windows.first_rows[number]])} if truncation else {}
                    ranked = _present(asked, found, threshold if with_null else None, note, first + number)
                    yield ranked[0] if top_k is None else ranked[:top_k]

            return windows.rows, answers

        request = request_of(given, SpanExample.of, "question", one=isinstance(given, Mapping) or is_question(given))
        return self._answer(request, windows_of, SPAN_LOGITS, tokens_of, _size, progress=progress, size=QUESTIONS)

    def _read_refusal(self, possible: bool | None, threshold: float | None) -> tuple[bool, float]:
        """Whether "no answer" is possible, and by how much it must win."""
        tuned = self.decision.get("null_threshold")
        if threshold is not None and (not _is_number(threshold) or math.isnan(threshold)):
            raise InputError(f"null_threshold must be a number, got {threshold!r}")
        with_null = tuned is not None if possible is None else bool(possible)
        return with_null, float(tuned or 0.0) if threshold is None else threshold

    def _read_settings(self, given: Mapping[str, int | None], truncation: bool) -> SpanSettings:
        if truncation not in (True, False):
            raise InputError(f"truncation must be True or False, got {truncation!r}")
        chosen: dict[str, int] = {}
        for name, field in _SETTINGS.items():
            chosen[field] = self._length(name, field, given[name], chosen)
        return SpanSettings(**chosen)

    def _length(self, name: str, field: str, given: int | None, chosen: Mapping[str, int]) -> int:
        """A length as it was given, else as the model was trained, else as in the paper."""
        value = self.decision.get(field) if given is None else given
        if value is not None and not is_whole(value):
            raise InputError(f"{name} must be a whole number from 1, got {value!r}")
        usual: int = getattr(SpanSettings(), field)
        if field == "max_length":
            if given is not None and given > self.max_length:
                raise InputError(f"{name} must be at most {self.max_length} for this model, got {given}")
            return min(value or usual, self.max_length)
        if value is None and field == "max_query_length":
            return max(1, min(usual, chosen["max_length"] // 2))
        return value or usual


def _size(asked: SpanExample) -> int:
    return len(asked.context)


def _present(
    asked: SpanExample, found: Answers, threshold: float | None, note: dict[str, bool], number: int
) -> list[FoundAnswer]:
    """The best answers and, with a threshold, "no answer": first if it wins, else where its score puts it."""
    if not found.spans and threshold is None:
        raise TextError(f"the context of question {number} (counted from 0) has no word piece: {asked.context!r:.40}")
    spans = [(span.probability, span.start, span.end) for span in found.spans]
    if threshold is not None:
        better = sum(span.probability >= found.null_probability for span in found.spans)
        spans.insert(0 if found.is_null(threshold) else max(1, better), (found.null_probability, 0, 0))
    return [
        FoundAnswer({"score": p, "start": start, "end": end, "answer": asked.context[start:end], **note}, asked.context)
        for p, start, end in spans
    ]


def _check_questions(windows: SpanWindows, settings: SpanSettings, first: int) -> None:
    too_long = np.flatnonzero(windows.truncated[windows.first_rows[:-1]])
    if len(too_long):
        number = int(too_long[0])
        row = int(windows.first_rows[number])
        count = settings.max_query_length + int(windows.num_tokens_before[row] - windows.lengths[row])
        raise LongTextError(
            f"question {first + number} (counted from 0) has {count:,} word pieces; the limit is "
            f"{settings.max_query_length}. Shorten it, raise max_question_len, or pass truncation=True (on the command "
            "line: --truncate) to read only its beginning",
            count,
            settings.max_query_length,
        )


def _join(questions: Any, context: Any) -> Any:
    if context is None:
        if isinstance(questions, str):
            raise InputError("a question needs its context: pipe(question, context)")
        return questions
    if questions is None:
        raise InputError("a context needs a question: pipe(question, context)")
    if isinstance(questions, str):
        if not isinstance(context, str):
            raise InputError(f"one question needs one context, a str, got {type(context).__name__}")
        return {"question": questions, "context": context}
    if isinstance(questions, Mapping) or is_question(questions):
        raise InputError(
            "context= goes with a question that is a text; write pipe(question, context), or "
            'pipe({"question": ..., "context": ...})'
        )
    asked = list(questions)
    contexts = [context] * len(asked) if isinstance(context, str) else list(context)
    if len(asked) != len(contexts):
        raise InputError(
            f"got {counted(len(asked), 'question')} but {counted(len(contexts), 'context')}; give "
            "one context for all, or each"
        )
    return [{"question": one, "context": text} for one, text in zip(asked, contexts, strict=True)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
