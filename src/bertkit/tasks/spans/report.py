"""Questions held out of a training file, and what is in the data before anything is trained on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bertkit.errors import ConfigError, DataError
from bertkit.tasks.examples import Examples
from bertkit.tasks.spans.task import SpanExample, SpanTask


class CutQuestions(Protocol):
    """What this module needs to know of windows; :class:`bertkit.tasks.spans.features.SpanWindows` has it."""

    @property
    def first_rows(self) -> npt.NDArray[np.int64]:
        """``(Q + 1,)``, rows of each question."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """``(R,)``, tokens of each row."""

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """``(R,)``, rows whose question lost its end."""

    @property
    def lost(self) -> tuple[int, ...]:
        """Questions whose answer no window holds whole."""

    @property
    def too_long(self) -> tuple[int, ...]:
        """Questions whose answer has more tokens than one that is given may have."""


def hold_out(
    examples: Examples[SpanExample], share: float, seed: int
) -> tuple[Examples[SpanExample], Examples[SpanExample]]:
    """Hold out whole articles, or whole contexts where there are fewer than three articles.

    So no context has questions on both sides: articles that share one stay together. A context without a title is an
    article by itself. A pure function of its arguments.

    Args:
        examples: labelled questions.
        share: of the questions to hold out, above 0 and at most 0.5; reached as nearly as groups allow.
        seed: chooses the groups.

    Returns:
        The questions that stay, and those held out, both in their order.

    Raises:
        ConfigError: a share out of bounds.
        DataError: one context only, or questions without a label.
    """
    if not 0.0 < share <= 0.5:
        raise ConfigError(f"the share to hold out must be above 0 and at most 0.5, got {share}")
    if any(example.answers is None for example in examples):
        raise DataError("questions without 'answers' cannot be held out for evaluation")
    titles = {example.title or example.context for example in examples}
    listed = _groups(examples, by_title=len(titles) >= 3)
    if len(listed) < 2:  # shared contexts join all articles
        listed = _groups(examples, by_title=False)
    if len(listed) < 2:
        raise DataError(f"{len(examples):,} questions about one context: none can be held out for evaluation")
    held = np.zeros(len(examples), dtype=bool)
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(listed)).tolist()
    wanted, taken = share * len(examples), 0
    for number in order[:-1]:
        size = len(listed[number])
        if not taken or taken + size / 2 <= wanted:
            held[listed[number]] = True
            taken += size
    kept = (example for example, out in zip(examples, held, strict=True) if not out)
    stay = Examples(kept, examples.path, "train", examples.skipped)
    return stay, Examples((e for e, out in zip(examples, held, strict=True) if out), examples.path, "dev")


def _groups(examples: Sequence[SpanExample], *, by_title: bool) -> list[list[int]]:
    """Rows that share a context, or with ``by_title`` a title, also by way of others; groups in the file's order."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def top(key: tuple[str, str]) -> tuple[str, str]:
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    for example in examples:
        context = top(("context", example.context))
        if by_title and example.title:
            above[context] = top(("title", example.title))
    groups: dict[tuple[str, str], list[int]] = {}
    for row, example in enumerate(examples):
        groups.setdefault(top(("context", example.context)), []).append(row)
    return list(groups.values())


@dataclass(frozen=True, slots=True)
class QuestionSplit:
    """One split.

    questions, contexts, articles: how many. source: file name. without_answer: questions that have none.
    answers: right answers of a question that has any, on average.
    windows: rows of the encoder. longest: tokens of the longest. several_windows: questions that need more than one.
    cut_questions: questions that lost their end. lost_answers: answers that no window holds whole, which nothing can
        be learned from. long_answers: answers that are learned and too long to be given.
    repeated: questions that stood before, word for word, with the same context.
    skipped: bad questions left out, by kind.
    """

    questions: int
    contexts: int
    articles: int
    source: str
    without_answer: int
    answers: float
    windows: int
    longest: int
    several_windows: int
    cut_questions: int
    lost_answers: int
    long_answers: int
    repeated: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class QuestionReport:
    """A report for each split, and what the others share with train.

    overlap: for each split other than train, the questions that stand in train with the same context.
    overlap_contexts: those whose context stands in train.
    """

    task: str
    splits: dict[str, QuestionSplit]
    overlap: dict[str, int] = field(default_factory=dict)
    overlap_contexts: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "notes": list(self.notes)}

    def render(self) -> str:
        """The report as text, a few lines a split, with a line for everything that should make a reader stop."""
        lines = [f"data of task {self.task}", *(f"  {note}" for note in self.notes)]
        for name, split in self.splits.items():
            lines += _render(name, split)
        for name, count in self.overlap.items():
            total, contexts = self.splits[name].questions, self.overlap_contexts[name]
            if count or contexts:
                lines.append(
                    f"  LEAK: {count:,} of {total:,} {name} questions also stand in train, and {contexts:,} are about "
                    "a context of train"
                )
            else:
                lines.append(f"  no {name} context stands in train")
        return "\n".join(lines)


