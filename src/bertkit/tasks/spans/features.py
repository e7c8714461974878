"""Questions about contexts as model input: ``[CLS] question [SEP] part of the context [SEP]``.

A context that does not fit is read in several windows. Each begins ``doc_stride`` tokens after the one before, as in
the original code (google-research/bert ``run_squad.py``); nothing of a context is ever left out. A context that many
questions share, as in SQuAD, is tokenised once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bertkit.batch import Batch
from bertkit.errors import ConfigError, InputError
from bertkit.tasks.text.features import FeatureSet, Ints, RaggedTokens, TextEncoder, collate

Ids = npt.NDArray[np.int32]
#: Contexts that are tokenised together; the offsets of each token take a hundred bytes until they are numbers.
CONTEXTS_AT_ONCE = 256


class SpanEncoder(TextEncoder, Protocol):
    """What this module needs of a tokenizer; :class:`bertkit.tokenization.BertTokenizer` has it."""

    def __call__(
        self,
        text: Any,
        *,
        add_special_tokens: bool = True,
        truncation: Any = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_offsets_mapping: bool = False,
    ) -> Any:
        """``input_ids`` of a list of texts, their ``offset_mapping`` if asked for, and ``word_ids(row)``."""


class Question(Protocol):
    """What :func:`featurize_spans` reads of an example; :class:`bertkit.tasks.spans.task.SpanExample` is one."""

    @property
    def question(self) -> str:
        """The question."""

    @property
    def context(self) -> str:
        """The text that may hold the answer."""

    @property
    def answers(self) -> Sequence[Any] | None:
        """Right answers, each with ``start`` and ``end`` (characters of the context); the first one is learned."""


@dataclass(frozen=True, slots=True)
class SpanSettings:
    """How questions and contexts are cut into windows, and how long an answer may be.

    max_length: most tokens of a window, special tokens included.
    doc_stride: context tokens from the beginning of a window to that of the next. (The option ``doc_stride`` of
        ``transformers`` counts the tokens that two windows share.)
    max_query_length: a longer question loses its end.
    max_answer_length: most tokens of an answer that is looked for in the windows.
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
class Contexts:
    """Tokens of C different contexts, end to end.

    texts: the contexts.
    ids: int32 ``(N,)``.
    boundaries: int64 ``(C + 1,)``; context c owns tokens ``boundaries[c] : boundaries[c + 1]``.
    starts, ends: int64 ``(N,)``, characters of its context that each token stands for.
    words: int64 ``(N,)``, number of the word of its context that each token belongs to.
    """

    texts: tuple[str, ...]
    ids: Ids
    boundaries: Ints
    starts: Ints
    ends: Ints
    words: Ints

    def span(self, context: int) -> slice:
        """Where a context's tokens are."""
        return slice(int(self.boundaries[context]), int(self.boundaries[context + 1]))


