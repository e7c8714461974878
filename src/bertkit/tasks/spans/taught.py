"""Students of teachers that answer from a context: a unit for each token of a window, with two logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.model.losses import by_sequence, inside_sequences
from bertkit.model.output import ModelOutput
from bertkit.model.soft_targets import TEACHER, Judged
from bertkit.ragged import Floats, Ints
from bertkit.tasks.spans.features import SpanWindows
from bertkit.tasks.spans.task import SpanExample, SpanTask
from bertkit.tasks.spans.workflow import SpanOutputs, SpanWorkflow
from bertkit.tasks.taught_workflow import TaughtWorkflow, Units
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class SpanTaught(TaughtWorkflow, SpanWorkflow):
    """A token of a window is a unit of what a teacher says."""

    reads_alike: ClassVar[bool] = True

    def places(self, teacher: SpanTask, shape: AnyConfig, name: str) -> tuple[int, ...]:
        return (0, 1)

    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        """A unit of the loss for each window: the mean of start and end, each chosen among the window's tokens."""
        assert output.start_logits is not None
        assert output.end_logits is not None
        layout, size = batch.layout, batch.layout.num_sequences

        def in_windows(start_T: Tensor, end_T: Tensor) -> Tensor:
            """``(2 B, S)``, at the padding a number whose probability is 0."""
            return torch.cat([by_sequence(each_T, layout, -1e4) for each_T in (start_T, end_T)])

        said = in_windows(output.start_logits.float(), output.end_logits.float())
        told = in_windows(*batch.targets[TEACHER].float().unbind(dim=-1))
        starts_B, ends_B = batch.targets["start_positions"], batch.targets["end_positions"]
        inside_B = inside_sequences(starts_B, ends_B, layout)
        places = torch.cat([torch.where(inside_B, each_B, -100) for each_B in (starts_B, ends_B)])
        soft_B, hard_B = (
            each.view(2, size).mean(dim=0) for each in (self.soft(said, told), self.hard(said, places)[0])
        )
        return Judged(soft_B, torch.ones_like(inside_B), hard_B, inside_B)

    def num_units(self, batch: Batch) -> int:
        return batch.layout.num_sequences

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
        return self.answered(encoded, told)