def question_report(
    task: SpanTask, splits: Mapping[str, Sequence[SpanExample]], windows: Mapping[str, CutQuestions]
) -> QuestionReport:
    """Count questions, answers, windows, and what train shares with the other splits.

    Args:
        task: named in the report.
        splits: questions by split name; "train" is what the others are compared with.
        windows: the same, encoded with labels.
    """
    reports = {name: _split_report(rows, windows[name]) for name, rows in splits.items()}
    train = splits.get("train", ())
    known = {(_plain(example.question), _plain(example.context)) for example in train}
    contexts = {context for _, context in known}
    overlap, shared = {}, {}
    for name, rows in splits.items():
        if name != "train" and train:
            pairs = [(_plain(example.question), _plain(example.context)) for example in rows]
            overlap[name] = sum(pair in known for pair in pairs)
            shared[name] = sum(context in contexts for _, context in pairs)
    return QuestionReport(task.name, reports, overlap, shared, task.notes)


def _split_report(rows: Sequence[SpanExample], windows: CutQuestions) -> QuestionSplit:
    path = getattr(rows, "path", None)
    counts = np.diff(windows.first_rows)
    answered = [len(example.answers) for example in rows if example.answers]
    skipped: dict[str, int] = {}
    for row in getattr(rows, "skipped", ()):
        skipped[row.kind] = skipped.get(row.kind, 0) + 1
    return QuestionSplit(
        questions=len(rows),
        contexts=len({example.context for example in rows}),
        articles=len({example.title for example in rows}),
        source="" if path is None else path.name,
        without_answer=sum(example.answers == () for example in rows),
        answers=float(np.mean(answered)) if answered else 0.0,
        windows=int(counts.sum()),
        longest=int(windows.lengths.max()),
        several_windows=int((counts > 1).sum()),
        cut_questions=int(windows.truncated[windows.first_rows[:-1]].sum()),
        lost_answers=len(windows.lost),
        long_answers=len(windows.too_long),
        repeated=len(rows) - len({(_plain(example.question), _plain(example.context)) for example in rows}),
        skipped=skipped,
    )


def _render(name: str, split: QuestionSplit) -> list[str]:
    source = f" from {split.source}" if split.source else ""
    places = f"{split.contexts:,} contexts of {split.articles:,} articles"
    lines = [f"  {name}: {split.questions:,} questions about {places}{source}"]
    if split.without_answer:
        share = 100 * split.without_answer / split.questions
        lines.append(f"    without an answer: {split.without_answer:,} ({share:.1f} %)")
    if split.answers > 1:
        lines.append(f"    right answers of a question: {split.answers:.1f}; the first is learned, all of them count")
    lines.append(
        f"    windows: {split.windows:,} of up to {split.longest} tokens; {split.several_windows:,} questions need "
        "more than one"
    )
    if split.cut_questions:
        lines.append(f"    CUT: {split.cut_questions:,} questions lost their end (max_query_length)")
    if split.lost_answers:
        lines.append(f"    LOST: {split.lost_answers:,} answers stand whole in no window (max_length, doc_stride)")
    if split.long_answers:
        lines.append(
            f"    TOO LONG: {split.long_answers:,} answers are longer than any that is given (max_answer_length)"
        )
    if split.repeated:
        lines.append(f"    duplicates: {split.repeated:,} questions repeat an earlier one with its context")
    return [*lines, *(f"    LEFT OUT: {count:,} questions, {kind}" for kind, count in split.skipped.items())]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
