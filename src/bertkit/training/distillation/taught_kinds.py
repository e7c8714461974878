"""The kinds of tasks that a teacher can teach: texts, tags of words, choices, and answers in a context.

A teacher may read with a tokenizer of its own where what it says is of something that both see: a text, a word, a
choice. What it says of the tokens of a context (:class:`TaughtSpans`) is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.data.store.store_manifest import tokenizer_digest
from bertkit.errors import ConfigError
from bertkit.inference.runs import Run
from bertkit.ragged import Floats, GroupSet, Ints, Labels, Ragged, boundaries_of
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tasks.choices.workflow import ChoiceWorkflow
from bertkit.tasks.examples import Example
from bertkit.tasks.registry import Task
from bertkit.tasks.spans.decoding import SpanSearch, find_answers
from bertkit.tasks.spans.features import SpanWindows
from bertkit.tasks.spans.task import SpanExample
from bertkit.tasks.spans.workflow import N_BEST, SpanOutputs, SpanWorkflow
from bertkit.tasks.text.settings import TextTaskSettings
from bertkit.tasks.text.workflow import TextRows, TextWorkflow
from bertkit.tasks.tokens.features import IGNORED, TokenWindows
from bertkit.tasks.tokens.task import TaggedExample
from bertkit.tasks.tokens.workflow import TokenWorkflow
from bertkit.tokenization import PreTrainedTokenizer
from bertkit.training.distillation.taught_workflow import Lesson, TaughtWorkflow, Units


class TaughtTexts(TaughtWorkflow, TextWorkflow):
    """Texts and pairs with a label, several, or a score: a unit for each."""

    def check_settings(self, settings: ReadingSettings) -> None:
        if settings.of(TextTaskSettings).long_texts == "windows":
            raise ConfigError(
                "long_texts='windows': a student learns what its teacher says of a whole text, not of a window; use "
                "'cut' or 'head_tail' (the teacher itself may read windows)"
            )
        super().check_settings(settings)

    def texts(self, example: Example) -> tuple[str, ...]:
        return (example.text,) if example.text_pair is None else (example.text, example.text_pair)

    def blank(self, example: Example) -> Example:
        return replace(example, label=() if self.task.multi_label else 0)

    def without_labels(self, encoded: TextRows, first: int) -> TextRows:
        assert encoded.labels is not None
        none = no_labels(encoded.labels, len(encoded) - first)
        return replace(encoded, labels=np.concatenate([encoded.labels[:first], none]))

    def units(self, examples: Sequence[Example], tokenizer: PreTrainedTokenizer, settings: ReadingSettings) -> Units:
        return Units(np.ones(len(examples), np.int64))

    def said(self, outputs: Floats, encoded: TextRows) -> Floats:
        return outputs

    def on_rows(self, told: Floats, encoded: TextRows) -> tuple[Floats, Ints]:
        return told, np.arange(len(told) + 1)

    def outputs_of(self, told: Floats, encoded: TextRows) -> Floats:
        return told

    def sequences(self, encoded: TextRows) -> Ragged:
        return encoded.sequences if isinstance(encoded, GroupSet) else encoded


class TaughtTags(TaughtWorkflow, TokenWorkflow):
    """Tags of words: a unit for each word, which is that of its first piece; NaN for a word without any."""

    def texts(self, example: TaggedExample) -> tuple[str, ...]:
        return example.joiner, *example.words

    def blank(self, example: TaggedExample) -> TaggedExample:
        return replace(example, entities=())

    def without_labels(self, encoded: TokenWindows, first: int) -> TokenWindows:
        assert encoded.labels is not None
        unlabelled = np.repeat(encoded.row_texts >= first, encoded.lengths)
        return replace(encoded, labels=np.where(unlabelled, IGNORED, encoded.labels))

    def units(
        self, examples: Sequence[TaggedExample], tokenizer: PreTrainedTokenizer, settings: ReadingSettings
    ) -> Units:
        return Units(np.array([len(example.words) for example in examples], np.int64))

    def said(self, outputs: Floats, encoded: TokenWindows) -> Floats:
        firsts, known = _first_pieces(encoded)
        told = np.full((len(firsts), outputs.shape[1]), np.nan, np.float32)
        told[known] = outputs[firsts[known]]
        return told

    def on_rows(self, told: Floats, encoded: TokenWindows) -> tuple[Floats, Ints]:
        teacher_TC = np.full((len(encoded.ids), told.shape[1]), np.nan, np.float32)
        teacher_TC[encoded.places] = self._on_pieces(told, encoded)
        return teacher_TC, encoded.rows.boundaries

    def outputs_of(self, told: Floats, encoded: TokenWindows) -> Floats:
        return np.nan_to_num(self._on_pieces(told, encoded))

    def _on_pieces(self, told: Floats, encoded: TokenWindows) -> Floats:
        """``(P, C)``: what was said of the word that begins in each piece, of several of the first; else NaN."""
        firsts, known = _first_pieces(encoded)
        found = np.full((len(encoded.places), told.shape[1]), np.nan, np.float32)
        found[firsts[known][::-1]] = told[known][::-1]
        return found

    def sequences(self, encoded: TokenWindows) -> Ragged:
        return encoded.rows


class TaughtChoices(TaughtWorkflow, ChoiceWorkflow):
    """Multiple choice: a unit for each choice, one number."""

    def texts(self, example: ChoiceExample) -> tuple[str, ...]:
        return example.context, example.start, *example.choices

    def blank(self, example: ChoiceExample) -> ChoiceExample:
        return replace(example, label=0)

    def without_labels(self, encoded: GroupSet, first: int) -> GroupSet:
        assert encoded.labels is not None
        none = no_labels(encoded.labels, len(encoded) - first)
        return replace(encoded, labels=np.concatenate([encoded.labels[:first], none]))

    def units(
        self, examples: Sequence[ChoiceExample], tokenizer: PreTrainedTokenizer, settings: ReadingSettings
    ) -> Units:
        sizes = np.array([len(example.choices) for example in examples], np.int64)
        return Units(sizes, boundaries_of(sizes))

    def said(self, outputs: Floats, encoded: GroupSet) -> Floats:
        return outputs.reshape(-1, 1)

    def on_rows(self, told: Floats, encoded: GroupSet) -> tuple[Floats, Ints]:
        return told, encoded.groups

    def outputs_of(self, told: Floats, encoded: GroupSet) -> Floats:
        return told.reshape(len(encoded), -1)

    def sequences(self, encoded: GroupSet) -> Ragged:
        return encoded.sequences


class TaughtSpans(TaughtWorkflow, SpanWorkflow):
    """Answers in a context: a unit for each token of the windows, with the logits of start and end."""

    reads_alike = True

    def check_teacher(self, run: Run, name: str, tokenizer: PreTrainedTokenizer) -> None:
        if tokenizer_digest(run.tokenizer) != tokenizer_digest(tokenizer):
            raise ConfigError(
                f"the student has another tokenizer than the teacher {name}, and what this says of an answer is of "
                "single tokens; give a student with the teacher's tokenizer"
            )

    def texts(self, example: SpanExample) -> tuple[str, ...]:
        return example.question, example.context

    def blank(self, example: SpanExample) -> SpanExample:
        return replace(example, answers=())

    def without_labels(self, encoded: SpanWindows, first: int) -> SpanWindows:
        assert encoded.starts is not None
        assert encoded.ends is not None
        labelled = encoded.question < first
        outside = -1  # no position, so not a target
        starts, ends = (np.where(labelled, places, outside) for places in (encoded.starts, encoded.ends))
        return replace(encoded, starts=starts, ends=ends)

    def units(
        self, examples: Sequence[SpanExample], tokenizer: PreTrainedTokenizer, settings: ReadingSettings
    ) -> Units:
        windows = self.encode(examples, tokenizer, settings, labelled=False)
        ends = windows.rows.boundaries
        return Units(np.diff(ends[windows.first_rows]), ends)

    def said(self, outputs: SpanOutputs, encoded: SpanWindows) -> Floats:
        return outputs.logits

    def on_rows(self, told: Floats, encoded: SpanWindows) -> tuple[Floats, Ints]:
        return told, encoded.rows.boundaries

    def outputs_of(self, told: Floats, encoded: SpanWindows) -> SpanOutputs:
        search = SpanSearch(N_BEST, encoded.settings.max_answer_length, with_null=self.task.no_answers)
        return SpanOutputs(told, find_answers(encoded, told[:, 0], told[:, 1], search))

    def sequences(self, encoded: SpanWindows) -> Ragged:
        return encoded.rows


#: By :attr:`Task.form`.
TAUGHT: Mapping[str, Any] = {
    "text": TaughtTexts,
    "token": TaughtTags,
    "choice": TaughtChoices,
    "span": TaughtSpans,
}


def taught_workflow(task: Task, lesson: Lesson) -> Any:
    """The workflow of a task with a teacher.

    Raises:
        ConfigError: a kind of task that no teacher teaches.
    """
    if task.form not in TAUGHT:
        raise ConfigError(
            f"task {task.name} cannot be taught by another model's outputs: this can be done for labels or a score of "
            "texts, for tags of words, for choices, and for answers in a context"
        )
    return TAUGHT[task.form](task, lesson)


def no_labels(like: Labels, count: int) -> Labels:
    """``count`` labels of this kind that say that there is none."""
    shape = (count, *like.shape[1:])
    return np.full(shape, -100, like.dtype) if like.dtype.kind == "i" else np.full(shape, np.nan, like.dtype)


def _first_pieces(encoded: TokenWindows) -> tuple[Ints, Any]:
    """The first piece of each word, and whether it has one: ``(W,)``."""
    assert encoded.first_pieces is not None, "rows are made of words"
    return encoded.first_pieces, encoded.first_pieces >= 0
