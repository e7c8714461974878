"""Questions about contexts as model input: ``[CLS] question [SEP] part of the context [SEP]``.

A context that does not fit is read in several windows. Each begins ``doc_stride`` tokens after the one before, as in
the original code (google-research/bert ``run_squad.py``); nothing of a context is ever left out. A context that many
questions share, as in SQuAD, is tokenized once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertkit.errors import ConfigError, InputError
from bertkit.ragged import Ints, rows_from_parts
from bertkit.tasks.pieces import Pieces, find_pieces
from bertkit.tasks.spans.task import SpanExample
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.windows import WindowRows, cut_windows


@dataclass(frozen=True, slots=True)
class SpanSettings:
    """How questions and contexts are cut into windows, and how many tokens an answer that is looked for may have.

    doc_stride: context tokens from the beginning of a window to that of the next. (The option ``doc_stride`` of
        ``transformers`` counts the tokens that two windows share.)
    max_query_length: a longer question loses its end.
    """

    max_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64
    max_answer_length: int = 30

    def __post_init__(self) -> None:
        for name in ("max_length", "doc_stride", "max_query_length", "max_answer_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name} must be a whole number from 1, got {value!r}")


@dataclass(frozen=True, slots=True)
class SpanWindows(WindowRows):
    """Windows of Q questions: R rows, in the order of the questions.

    question: int64 ``(R,)``, the number of the question.
    first_rows: int64 ``(Q + 1,)``; question q owns the rows ``first_rows[q] : first_rows[q + 1]``.
    context_at: int64 ``(R,)``, position in the row of its first context token.
    context_from: int64 ``(R,)``, number of that token in its context.
    context_size: int64 ``(R,)``, context tokens in the row; 0 for a context without any token.
    contexts: the tokens of all contexts. context: int64 ``(Q,)``, which of them belongs to a question.
    starts, ends: int64 ``(R,)``, positions of the first and the last token of the answer in the row; 0, the first
        token, where the window does not hold the whole answer. None without labels.
    lost: questions with an answer that no window holds whole.
    too_long: questions whose answer has more tokens than an answer may have, so that it is learned and never given.
    """

    question: Ints
    first_rows: Ints
    context_at: Ints
    context_from: Ints
    context_size: Ints
    contexts: Pieces
    context: Ints
    starts: Ints | None = None
    ends: Ints | None = None
    lost: tuple[int, ...] = ()
    too_long: tuple[int, ...] = ()
    settings: SpanSettings = SpanSettings()


def featurize_spans(
    examples: Sequence[SpanExample],
    tokenizer: PreTrainedTokenizer,
    settings: SpanSettings | None = None,
    *,
    labelled: bool = False,
) -> SpanWindows:
    """Windows of questions and their contexts.

    With ``labelled`` also the tokens of the first answer of each question; one without answers points at the first
    token ([CLS]) in all of its windows.
    """
    if not examples:
        raise InputError("no questions to turn into features")
    settings = settings or SpanSettings()
    numbers: dict[str, int] = {}
    context = np.array([numbers.setdefault(example.context, len(numbers)) for example in examples], dtype=np.int64)
    contexts = find_pieces(list(numbers), tokenizer)
    questions = tokenizer.encode_ragged([example.question for example in examples], add_special_tokens=False)
    asked = np.minimum(questions.lengths, settings.max_query_length)
    num_special = tokenizer.template.num_special(paired=True)
    rooms = settings.max_length - num_special - asked
    if rooms.min() < 1:
        raise ConfigError(
            f"max_length={settings.max_length} leaves no room for the context beside a question of "
            f"{asked[rooms.argmin()]} tokens and {num_special} special tokens; raise it, or ask a shorter question"
        )
    cut = cut_windows(np.diff(contexts.boundaries)[context], rooms, settings.doc_stride)
    question = cut.owners
    # What rows are made of: [CLS], [SEP]s between texts, the last [SEP], questions, contexts; and their segments.
    between, sep, second = tokenizer.template.between, tokenizer.sep_token_id, int(tokenizer.template.segments)
    special = np.array([tokenizer.cls_token_id, *[sep] * between, sep], dtype=np.int32)
    ids = np.concatenate([special, questions.ids, contexts.ids])
    parts = (1 + between, 1, len(questions.ids), len(contexts.ids))
    types = np.repeat(np.array([0, second, 0, second], dtype=np.int8), parts)
    first_context_token = 2 + between + len(questions.ids)  # behind [CLS], the [SEP]s and the questions
    zero = np.zeros_like(question)
    starts = (
        zero,
        2 + between + questions.boundaries[question],
        zero + 1,
        first_context_token + contexts.boundaries[context[question]] + cut.starts,
        zero + 1 + between,
    )
    sizes = (zero + 1, asked[question], zero + between, cut.sizes, zero + 1)
    uncut = (questions.lengths + num_special)[question] + cut.sizes
    windows = SpanWindows(
        rows=rows_from_parts(ids, types, np.stack(starts, axis=1), np.stack(sizes, axis=1), uncut),
        question=question,
        first_rows=cut.groups,
        context_at=1 + asked[question] + between,
        context_from=cut.starts,
        context_size=cut.sizes,
        contexts=contexts,
        context=context,
        settings=settings,
    )
    return _with_targets(windows, examples) if labelled else windows


def _with_targets(windows: SpanWindows, examples: Sequence[SpanExample]) -> SpanWindows:
    starts, ends = np.zeros(len(windows), dtype=np.int64), np.zeros(len(windows), dtype=np.int64)
    lost, too_long = [], []
    for number, example in enumerate(examples):
        if example.answers is None:
            raise InputError(f"question {number} (counted from 0) has no answers to learn from")
        if not example.answers:
            continue
        answer = example.answers[0]
        first, last = tokens_of(windows.contexts, int(windows.context[number]), answer.start, answer.end)
        rows = np.arange(windows.first_rows[number], windows.first_rows[number + 1])
        begin = windows.context_from[rows]
        inside = (first <= last) & (begin <= first) & (last < begin + windows.context_size[rows])
        if not inside.any():
            lost.append(number)
        if last - first >= windows.settings.max_answer_length:
            too_long.append(number)
        shift = windows.context_at[rows] - begin
        starts[rows] = np.where(inside, first + shift, 0)
        ends[rows] = np.where(inside, last + shift, 0)
    return replace(windows, starts=starts, ends=ends, lost=tuple(lost), too_long=tuple(too_long))


def tokens_of(contexts: Pieces, context: int, start: int, end: int) -> tuple[int, int]:
    """First and last token of a context that share a character with ``start : end``; last < first where none does."""
    span = contexts.span(context)
    first = int(np.searchsorted(contexts.ends[span], start, side="right"))
    last = int(np.searchsorted(contexts.starts[span], end, side="left")) - 1
    return first, last