@dataclass(frozen=True, slots=True)
class SpanWindows:
    """Windows of Q questions: R rows, in the order of the questions.

    rows: the token ids; ``num_tokens`` counts what was cut off a question.
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
    settings: how the windows were cut.
    """

    rows: FeatureSet
    question: Ints
    first_rows: Ints
    context_at: Ints
    context_from: Ints
    context_size: Ints
    contexts: Contexts
    context: Ints
    starts: Ints | None = None
    ends: Ints | None = None
    lost: tuple[int, ...] = ()
    too_long: tuple[int, ...] = ()
    settings: SpanSettings = SpanSettings()

    def __len__(self) -> int:
        return len(self.question)

    @property
    def num_questions(self) -> int:
        """Q."""
        return len(self.context)

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, int64 ``(R,)``."""
        return self.rows.lengths

    @property
    def num_tokens(self) -> Ints:
        """Tokens of each row if its question had not been cut, int64 ``(R,)``."""
        return self.rows.num_tokens

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """Rows whose question lost its end, bool ``(R,)``."""
        return self.rows.truncated


class _Template(NamedTuple):
    """What a tokenizer puts around and between two texts, and the segment of each part."""

    before: Ids
    between: Ids
    after: Ids
    types: tuple[npt.NDArray[np.int8], np.int8, npt.NDArray[np.int8], np.int8, npt.NDArray[np.int8]]

    @property
    def num_special(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def join(self, question: Ids, part: Ids) -> Ids:
        return np.concatenate([self.before, question, self.between, part, self.after])

    def join_types(self, question: int, part: int) -> npt.NDArray[np.int8]:
        before, first, between, second, after = self.types
        return np.concatenate([before, np.full(question, first), between, np.full(part, second), after])


def featurize_spans(
    examples: Sequence[Question],
    tokenizer: SpanEncoder,
    settings: SpanSettings | None = None,
    *,
    labelled: bool = False,
) -> SpanWindows:
    """Windows of questions and their contexts.

    Args:
        examples: Q questions.
        tokenizer: of the model.
        settings: how to cut; None means the paper's.
        labelled: also find the tokens of the first answer of each question; one without answers points at the first
            token ([CLS]) in all of its windows.

    Raises:
        InputError: no questions, or, if ``labelled``, one whose ``answers`` is None.
        ConfigError: settings that leave no room for the context.
    """
    if not examples:
        raise InputError("no questions to turn into features")
    settings = settings or SpanSettings()
    template = _template_of(tokenizer)
    numbers: dict[str, int] = {}
    context = np.array([numbers.setdefault(example.context, len(numbers)) for example in examples], dtype=np.int64)
    contexts = tokenize_contexts(list(numbers), tokenizer)
    questions = tokenizer.encode_ragged([example.question for example in examples], add_special_tokens=False)
    rows = list(_cut(questions, contexts, context, template, settings))
    table = np.array([row[:5] for row in rows], dtype=np.int64).reshape(-1, 5)
    lengths = np.array([len(row.ids) for row in rows], dtype=np.int64)
    windows = SpanWindows(
        rows=FeatureSet(
            np.concatenate([row.ids for row in rows]),
            np.concatenate([row.types for row in rows]).astype(np.int8),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            lengths + table[:, 4],
        ),
        question=table[:, 0],
        first_rows=np.searchsorted(table[:, 0], np.arange(len(examples) + 1)).astype(np.int64),
        context_at=table[:, 1],
        context_from=table[:, 2],
        context_size=table[:, 3],
        contexts=contexts,
        context=context,
        settings=settings,
    )
    return _with_targets(windows, examples) if labelled else windows


def tokenize_contexts(texts: Sequence[str], tokenizer: SpanEncoder) -> Contexts:
    """Tokens of contexts with their characters and words, without special tokens."""
    ids: list[Ids] = []
    offsets: list[Ints] = []
    words: list[Ints] = []
    for first in range(0, len(texts), CONTEXTS_AT_ONCE):
        found = tokenizer(
            list(texts[first : first + CONTEXTS_AT_ONCE]),
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            return_token_type_ids=False,
            return_attention_mask=False,
        )
        for row, (numbers, spans) in enumerate(zip(found["input_ids"], found["offset_mapping"], strict=True)):
            ids.append(np.array(numbers, dtype=np.int32))
            offsets.append(np.array(spans, dtype=np.int64).reshape(-1, 2))
            # A special token in the text belongs to no word.
            words.append(np.array([-1 if word is None else word for word in found.word_ids(row)], dtype=np.int64))
    sizes = [len(row) for row in ids]
    both = np.concatenate(offsets)
    return Contexts(
        tuple(texts),
        np.concatenate(ids),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        both[:, 0],
        both[:, 1],
        np.concatenate(words),
    )


def collate_spans(windows: SpanWindows, rows: npt.ArrayLike, *, labelled: bool = False) -> Batch:
    """A packed batch of some windows, with ``start_positions`` and ``end_positions`` ``(B,)`` if ``labelled``.

    Raises:
        InputError: no rows, or ``labelled`` for windows without labels.
    """
    batch = collate(windows.rows, rows)
    if not labelled:
        return batch
    if windows.starts is None or windows.ends is None:
        raise InputError("these windows have no labels; pass labelled=False to predict")
    chosen = np.asarray(rows, dtype=np.int64)
    return batch.with_target("start_positions", torch.from_numpy(windows.starts[chosen])).with_target(
        "end_positions", torch.from_numpy(windows.ends[chosen])
    )


class _Row(NamedTuple):
    question: int
    context_at: int
    context_from: int
    context_size: int
    cut: int
    ids: Ids
    types: npt.NDArray[np.int8]


def _cut(
    questions: RaggedTokens, contexts: Contexts, context: Ints, template: _Template, settings: SpanSettings
) -> Iterator[_Row]:
    """The windows of each question."""
    bounds = questions.boundaries
    for number, place in enumerate(context.tolist()):
        whole = questions.ids[bounds[number] : bounds[number + 1]]
        asked = whole[: settings.max_query_length]
        room = settings.max_length - template.num_special - len(asked)
        if room < 1:
            raise ConfigError(
                f"max_length={settings.max_length} leaves no room for the context beside a question of {len(asked)} "
                f"tokens and {template.num_special} special tokens; raise it, or ask a shorter question"
            )
        tokens = contexts.ids[contexts.span(place)]
        at = len(template.before) + len(asked) + len(template.between)
        for start in window_starts(len(tokens), room, settings.doc_stride):
            part = tokens[start : start + room]
            ids, types = template.join(asked, part), template.join_types(len(asked), len(part))
            yield _Row(number, at, start, len(part), len(whole) - len(asked), ids, types)


def window_starts(num_tokens: int, room: int, stride: int) -> range:
    """Where the windows of a context of ``num_tokens`` tokens begin; the last one reaches its end.

    Args:
        num_tokens: of the context; 0 gives one window without context.
        room: tokens of a window.
        stride: from one beginning to the next; more than ``room`` counts as ``room``, so that no token is left out.
    """
    step = min(stride, room)
    more = -(-max(0, num_tokens - room) // step)
    return range(0, more * step + 1, step)


def _template_of(tokenizer: TextEncoder) -> _Template:
    """What stands around two texts, found by encoding a pair: it differs between families of models."""
    body = tokenizer.encode_ragged(["a"], add_special_tokens=False).ids
    pair = tokenizer.encode_ragged(["a"], ["a"])
    size = len(body)
    places = [at for at in range(len(pair.ids) - size + 1) if np.array_equal(pair.ids[at : at + size], body)]
    first, second = places[0], places[-1]
    ids, types = pair.ids, pair.token_type_ids
    return _Template(
        ids[:first],
        ids[first + size : second],
        ids[second + size :],
        (types[:first], types[first], types[first + size : second], types[second], types[second + size :]),
    )


def _with_targets(windows: SpanWindows, examples: Sequence[Question]) -> SpanWindows:
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


def tokens_of(contexts: Contexts, context: int, start: int, end: int) -> tuple[int, int]:
    """First and last token of a context that share a character with ``start : end``; last < first where none does."""
    span = contexts.span(context)
    first = int(np.searchsorted(contexts.ends[span], start, side="right"))
    last = int(np.searchsorted(contexts.starts[span], end, side="left")) - 1
    return first, last
