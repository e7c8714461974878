"""The losses of the heads: a sum and a count, so that micro-batches and devices can share one mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.errors import InputError


class LossTerm(NamedTuple):
    """``total``: scalar sum over the targets; ``num_targets``: what the mean divides it by.

    On a GPU that may be a tensor as well, so that the host need not wait for it.
    """

    total: Tensor
    num_targets: float | Tensor

    def mean(self) -> Tensor:
        """``total / num_targets``; nan when there was no target, as in ``torch.nn.CrossEntropyLoss``."""
        if isinstance(self.num_targets, Tensor):
            return self.total / self.num_targets
        return self.total / self.num_targets if self.num_targets else self.total * float("nan")


@dataclass(frozen=True, slots=True)
class LossOutput:
    """What the forward pass of a module that is only trained returns: the terms of its loss by name."""

    loss_terms: dict[str, LossTerm] | None


def class_loss(
    logits_BC: Tensor,
    labels: Tensor,
    problem_type: str | None = None,
    class_weights: Tensor | None = None,
    row_weights_B: Tensor | None = None,
) -> LossTerm:
    """Cross-entropy for one label, binary cross-entropy for several, squared error for a number.

    Labels are int64 ``(B,)``, float ``(B, C)``, or float ``(B,)``; see ``BertForSequenceClassification``. Without a
    ``problem_type`` C and their type decide. ``class_weights`` ``(C,)``: for one label the weight of each, for several
    what a label that is there weighs against one that is not (``pos_weight``). ``row_weights_B`` multiplies the loss of
    each row, and not what the sum is divided by: weights of mean 1 keep the size of the mean.
    """
    num_labels = logits_BC.shape[-1]
    if problem_type is None:
        whole = not labels.is_floating_point()
        problem_type = "regression" if num_labels == 1 else "single_label" if whole else "multi_label"
    if problem_type.startswith("single_label"):
        return token_loss(logits_BC, labels, class_weights, row_weights_B)
    logits_BC = in_fp32(logits_BC)
    if labels.numel() != logits_BC.numel():
        raise InputError(f"labels must have shape {tuple(logits_BC.shape)}, got {tuple(labels.shape)}")
    labels_BC = labels.view_as(logits_BC).to(logits_BC.dtype)
    how = "sum" if row_weights_B is None else "none"
    if problem_type == "regression":
        loss = F.mse_loss(logits_BC, labels_BC, reduction=how)
    else:
        weights = None
        if class_weights is not None:
            weights = class_weights.to(logits_BC.device, logits_BC.dtype, non_blocking=True)
        loss = F.binary_cross_entropy_with_logits(logits_BC, labels_BC, reduction=how, pos_weight=weights)
    return LossTerm(_weighted(loss, row_weights_B), float(labels.numel()))


def token_loss(
    logits_TC: Tensor, labels_T: Tensor, class_weights: Tensor | None = None, row_weights_T: Tensor | None = None
) -> LossTerm:
    """Cross-entropy of rows; a label of -100 is not a target. ``row_weights_T``: see :func:`class_loss`."""
    _check_labels(labels_T, logits_TC.shape[-1], len(logits_TC))
    logits_TC = in_fp32(logits_TC)
    weights = None
    if class_weights is not None:
        weights = class_weights.to(logits_TC.device, logits_TC.dtype, non_blocking=True)
    how = "sum" if row_weights_T is None else "none"
    loss = F.cross_entropy(logits_TC, labels_T, weight=weights, ignore_index=-100, reduction=how)
    return LossTerm(_weighted(loss, row_weights_T), _num_targets(labels_T, weights))


def _num_targets(labels_T: Tensor, weights: Tensor | None) -> float | Tensor:
    """Targets, or the sum of their weights: a tensor where the host would have to wait for it."""
    if labels_T.device.type == "cpu":
        targets = labels_T[labels_T != -100]
        return float(len(targets) if weights is None else weights[targets].sum())
    is_target_T = labels_T != -100
    if weights is None:
        return is_target_T.sum()
    return (weights[labels_T.clamp(min=0)] * is_target_T).sum()


def in_fp32(logits: Tensor) -> Tensor:
    """Logits as losses take them: a sum over thousands of targets needs more than 16 bits.

    On a CPU they stay as they are: autocasting, by which it computes in 16 bits, gives losses float32 itself.
    """
    is_half = logits.dtype in (torch.bfloat16, torch.float16)
    return logits.float() if is_half and logits.device.type != "cpu" else logits


def _weighted(loss: Tensor, row_weights_B: Tensor | None) -> Tensor:
    """The sum of the losses of rows ``(B, ...)``, each times its weight; without weights it is a sum already."""
    if row_weights_B is None:
        return loss
    return (loss.reshape(len(row_weights_B), -1).sum(dim=1) * row_weights_B.to(loss.device, loss.dtype)).sum()


def masked_lm_loss(logits: Tensor, labels_T: Tensor, rows_R: Tensor | None = None) -> LossTerm:
    """Cross-entropy at the labelled rows: labels int64, -100 where nothing is to be predicted.

    Logits are ``(T, V)``, or ``(R, V)`` at the rows ``rows_R``, which must include all labelled ones.
    """
    labels = labels_T if rows_R is None else labels_T.index_select(0, rows_R)
    if labels_T.device.type != "cpu":  # the rows without a target count nothing; to leave them out the host would wait
        return token_loss(logits, labels)
    if rows_R is not None and (labels != -100).sum() != (labels_T != -100).sum():
        raise InputError("logit_rows leaves out rows that labels marks as targets")
    labelled = (labels != -100).nonzero().squeeze(1)
    if len(labelled) < len(labels):
        logits, labels = logits.index_select(0, labelled), labels.index_select(0, labelled)
    return token_loss(logits, labels)


def replaced_token_loss(logits_T: Tensor, labels_T: Tensor) -> LossTerm:
    """Binary cross-entropy of tokens: 1 = replaced, 0 = original, -100 = no target (Clark et al. 2020, section 2)."""
    if not labels_T.is_floating_point():
        _check_labels(labels_T, 2, len(logits_T))
    if labels_T.device.type != "cpu":
        is_target_T = labels_T != -100
        labels = torch.where(is_target_T, labels_T, 0).float()
        losses_T = F.binary_cross_entropy_with_logits(in_fp32(logits_T), labels, reduction="none")
        return LossTerm(torch.where(is_target_T, losses_T, 0.0).sum(), is_target_T.sum())
    kept = (labels_T != -100).nonzero().squeeze(1)
    logits, labels = logits_T.index_select(0, kept), labels_T.index_select(0, kept).to(logits_T.dtype)
    return LossTerm(F.binary_cross_entropy_with_logits(logits, labels, reduction="sum"), float(len(kept)))


def span_loss(start_T: Tensor, end_T: Tensor, starts_B: Tensor, ends_B: Tensor, layout: Layout) -> LossTerm:
    """Mean of the cross-entropies of start and end, each a softmax over the tokens of its own sequence."""
    total = in_fp32(start_T).new_zeros(())
    inside_B = inside_sequences(starts_B, ends_B, layout)
    for logits_T, positions_B in ((start_T, starts_B), (end_T, ends_B)):
        logits_BS = by_sequence(in_fp32(logits_T), layout, -torch.inf)
        if inside_B.device.type == "cpu":
            total = total + F.cross_entropy(logits_BS[inside_B], positions_B[inside_B], reduction="sum") / 2
        else:
            targets_B = torch.where(inside_B, positions_B, -100)
            total = total + F.cross_entropy(logits_BS, targets_B, reduction="sum") / 2
    return LossTerm(total, float(inside_B.sum()) if inside_B.device.type == "cpu" else inside_B.sum())


def count_targets(labels: Tensor, class_weights: Tensor | None = None) -> float:
    """Numbers to predict, or labels that are not -100; with class weights, the sum of these labels' weights."""
    if labels.is_floating_point():
        return float(labels.numel())
    targets = labels[labels != -100]
    return float(targets.numel() if class_weights is None else class_weights.to(labels.device)[targets].sum())


