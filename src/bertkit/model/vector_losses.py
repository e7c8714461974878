"""Losses that compare the vectors of texts by their cosine: what a sentence encoder is trained with.

Letters of the array shapes: B rows of a batch, K candidates, D width of a vector. Each returns a sum and what the mean
divides it by, as :mod:`bertkit.model.losses` does. Cosines are of 32 bits or more whatever the vectors are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.losses import LossTerm

#: What cosines are divided by before a softmax, where nothing else is said: a scale of 20 (Reimers & Gurevych 2019's
#: library, and Su's CoSENT).
TEMPERATURE = 0.05
#: What the loss of triplets compares.
Distance = Literal["cosine", "euclidean", "manhattan"]


def directions(x_BD: Tensor) -> Tensor:
    """The vectors with length 1."""
    wide = x_BD if x_BD.dtype == torch.float64 else x_BD.float()
    return F.normalize(wide, dim=-1)


def cosines(a_BD: Tensor, b_BD: Tensor) -> Tensor:
    """Cosine of each vector and the one of the same number, ``(B,)``."""
    return (directions(a_BD) * directions(b_BD)).sum(dim=-1)


def angle_similarities(a_BD: Tensor, b_BD: Tensor) -> Tensor:
    """``|cosine + sine|`` of the first and second halves as complex numbers (Li & Li 2023, section 3.3), ``(B,)``."""
    a_BD, b_BD = (F.pad(each, (0, each.shape[-1] % 2)) for each in (directions(a_BD), directions(b_BD)))
    (real_a, imaginary_a), (real_b, imaginary_b) = a_BD.chunk(2, dim=-1), b_BD.chunk(2, dim=-1)
    sines_B = (imaginary_a * real_b - real_a * imaginary_b).sum(dim=-1)
    return ((a_BD * b_BD).sum(dim=-1) + sines_B).abs()


def in_batch_loss(
    anchors_BD: Tensor,
    candidates_KD: Tensor,
    positives_B: Tensor,
    *,
    temperature: float = TEMPERATURE,
    symmetric: bool = False,
) -> LossTerm:
    """Cross-entropy of finding each anchor's positive among all candidates (Henderson et al. 2017, section 4).

    candidates_KD: the positives of all rows, and hard negatives.
    positives_B: int64, number of each anchor's positive among the candidates.
    symmetric: the mean with the cross-entropy of finding each positive's anchor among all anchors; hard negatives
        have none.
    """
    scores_BK = directions(anchors_BD) @ directions(candidates_KD).t() / temperature
    total = F.cross_entropy(scores_BK, positives_B, reduction="sum")
    if symmetric:
        own_B = torch.arange(len(positives_B), device=positives_B.device)
        backwards = F.cross_entropy(scores_BK[:, positives_B].t(), own_B, reduction="sum")
        total = (total + backwards) / 2
    return LossTerm(total, float(len(positives_B)))


def triplet_loss(
    anchors_BD: Tensor, positives_BD: Tensor, negatives_BD: Tensor, *, margin: float, distance: Distance = "cosine"
) -> LossTerm:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` (Schroff et al. 2015, equation 3).

    Deviates: the usual distance is ``1 - cosine``, half of the squared distance of unit vectors that the paper has. The
    others are of vectors as they are (Reimers & Gurevych 2019, section 3, "triplet": Euclidean, margin 1).
    """
    near_B, far_B = (distances(anchors_BD, each, distance) for each in (positives_BD, negatives_BD))
    excess_B = near_B - far_B + margin
    return LossTerm(F.relu(excess_B).sum(), float(len(excess_B)))


def distances(a_BD: Tensor, b_BD: Tensor, distance: Distance) -> Tensor:
    """Of each vector and the one of the same number ``(B,)``: ``1 - cosine``, or of the vectors as they are."""
    if distance == "cosine":
        return 1 - cosines(a_BD, b_BD)
    return F.pairwise_distance(a_BD, b_BD, p=2.0 if distance == "euclidean" else 1.0)


