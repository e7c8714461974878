"""Losses against what a teacher says, and a model that is trained with them.

Letters of the array shapes: B rows of a batch, C outputs, T tokens, K choices of a question, U units (what
the loss counts).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.model.losses import LossOutput, LossTerm, by_sequence, inside_sequences
from bertkit.model.output import ModelOutput
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


class Judged(NamedTuple):
    """The losses of U units, each ``(U,)``.

    soft: against the teacher, where there is one (``taught``). hard: against the label, where there is one
    (``labelled``). They may be anything elsewhere, but not NaN.
    """

    soft: Tensor
    taught: Tensor
    hard: Tensor
    labelled: Tensor


def judge_texts(output: ModelOutput, batch: Batch, problem_type: str, temperature: float) -> Judged:
    """A unit for each text: teacher ``(B, C)``."""
    assert output.logits is not None
    soft_B = soft_losses(output.logits, batch.targets[TEACHER], problem_type, temperature)
    hard_B, has_B = hard_losses(output.logits, batch.targets["labels"], problem_type)
    return Judged(soft_B, torch.ones_like(has_B), hard_B, has_B)


def judge_tags(output: ModelOutput, batch: Batch, problem_type: str, temperature: float) -> Judged:
    """A unit for each token with a teacher ``(T, C)``, NaN where there is none, or with a label."""
    assert output.logits is not None
    units = _tagged(batch).nonzero().squeeze(1)
    logits_UC, teacher_UC = output.logits[units], batch.targets[TEACHER][units]
    taught_U = ~teacher_UC.isnan().any(dim=-1)
    soft_U = soft_losses(logits_UC, teacher_UC.nan_to_num(), SINGLE, temperature)
    hard_U, has_U = hard_losses(logits_UC, batch.targets["labels"][units], SINGLE)
    return Judged(soft_U, taught_U, hard_U, has_U)


def judge_choices(output: ModelOutput, batch: Batch, problem_type: str, temperature: float) -> Judged:
    """A unit for each question: teacher ``(B * K, 1)``."""
    assert output.logits is not None
    labels = batch.targets["labels"]
    logits_BK, teacher_BK = (each.view(len(labels), -1) for each in (output.logits, batch.targets[TEACHER]))
    hard_B, has_B = hard_losses(logits_BK, labels, SINGLE)
    return Judged(soft_losses(logits_BK, teacher_BK, SINGLE, temperature), torch.ones_like(has_B), hard_B, has_B)


def judge_spans(output: ModelOutput, batch: Batch, problem_type: str, temperature: float) -> Judged:
    """A unit for each window: teacher ``(T, 2)``; the mean of start and end, each chosen among the window's tokens."""
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
    hard, _ = hard_losses(said, places, SINGLE)
    soft = soft_losses(said, told, SINGLE, temperature)
    return Judged(soft.view(2, size).mean(dim=0), torch.ones_like(inside_B), hard.view(2, size).mean(dim=0), inside_B)


def _tagged(batch: Batch) -> Tensor:
    """The tokens with a teacher or a label: bool ``(T,)``."""
    return ~batch.targets[TEACHER].isnan().any(dim=-1) | (batch.targets["labels"] != -100)


class Form(NamedTuple):
    """How a kind of head is judged, and how many units a batch has."""

    judge: Callable[[ModelOutput, Batch, str, float], Judged]
    count: Callable[[Batch], int]


#: By the ``kind`` of a head.
FORMS: Mapping[str, Form] = {
    "sequence": Form(judge_texts, lambda batch: len(batch.targets[TEACHER])),
    "token": Form(judge_tags, lambda batch: int(_tagged(batch).sum())),
    "choice": Form(judge_choices, lambda batch: len(batch.targets["labels"])),
    "span": Form(judge_spans, lambda batch: batch.layout.num_sequences),
}


class TaughtModel(nn.Module):
    """A model with a head, in training with the logits of a teacher beside the labels, or instead of them.

    The loss of a unit (a text, a word, a question, a window) with both is ``w`` times its soft loss plus ``1 - w``
    times the usual one, of one without a label its soft loss, of one without a teacher the usual one; the loss of a
    batch is the mean of its units.
    """

    def __init__(self, student: Any, settings: TaskDistillation) -> None:
        super().__init__()
        self.student, self.settings = student, settings

    @property
    def kind(self) -> str:
        """The name by which settings refer to this kind of model."""
        return str(self.student.kind)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the student; the tokenizer is saved by itself."""
        self.student.save_pretrained(folder)

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The loss of a batch with the targets of the head, and ``teacher``: see the ``judge_...`` functions."""
        output = self.student.forward_packed(replace(batch, targets={}))
        problem = self.student.config.problem_type or SINGLE
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            found = FORMS[self.kind].judge(output, batch, problem, self.settings.temperature)
            weight_U = torch.where(found.labelled, self.settings.soft_weight, 1.0) * found.taught
            size = float(len(weight_U))
            terms = {"soft": LossTerm((weight_U * found.soft).sum(), size)}
            if self._reads_labels:
                terms["hard"] = LossTerm(((1 - weight_U) * found.labelled * found.hard).sum(), size)
        return LossOutput(terms)

    @property
    def _reads_labels(self) -> bool:
        return self.settings.soft_weight < 1 or self.kind == "token"  # of whose tokens some have a label alone

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Units, for every term."""
        names = ("soft", "hard") if self._reads_labels else ("soft",)
        return dict.fromkeys(names, float(FORMS[self.kind].count(batch)))
