"""Texts and pairs of texts with a teacher: the workflow of a text task, trained on what the teacher says as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.workflow import TextRows, TextWorkflow
from bertkit.tokenization import AutoTokenizer
from bertkit.training.distillation.distill_settings import TaskDistillation
from bertkit.training.distillation.soft_targets import TEACHER, TaughtClassifier

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
    """Texts without labels: of ``.txt`` files each line that is not blank, of others the task's own text columns.

    Left out are texts that are among those ``known`` (train and dev), and repetitions; labels are not looked at.

    Raises:
        DataError: a file that cannot be read, or has no text left.
        ConfigError: a ``.txt`` file for a task of pairs.
    """
    seen = {(each.text, each.text_pair) for each in known}
    found: list[Example] = []
    for file in map(Path, files):
        read = _lines(task, file) if file.suffix == ".txt" else TextWorkflow(task).read_file(file, "test")
        new = [replace(each, label=None) for each in read if (each.text, each.text_pair) not in seen]
        fresh = {(each.text, each.text_pair): each for each in new}
        if not fresh:
            raise DataError(f"{file}: all {len(read):,} texts are in the training or the dev file already")
        say(f"{file}: {len(fresh):,} texts without labels" + (f" of {len(read):,}" if len(fresh) < len(read) else ""))
        seen.update(fresh)
        found += fresh.values()
    return found


def _lines(task: TextTask, file: Path) -> list[Example]:
    if task.is_pair:
        raise ConfigError(f"{file}: lines of text are no pairs; give a table with the columns of task {task.name}")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return [Example(line, None, None, row, str(file)) for row, line in enumerate(lines, start=1) if line.strip()]
