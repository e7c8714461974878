"""Losses against what a teacher says, and a model that is trained with them.

Letters of the array shapes: B rows of a batch, C outputs, U units (what the loss counts).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.model.losses import LossOutput, LossTerm
from bertkit.model.output import ModelOutput

#: Name of the teacher's logits among the targets of a batch.
TEACHER = "teacher"
SINGLE, SEVERAL = "single_label_classification", "multi_label_classification"


def soft_losses(student_BC: Tensor, teacher_BC: Tensor, problem_type: str, temperature: float) -> Tensor:
    """How far the student is from the teacher in each row, ``(B,)``.

    One label: ``T^2 KL(softmax(t / T) || softmax(s / T))`` (Hinton et al. 2015, section 2: the factor keeps the size of
    gradients). Several labels: the same of each label's yes and no, their mean. A number: the squared difference,
    without temperature.
    """
    s_BC, t_BC = student_BC.float(), teacher_BC.float()
    if problem_type == SINGLE:
        wanted_BC, said_BC = (F.log_softmax(x_BC / temperature, dim=-1) for x_BC in (t_BC, s_BC))
        found_B = (wanted_BC.exp() * (wanted_BC - said_BC)).sum(dim=-1)
        return found_B * temperature**2
    if problem_type == SEVERAL:
        both = [torch.stack([F.logsigmoid(x), F.logsigmoid(-x)]) for x in (t_BC / temperature, s_BC / temperature)]
        found_B = (both[0].exp() * (both[0] - both[1])).sum(dim=0).mean(dim=-1)
        return found_B * temperature**2
    return (s_BC - t_BC).square().mean(dim=-1)


def hard_losses(student_BC: Tensor, labels: Tensor, problem_type: str) -> tuple[Tensor, Tensor]:
    """The usual loss of each row, 0 without a label (-100, or NaN), and which rows have one: both ``(B,)``."""
    if problem_type == SINGLE:
        return F.cross_entropy(student_BC.float(), labels, ignore_index=-100, reduction="none"), labels != -100
    labels_BC = labels.view_as(student_BC).float()
    has_B = ~labels_BC.isnan().any(dim=-1)
    known_BC = labels_BC.nan_to_num()
    if problem_type == SEVERAL:
        each_BC = F.binary_cross_entropy_with_logits(student_BC.float(), known_BC, reduction="none")
    else:
        each_BC = (student_BC.float() - known_BC).square()
    return each_BC.mean(dim=-1) * has_B, has_B


class Judged(NamedTuple):
    """The losses of U units, each ``(U,)``.

    soft: against the teacher, where there is one (``taught``). hard: against the label, where there is one
    (``labelled``). They may be anything elsewhere, but not NaN.
    """

    soft: Tensor
    taught: Tensor
    hard: Tensor
    labelled: Tensor


class Judge(Protocol):
    """What differs by kind of task: what the units of a batch are, and how far each is from teacher and label."""

    #: Whether some units have a label and no teacher.
    labels_alone: ClassVar[bool]

    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        """The losses of a batch with the targets of the head, and ``teacher``."""

    def num_units(self, batch: Batch) -> int:
        """How many :meth:`judge` returns."""


class TaughtModel(nn.Module):
    """A model with a head, in training with the logits of a teacher beside the labels, or instead of them.

    The loss of a unit (a text, a word, a question, a window) with both is ``w`` times its soft loss plus ``1 - w``
    times the usual one, of one without a label its soft loss, of one without a teacher the usual one; that of a batch
    is the mean of its units.
    """

    def __init__(self, student: Any, judge: Judge, soft_weight: float) -> None:
        super().__init__()
        self.student, self.judge, self.soft_weight = student, judge, soft_weight
        reads_labels = soft_weight < 1 or judge.labels_alone
        self._terms = ("soft", "hard") if reads_labels else ("soft",)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the student; the tokenizer is saved by itself."""
        self.student.save_pretrained(folder)

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The loss of a batch with the targets that the kind of task has, and ``teacher``."""
        output = self.student.forward_packed(replace(batch, targets={}))
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            found = self.judge.judge(output, batch)
            weight_U = torch.where(found.labelled, self.soft_weight, 1.0) * found.taught
            totals = {"soft": (weight_U * found.soft).sum()}
            if "hard" in self._terms:
                totals["hard"] = ((1 - weight_U) * found.labelled * found.hard).sum()
        return LossOutput({name: LossTerm(total, float(len(weight_U))) for name, total in totals.items()})

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Units, for every term."""
        return dict.fromkeys(self._terms, float(self.judge.num_units(batch)))