def contrastive_loss(
    a_BD: Tensor, b_BD: Tensor, labels_B: Tensor, *, margin: float, distance: Distance = "cosine"
) -> LossTerm:
    """Half of ``d**2`` of texts that are alike (label 1), and of ``max(0, margin - d)**2`` of others (label 0).

    Hadsell, Chopra & LeCun 2006, equation 4.
    """
    found_B = distances(a_BD, b_BD, distance)
    labels_B = labels_B.to(found_B.dtype)
    terms_B = labels_B * found_B.square() + (1 - labels_B) * F.relu(margin - found_B).square()
    return LossTerm(terms_B.sum() / 2, float(len(terms_B)))


def online_contrastive_loss(
    a_BD: Tensor, b_BD: Tensor, labels_B: Tensor, *, margin: float, distance: Distance = "cosine"
) -> LossTerm:
    """Twice the sum of :func:`contrastive_loss` over the hard pairs of a batch, as sentence-transformers has it.

    Hard are pairs of label 1 that are farther apart than the nearest of label 0, and those of label 0 that are nearer
    than the farthest of label 1; where a batch has one pair of the other label or none, than the mean of their own.
    """
    found_B = distances(a_BD, b_BD, distance)
    like, unlike = found_B[labels_B > 0.5], found_B[labels_B <= 0.5]
    hard_unlike = unlike[unlike < (like.max() if len(like) > 1 else unlike.mean())]
    hard_like = like[like > (unlike.min() if len(unlike) > 1 else like.mean())]
    return LossTerm(hard_like.square().sum() + F.relu(margin - hard_unlike).square().sum(), 1.0)


def cosine_loss(a_BD: Tensor, b_BD: Tensor, scores_B: Tensor) -> LossTerm:
    """Squared error of the cosine against a score (Reimers & Gurevych 2019, section 3, "regression")."""
    found_B = cosines(a_BD, b_BD)
    return LossTerm(F.mse_loss(found_B, scores_B.to(found_B.dtype), reduction="sum"), float(len(found_B)))


def cosent_loss(
    a_BD: Tensor,
    b_BD: Tensor,
    scores_B: Tensor,
    *,
    temperature: float = TEMPERATURE,
    similarities: Callable[[Tensor, Tensor], Tensor] = cosines,
) -> LossTerm:
    """``log(1 + sum exp((cos_i - cos_j) / temperature))`` over all rows i that should score lower than j.

    Su 2022, https://kexue.fm/archives/8847. One number for the whole batch: only the order of the scores counts.
    With :func:`angle_similarities` in place of cosines it is the angle objective of Li & Li 2023, "AnglE".
    """
    scaled_B = similarities(a_BD, b_BD) / temperature
    lower_BB = scores_B[:, None] < scores_B[None, :]
    excess = (scaled_B[:, None] - scaled_B[None, :])[lower_BB]
    return LossTerm(torch.logsumexp(torch.cat([excess.new_zeros(1), excess]), dim=0), 1.0)


def at_widths(
    loss: Callable[[Sequence[Tensor]], LossTerm], vectors: Sequence[Tensor], widths: Sequence[int]
) -> LossTerm:
    """The sum of a loss over the first numbers of all vectors (Kusupati et al. 2022, "Matryoshka", equation 1).

    Every width counts the same; cosines are those of the shortened vectors.
    """
    whole = min(vector.shape[-1] for vector in vectors)
    if not widths or min(widths) < 1 or max(widths) > whole:
        raise InputError(
            f"vectors of {whole} numbers cannot be shortened to {list(widths)}; give widths from 1 to {whole}"
        )
    terms = [loss([vector[..., :width] for vector in vectors]) for width in widths]
    return LossTerm(torch.stack([term.total for term in terms]).sum(), terms[0].num_targets)
