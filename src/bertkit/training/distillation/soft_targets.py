"""Losses against what a teacher says, and a classifier that is trained with them.

Letters of the array shapes: B rows of a batch, C outputs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.model.losses import LossOutput, LossTerm
from bertkit.model.models import BertForSequenceClassification
from bertkit.model.seq2seq.reading_heads import BartForSequenceClassification
from bertkit.training.distillation.distill_settings import TaskDistillation

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
    """The usual loss of each row, 0 where there is no label, and which rows have one: both ``(B,)``.

    No label is -100 of integers, NaN of numbers.
    """
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


class TaughtClassifier(nn.Module):
    """A classifier in training with the logits of a teacher beside the labels, or instead of them.

    The loss of a labelled row is ``w`` times its soft loss plus ``1 - w`` times the usual one, of an unlabelled row its
    soft loss; the loss of a batch is the mean of its rows.
    """

    #: The name by which settings refer to this kind of model.
    kind: ClassVar[str] = "sequence"

    def __init__(
        self, student: BertForSequenceClassification | BartForSequenceClassification, settings: TaskDistillation
    ) -> None:
        super().__init__()
        self.student, self.settings = student, settings

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the student; the tokenizer is saved by itself."""
        self.student.save_pretrained(folder)

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The loss of a batch with the targets ``labels`` and ``teacher``, ``(B, C)``."""
        logits_BC = self.student.forward_packed(replace(batch, targets={})).logits
        assert logits_BC is not None
        problem = self.student.config.problem_type or SINGLE
        with torch.autocast(logits_BC.device.type, enabled=False):
            soft_B = soft_losses(logits_BC, batch.targets[TEACHER], problem, self.settings.temperature)
            hard_B, has_B = hard_losses(logits_BC, batch.targets["labels"], problem)
            weight_B = torch.where(has_B, self.settings.soft_weight, 1.0)
            size = float(len(soft_B))
            terms = {"soft": LossTerm((weight_B * soft_B).sum(), size)}
            if self.settings.soft_weight < 1:
                terms["hard"] = LossTerm(((1 - weight_B) * hard_B).sum(), size)
        return LossOutput(terms)

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Rows, for every term."""
        names = ("soft", "hard") if self.settings.soft_weight < 1 else ("soft",)
        return dict.fromkeys(names, float(len(batch.targets[TEACHER])))
