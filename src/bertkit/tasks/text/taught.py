"""Students of teachers that label texts and pairs: with one label, several, or a score; a unit for each text."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import ConfigError
from bertkit.model.output import ModelOutput
from bertkit.model.soft_targets import TEACHER, Judged
from bertkit.ragged import Floats, Ints
from bertkit.tasks.examples import Example
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.taught_workflow import Lesson, TaughtWorkflow, Units, label_places
from bertkit.tasks.text.features import TextRows
from bertkit.tasks.text.settings import TextTaskSettings
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.unlabelled import fresh_texts
from bertkit.tasks.text.workflow import TextWorkflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class TextTaught(TaughtWorkflow, TextWorkflow):
    """A text or a pair is a unit."""

    varies: ClassVar[bool] = True

    def __init__(self, task: TextTask, lesson: Lesson) -> None:
        super().__init__(task, lesson)
        self.problem = task.problem_type

    def check_settings(self, settings: ReadingSettings) -> None:
        if settings.of(TextTaskSettings).long_texts == "windows":
            raise ConfigError(
                "long_texts='windows': a student learns what its teacher says of a whole text, not of a window; use "
                "'cut' or 'head_tail' (the teacher itself may read windows)"
            )
        super().check_settings(settings)

    def places(self, teacher: TextTask, shape: AnyConfig, name: str) -> tuple[int, ...]:
        task, theirs = self.task, list(shape.id2label.values())
        if teacher.is_pair != task.is_pair:
            reads = "pairs of texts" if task.is_pair else "single texts"
            raise ConfigError(f"teacher {name} is of task {teacher.name}, whose rows are not {reads} as in {task.name}")
        if task.labels is None:
            if len(theirs) != 1:
                raise ConfigError(f"teacher {name} has {len(theirs)} labels, and task {task.name} predicts a number")
            return (0,)
        several = shape.problem_type == "multi_label_classification", task.multi_label
        return label_places(theirs, task.labels, name, task.name, several)

    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        assert output.logits is not None
        soft_B = self.soft(output.logits, batch.targets[TEACHER])
        hard_B, has_B = self.hard(output.logits, batch.targets["labels"])
        return Judged(soft_B, torch.ones_like(has_B), hard_B, has_B)

    def num_units(self, batch: Batch) -> int:
        return len(batch.targets[TEACHER])

    def texts(self, example: Example) -> tuple[str, ...]:
        return (example.text,) if example.text_pair is None else (example.text, example.text_pair)

    @property
    def compares_texts(self) -> bool:
        return bool(self.task.is_pair)

    def read_unlabelled(self, file: Path, seen: Collection[Hashable]) -> tuple[Sequence[Example], int]:
        """Of the task's columns of a table, or each line of another file."""
        if self.task.is_pair and kind_of(file) is None:
            raise ConfigError(
                f"{file}: lines are no pairs of texts; give a table with the columns of task {self.task.name}"
            )
        check_file(file)
        return fresh_texts(self.task, file, seen, self.texts)

    def blank(self, example: Example) -> Example:
        return replace(example, label=() if self.task.multi_label else 0)

    def units(self, examples: Sequence[Example], tokenizer: PreTrainedTokenizer, settings: ReadingSettings) -> Units:
        return Units(np.ones(len(examples), np.int64))

    def said(self, outputs: Floats, encoded: TextRows) -> Floats:
        return outputs

    def on_rows(self, told: Floats, encoded: TextRows) -> tuple[Floats, Ints]:
        return told, np.arange(len(told) + 1)

    def outputs_of(self, told: Floats, encoded: TextRows) -> Floats:
        return told
