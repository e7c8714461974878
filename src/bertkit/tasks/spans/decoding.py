"""From start and end logits to answers: the best spans of a context, and whether it has an answer at all.

A span is a start and an end token with ``start <= end``, at most ``max_answer_length`` tokens. Its score is the sum of
the two logits (Devlin et al. 2019, section 4.2). Where windows of a context overlap, a token begins an answer only in
the window that shows most of its surroundings (the original's *max context*), so that each span is judged once.

**Probabilities** are joint: ``exp(score)`` over the sum of it over all spans of all windows, and over "no answer" where
that is possible. They are comparable between short and long contexts and never sum to more than 1. The original
normalizes over its n best spans only, ``transformers`` over starts and ends of each window by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.ragged import Flags, Ints
from bertkit.tasks.pieces import Pieces, end_of_marks, stripped
from bertkit.tasks.spans.features import SpanWindows

Floats = npt.NDArray[np.float64]
#: Sums of exponentials below this are near the end of floating point, where digits are lost.
EXACT_ABOVE = 1e-250


@dataclass(frozen=True, slots=True)
class Span:
    """One candidate, ``context[start:end]``. score: start logit + end logit. probability: see the module."""

    start: int
    end: int
    score: float
    probability: float


@dataclass(frozen=True, slots=True)
class Answers:
    """The best spans for a question, best first, no two the same piece of the context; none without tokens.

    null_score: start logit + end logit of the first token, the lowest of all windows; -inf where "no answer" was not
        asked for. null_probability: of "no answer", then 0.
    """

    spans: tuple[Span, ...]
    null_score: float
    null_probability: float

    @property
    def margin(self) -> float:
        """How much "no answer" is preferred to the best span (the original's ``score_diff``). +inf without any span."""
        return self.null_score - self.spans[0].score if self.spans else float("inf")

    def is_null(self, threshold: float) -> bool:
        """Whether the answer is "no answer"."""
        return self.margin > threshold


@dataclass(frozen=True, slots=True)
class SpanSearch:
    """Which answers are looked for; ``align_to_words`` extends spans that begin or end inside a word."""

    n_best: int = 20
    max_answer_length: int = 30
    with_null: bool = False
    align_to_words: bool = False

    def __post_init__(self) -> None:
        for name in ("n_best", "max_answer_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number from 1, got {value!r}")


def find_answers(
    windows: SpanWindows, start_logits: npt.ArrayLike, end_logits: npt.ArrayLike, search: SpanSearch | None = None
) -> list[Answers]:
    """The best answers of every question, of logits ``(T,)`` of the windows' tokens end to end."""
    starts, ends = np.asarray(start_logits, dtype=np.float64), np.asarray(end_logits, dtype=np.float64)
    total = int(windows.lengths.sum())
    if starts.shape != (total,) or ends.shape != (total,):
        raise InputError(f"logits of shapes {starts.shape} and {ends.shape} do not fit windows of {total} tokens")
    row_starts = np.concatenate([[0], np.cumsum(windows.lengths)])
    search = search or SpanSearch()
    found = []
    for question, context in enumerate(windows.context.tolist()):
        rows = slice(int(windows.first_rows[question]), int(windows.first_rows[question + 1]))
        null_score = float((starts[row_starts[:-1][rows]] + ends[row_starts[:-1][rows]]).min())
        shown = _shown(windows, rows, row_starts, starts, ends)
        masses = [-np.inf, *(span_mass(*part.logits, part.may_start, search.max_answer_length) for part in shown)]
        norm = _log_sum(np.array([*masses, *([null_score] if search.with_null else [])]))
        spans = _distinct(windows.contexts, context, shown, norm, search)
        null = (null_score, float(np.exp(null_score - norm))) if search.with_null else (-np.inf, 0.0)
        found.append(Answers(spans, *null))
    return found


def max_context(first: npt.ArrayLike, size: npt.ArrayLike) -> list[Flags]:
    """For each of W windows, which of its tokens no other window shows with more on both sides.

    The measure is the original's: the smaller number of neighbours on either side, plus 0.01 for each token of the
    window; of equal ones the first window wins, so each token is True in exactly one. ``first`` is the number in the
    context of each window's first token ``(W,)``, ``size`` its tokens ``(W,)``.
    """
    begins, sizes = np.asarray(first, dtype=np.int64), np.asarray(size, dtype=np.int64)
    if len(begins) == 1:
        return [np.ones(int(sizes[0]), dtype=bool)]
    count = int((begins + sizes).max())
    best, owner = np.full(count, -np.inf), np.full(count, -1, dtype=np.int64)
    windows = list(zip(begins.tolist(), sizes.tolist(), strict=True))
    for number, (begin, width) in enumerate(windows):
        place = np.arange(width)
        value = np.minimum(place, width - 1 - place) + 0.01 * width
        better = value > best[begin : begin + width]
        best[begin : begin + width][better] = value[better]
        owner[begin : begin + width][better] = number
    return [owner[begin : begin + width] == number for number, (begin, width) in enumerate(windows)]


@dataclass(frozen=True, slots=True)
class _Shown:
    """The n tokens of a context, from ``begin`` on, that one window shows: logits ``(n,)``; see :func:`max_context`."""

    begin: int
    logits: tuple[Floats, Floats]
    may_start: Flags


def _shown(windows: SpanWindows, rows: slice, row_starts: Ints, starts: Floats, ends: Floats) -> list[_Shown]:
    """What the windows of a question show of its context; without those that show nothing."""
    begins, sizes = windows.context_from[rows], windows.context_size[rows]
    shown = []
    for number, may_start in enumerate(max_context(begins, sizes)):
        at = int(row_starts[rows.start + number] + windows.context_at[rows.start + number])
        of_row = slice(at, at + int(sizes[number]))
        if of_row.start < of_row.stop:
            shown.append(_Shown(int(begins[number]), (starts[of_row], ends[of_row]), may_start))
    return shown


def _candidates(shown: Sequence[_Shown], width: int, wanted: int) -> tuple[list[tuple[float, int, int]], bool]:
    """The ``wanted`` best ``(score, first, last)`` of all windows, in tokens of the context; whether these are all."""
    found: list[tuple[float, int, int]] = []
    complete = True
    for part in shown:
        best = _best_of_window(*part.logits, part.may_start, width, wanted)
        complete &= len(best) < wanted
        found += [(score, part.begin + first, part.begin + last) for score, first, last in best]
    found.sort(key=lambda span: (-span[0], span[1], span[2]))
    return (found, True) if complete else (found[:wanted], False)


def _distinct(
    contexts: Pieces, context: int, shown: Sequence[_Shown], norm: float, search: SpanSearch
) -> tuple[Span, ...]:
    """The ``n_best`` best spans that are different pieces of the text."""
    # Extending spans to words makes some of them the same, so more of them are looked at; and more, until it is enough.
    wanted = 4 * search.n_best if search.align_to_words else search.n_best
    while True:
        candidates, complete = _candidates(shown, search.max_answer_length, wanted)
        spans: dict[tuple[int, int], Span] = {}
        for score, first, last in candidates:
            place = _characters(contexts, context, first, last, align=search.align_to_words)
            if place[0] < place[1] and place not in spans:
                spans[place] = Span(*place, score, float(np.exp(score - norm)))
            if len(spans) == search.n_best:
                return tuple(spans.values())
        if complete:
            return tuple(spans.values())
        wanted *= 2


def _best_of_window(
    starts: Floats, ends: Floats, may_start: Flags, width: int, wanted: int
) -> list[tuple[float, int, int]]:
    """The ``wanted`` best ``(score, first, last)`` of one window; of equal ones those that begin, then end, first."""
    width = min(width, len(starts))
    padded = np.concatenate([ends, np.full(width - 1, -np.inf)])
    ends_of = np.lib.stride_tricks.sliding_window_view(padded, width)  # (n, width): the ends each start may have
    best_of = np.where(may_start, starts + ends_of.max(axis=1), -np.inf)
    # The best spans begin at the starts whose best spans are best; of equal ones all are looked at.
    kth = np.partition(best_of, -wanted)[-wanted] if wanted < len(best_of) else -np.inf
    rows = np.flatnonzero((best_of >= kth) & may_start)
    scores = starts[rows, None] + ends_of[rows]
    order = np.argsort(-scores, axis=None, kind="stable")[:wanted]
    places = [divmod(place, width) for place in order.tolist()]
    return [
        (float(scores[row, more]), int(rows[row]), int(rows[row]) + more)
        for row, more in places
        if np.isfinite(scores[row, more])
    ]


def span_mass(starts: Floats, ends: Floats, may_start: Flags, width: int) -> float:
    """Log of the sum of ``exp(score)`` over all spans of a window, of ``width`` tokens at most; -inf where none may
    start.
    """
    if not may_start.any():
        return -np.inf
    width = min(width, len(starts))
    top_start, top_end = float(starts[may_start].max()), float(ends.max())
    padded = np.concatenate([np.exp(ends - top_end), np.zeros(width - 1)])
    of_ends = np.lib.stride_tricks.sliding_window_view(padded, width).sum(axis=1)
    total = float((np.exp(starts[may_start] - top_start) * of_ends[may_start]).sum())
    if total > EXACT_ABOVE:
        return top_start + top_end + float(np.log(total))
    # The best span is out of the reach of floating point from the best start and the best end together: span by span.
    padded = np.concatenate([ends, np.full(width - 1, -np.inf)])
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(padded, width)
    return _log_sum(scores[may_start].ravel())


def _log_sum(values: Floats) -> float:
    top = float(values.max())
    return top if not np.isfinite(top) else top + float(np.log(np.exp(values - top).sum()))


def _characters(contexts: Pieces, context: int, first: int, last: int, *, align: bool) -> tuple[int, int]:
    """The characters of tokens ``first ... last``, without white space at either end, with the marks after them."""
    base, stop = int(contexts.boundaries[context]), int(contexts.boundaries[context + 1])
    first, last = first + base, last + base
    if align:
        words = contexts.words
        while first > base and words[first] >= 0 and words[first - 1] == words[first]:
            first -= 1
        while last + 1 < stop and words[last] >= 0 and words[last + 1] == words[last]:
            last += 1
    text = contexts.texts[context]
    start, end = stripped(text, int(contexts.starts[first]), int(contexts.ends[last]))
    return start, end_of_marks(text, end, int(contexts.starts[last + 1]) if last + 1 < stop else len(text))
