"""Students of teachers that tag words, with any tokenizer: a unit for each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
from torch import Tensor

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.model.output import ModelOutput
from bertkit.model.soft_targets import TEACHER, Judged
from bertkit.ragged import Flags, Floats, Ints
from bertkit.tasks.taught_workflow import TaughtWorkflow, Units, label_places
from bertkit.tasks.tokens.features import IGNORED, TokenWindows
from bertkit.tasks.tokens.task import TaggedExample, TokenTask
from bertkit.tasks.tokens.workflow import TokenWorkflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class TokenTaught(TaughtWorkflow, TokenWorkflow):
    """A word is a unit, which is that of its first piece; NaN for a word without any."""

    labels_alone: ClassVar[bool] = True

    def places(self, teacher: TokenTask, shape: AnyConfig, name: str) -> tuple[int, ...]:
        return label_places(teacher.labels, self.task.labels, name, self.task.name)

    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        """A unit for each token with a teacher ``(T, C)``, NaN where there is none, or with a label."""
        assert output.logits is not None
        units = _tagged(batch).nonzero().squeeze(1)
        logits_UC, teacher_UC = output.logits[units], batch.targets[TEACHER][units]
        taught_U = ~teacher_UC.isnan().any(dim=-1)
        soft_U = self.soft(logits_UC, teacher_UC.nan_to_num())
        return Judged(soft_U, taught_U, *self.hard(logits_UC, batch.targets["labels"][units]))

    def num_units(self, batch: Batch) -> int:
        return int(_tagged(batch).sum())

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


def _tagged(batch: Batch) -> Tensor:
    """The tokens with a teacher or a label: bool ``(T,)``."""
    return ~batch.targets[TEACHER].isnan().any(dim=-1) | (batch.targets["labels"] != IGNORED)


def _first_pieces(encoded: TokenWindows) -> tuple[Ints, Flags]:
    """The first piece of each word, and whether it has one: ``(W,)``."""
    assert encoded.first_pieces is not None, "rows are made of words"
    return encoded.first_pieces, encoded.first_pieces >= 0
