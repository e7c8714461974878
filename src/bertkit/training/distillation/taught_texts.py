"""Texts and pairs of texts with a teacher: the workflow of a text task, trained on what the teacher says as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.batch import Batch, collate
from bertkit.checkpoints.huggingface import checkpoint_folder
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import ConfigError, DataError
from bertkit.ragged import Floats, Labels, Ragged, concatenate
from bertkit.system.console import say
from bertkit.system.device import Device
from bertkit.tasks.examples import Example, Examples, Row
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.workflow import TextRows, TextWorkflow
from bertkit.tokenization import AutoTokenizer
from bertkit.training.distillation.distill_settings import TaskDistillation
from bertkit.training.distillation.soft_targets import TEACHER, TaughtClassifier
from bertkit.training.finetuning.unlabelled_texts import fresh_texts

#: Settings that have no meaning with a teacher, the value that they must have, and why.
USELESS: Mapping[str, tuple[object, str]] = {
    "freeze_encoder": (False, "a student learns with all of its weights"),
    "lora": (None, "a student learns with all of its weights"),
    "class_weights": ("none", "the teacher's probabilities say how frequent labels are"),
    "search": (None, "settings would be chosen by what the teacher already knows"),
}


@dataclass(frozen=True, slots=True)
class TaughtRows(Ragged):
    """Rows of which some have no label, with what the teacher says of each.

    teacher: float32 ``(B, C)``, logits.
    labels: as in :class:`Ragged`; -100 or NaN where there is none.
    """

    teacher: Floats | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a student is taught with.

    settings: of the loss.
    unlabelled: examples beside those of the training file.
    ask: from examples to the teacher's logits ``(N, C)``, in the order of the task's labels.
    facts: the same in words and hashes, for the protocol.
    """

    settings: TaskDistillation
    unlabelled: Sequence[Example] = ()
    ask: Callable[[Sequence[Example]], Floats] | None = None
    facts: Row = field(default_factory=dict)


class TaughtTexts(TextWorkflow):
    """The workflow of a text task with a teacher. Its runs are those of the task: nothing else is in their folders."""

    def __init__(self, task: TextTask, lesson: Lesson) -> None:
        super().__init__(task)
        self.lesson = lesson

    def check_settings(self, settings: ReadingSettings) -> None:
        for name, (value, why) in USELESS.items():
            if getattr(settings, name, value) != value:
                raise ConfigError(f"{name}={getattr(settings, name)!r} has no meaning with a teacher: {why}")
        if settings.long_texts == "windows":
            raise ConfigError(
                "long_texts='windows': a student learns what its teacher says of a whole text, not of a window; use "
                "'cut' or 'head_tail' (the teacher itself may read windows)"
            )
        super().check_settings(settings)

    def prepare_training(
        self,
        rows: Examples[Example],
        train: TextRows,
        start: Path,
        folder: Path,
        settings: ReadingSettings,
        device: str | None,
    ) -> TaughtRows:
        assert isinstance(train, Ragged), "windows were refused"
        assert train.labels is not None, "training rows have labels"
        more, parts, labels = self.lesson.unlabelled, [train], train.labels
        if more:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start))
            read = self.encode(more, tokenizer, settings, labelled=False)
            assert isinstance(read, Ragged)
            parts.append(read)
            labels = np.concatenate([labels, no_labels(labels, len(more))])
        whole = concatenate(parts)
        assert self.lesson.ask is not None, "there is a teacher"
        logits = self.lesson.ask([*rows, *more])
        return TaughtRows(
            whole.ids, whole.boundaries, whole.token_type_ids, whole.num_tokens_before, None, labels, logits
        )

    def collate(self, encoded: TextRows, rows: Sequence[int]) -> Batch:
        assert isinstance(encoded, TaughtRows)
        return collate(encoded, rows, {"labels": encoded.labels, TEACHER: encoded.teacher})

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> TaughtClassifier:
        student = super().new_model(start, seed=seed, device=device, settings=settings)
        return TaughtClassifier(student, self.lesson.settings)

    def set_up(self, model: Any, train: TextRows, settings: ReadingSettings) -> None:
        """Nothing: the loss knows the teacher, and has no class weights."""

    def loss_floor(self, train: TextRows, settings: ReadingSettings) -> None:
        """None: the loss is not that of the labels alone."""

    def scoring_engine(self, model: TaughtClassifier) -> InferenceEngine:
        engine: InferenceEngine = super().scoring_engine(model.student)
        return engine

    def facts(self, settings: ReadingSettings) -> Row:
        return {**super().facts(settings), "distillation": self.lesson.facts}


def no_labels(like: Labels, count: int) -> Labels:
    """``count`` labels of this kind that say that there is none."""
    shape = (count, *like.shape[1:])
    return np.full(shape, -100, like.dtype) if like.dtype.kind == "i" else np.full(shape, np.nan, like.dtype)


def read_unlabelled(task: TextTask, files: Iterable[str | Path], known: Iterable[Example]) -> list[Example]:
    """Texts without labels: the task's text columns of tables, or each line of other files.

    Left out are blank ones, those that are among the ``known`` (train and dev), and repetitions; labels are not read.

    Raises:
        DataError: a file that cannot be read, or has no text left.
        ConfigError: a file without columns for a task of pairs.
    """
    seen = set(map(_exactly, known))
    found: list[Example] = []
    for file in map(Path, files):
        if task.is_pair and kind_of(file) is None:
            raise ConfigError(f"{file}: lines are no pairs of texts; give a table with the columns of task {task.name}")
        check_file(file)
        fresh, count = fresh_texts(task, file, seen, _exactly)
        if not fresh:
            raise DataError(f"{file}: there is no text that is not in the training or the dev file already")
        say(f"{file}: {len(fresh):,} texts without labels" + (f" of {count:,}" if len(fresh) < count else ""))
        seen.update(map(_exactly, fresh))
        found += fresh
    return found


def _exactly(example: Example) -> tuple[str, str | None]:
    return example.text, example.text_pair
