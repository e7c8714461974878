"""Students of teachers that choose: a unit for each choice, one number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.model.output import ModelOutput
from bertkit.model.soft_targets import TEACHER, Judged
from bertkit.ragged import Floats, GroupSet, Ints, boundaries_of
from bertkit.tasks.choices.task import ChoiceExample, ChoiceTask
from bertkit.tasks.choices.workflow import ChoiceWorkflow
from bertkit.tasks.taught_workflow import TaughtWorkflow, Units
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class ChoiceTaught(TaughtWorkflow, ChoiceWorkflow):
    """A choice is a unit of what a teacher says."""

    def places(self, teacher: ChoiceTask, shape: AnyConfig, name: str) -> tuple[int, ...]:
        return (0,)

    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        """A unit of the loss for each question: teacher ``(B * K, 1)``."""
        assert output.logits is not None
        labels = batch.targets["labels"]
        logits_BK, teacher_BK = (each.view(len(labels), -1) for each in (output.logits, batch.targets[TEACHER]))
        hard_B, has_B = self.hard(logits_BK, labels)
        return Judged(self.soft(logits_BK, teacher_BK), torch.ones_like(has_B), hard_B, has_B)

    def num_units(self, batch: Batch) -> int:
        return len(batch.targets["labels"])

    def texts(self, example: ChoiceExample) -> tuple[str, ...]:
        return example.context, example.start, *example.choices

    def blank(self, example: ChoiceExample) -> ChoiceExample:
        return replace(example, label=0)

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