def count_spans(starts_B: Tensor, ends_B: Tensor, layout: Layout) -> float:
    """Spans inside their sequences; the others are not targets."""
    return float(inside_sequences(starts_B, ends_B, layout).sum())


def by_sequence(x_T: Tensor, layout: Layout, fill: float) -> Tensor:
    """Numbers of tokens as rows ``(B, S)``, with ``fill`` behind the end of a sequence."""
    lengths_B = layout.lengths_on(x_T.device)
    real_BS = torch.arange(layout.max_seqlen, device=x_T.device)[None, :] < lengths_B[:, None]
    return x_T.new_full(real_BS.shape, fill).masked_scatter(real_BS, x_T)


def inside_sequences(starts_B: Tensor, ends_B: Tensor, layout: Layout) -> Tensor:
    """Which spans lie in their sequences, bool ``(B,)``; the others are not targets."""
    _check_shape("positions", starts_B, layout.num_sequences)
    _check_shape("positions", ends_B, layout.num_sequences)
    lengths_B = layout.lengths_on(starts_B.device)
    return (starts_B >= 0) & (starts_B < lengths_B) & (ends_B >= 0) & (ends_B < lengths_B)


def _check_labels(labels: Tensor, num_labels: int, num_rows: int) -> None:
    _check_shape("labels", labels, num_rows)
    if labels.device.type != "cpu" or not labels.numel():
        return
    wrong = (labels != -100) & ((labels < 0) | (labels >= num_labels))
    if wrong.any():
        raise InputError(f"label {int(labels[wrong][0])} is outside 0 ... {num_labels - 1}")


def _check_shape(name: str, values: Tensor, num_rows: int) -> None:
    if values.is_floating_point() or values.shape != (num_rows,):
        raise InputError(
            f"{name} must be integers of shape ({num_rows},), got {values.dtype} of shape {tuple(values.shape)}"
        )
