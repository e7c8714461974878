"""Losses on vectors, beside loops over plain numbers (and in a campaign beside sentence-transformers)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.model.vector_losses import (
    Distance,
    angle_similarities,
    at_widths,
    contrastive_loss,
    cosent_loss,
    cosine_loss,
    in_batch_loss,
    online_contrastive_loss,
    triplet_loss,
)

Row = Sequence[float]


@pytest.fixture
def vectors() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(9, 6, dtype=torch.float64) for _ in range(4)]


def cosine(a: Row, b: Row) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def softmax_loss(query: Row, candidates: Sequence[Row], right: int, temperature: float) -> float:
    scores = [cosine(query, candidate) / temperature for candidate in candidates]
    return math.log(sum(math.exp(score) for score in scores)) - scores[right]


@pytest.mark.parametrize("num_negatives", [0, 1, 2])
def test_in_batch_negatives(vectors: list[Tensor], num_negatives: int) -> None:
    anchors, *others = vectors[: 2 + num_negatives]
    candidates, rows = torch.cat(others), torch.arange(9)
    a, c = anchors.tolist(), candidates.tolist()
    forward = [softmax_loss(a[row], c, row, 0.07) for row in range(9)]
    backward = [softmax_loss(c[row], a, row, 0.07) for row in range(9)]
    found = in_batch_loss(anchors, candidates, rows, temperature=0.07)
    assert float(found.total) == pytest.approx(sum(forward), abs=1e-10)
    assert found.num_targets == 9
    both = in_batch_loss(anchors, candidates, rows, temperature=0.07, symmetric=True)
    assert float(both.total) == pytest.approx((sum(forward) + sum(backward)) / 2, abs=1e-10)


def test_a_candidate_may_be_the_positive_of_one_and_the_negative_of_another(vectors: list[Tensor]) -> None:
    """The order of candidates does not count, only which of them is whose."""
    anchors, candidates = vectors[:2]
    order = torch.randperm(9)
    one = in_batch_loss(anchors, candidates, torch.arange(9)).total
    other = in_batch_loss(anchors, candidates[order], order.argsort()).total
    torch.testing.assert_close(one, other)
    wrong = in_batch_loss(anchors, candidates[order], torch.arange(9)).total
    assert abs(float(wrong - one)) > 0.1


def test_triplets(vectors: list[Tensor]) -> None:
    a, p, n = (each.tolist() for each in vectors[:3])
    right = [max(0.0, cosine(x, z) - cosine(x, y) + 0.3) for x, y, z in zip(a, p, n, strict=True)]
    assert 0.0 in right, "the margin must be reached by some"
    assert float(triplet_loss(*vectors[:3], margin=0.3).total) == pytest.approx(sum(right), abs=1e-12)


def test_scored_pairs(vectors: list[Tensor]) -> None:
    a, b = vectors[:2]
    scores = torch.tensor([0, 0.25, 0.25, 0.5, 1, 0, 0.75, 0.75, 0.5])
    found = [cosine(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    squares = [(x - y) ** 2 for x, y in zip(found, scores.tolist(), strict=True)]
    assert float(cosine_loss(a, b, scores).mean()) == pytest.approx(sum(squares) / 9, abs=1e-12)
    pairs = [(i, j) for i, j in product(range(9), repeat=2) if scores[i] < scores[j]]
    right = math.log(1 + sum(math.exp((found[i] - found[j]) / 0.05) for i, j in pairs))
    assert float(cosent_loss(a, b, scores).mean()) == pytest.approx(right, abs=1e-12)
    assert float(cosent_loss(a, b, torch.ones(9)).mean()) == 0.0


def test_widths(vectors: list[Tensor]) -> None:
    a, b = vectors[:2]
    rows, short = torch.arange(9), 2
    found = at_widths(lambda v: in_batch_loss(v[0], v[1], rows), [a, b], [6, short])
    right = in_batch_loss(a, b, rows).total + in_batch_loss(a[:, :short], b[:, :short], rows).total
    torch.testing.assert_close(found.total, right)
    assert found.num_targets == 9
    for widths in ([7], [0], []):
        with pytest.raises(InputError, match="from 1 to 6"):
            at_widths(lambda v: in_batch_loss(v[0], v[1], rows), [a, b], widths)


def test_cosines_are_computed_in_32_bits() -> None:
    vectors = torch.full((2, 4000), 6e4, dtype=torch.float16)
    assert float(cosine_loss(vectors, vectors, torch.ones(2)).total) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("width", [6, 5])
def test_the_angle_objective_compares_halves_as_complex_numbers(vectors: list[Tensor], width: int) -> None:
    a_BD, b_BD, scores = vectors[0][:, :width], vectors[1][:, :width], torch.arange(9.0) % 3
    half, total = (width + 1) // 2, 0.0
    near = []
    for a, b in zip(a_BD.tolist(), b_BD.tolist(), strict=True):
        a, b = ([*x, 0.0][: 2 * half] for x in (a, b))
        pairs = [(complex(*z), complex(*w)) for z, w in zip(_halves(a), _halves(b), strict=True)]
        product = sum(z * w.conjugate() for z, w in pairs) / (math.hypot(*a) * math.hypot(*b))
        near.append(abs(product.real + product.imag))
    for lower, higher in product_of_rows(scores.tolist()):
        total += math.exp((near[lower] - near[higher]) / 0.05)
    found = cosent_loss(a_BD, b_BD, scores, similarities=angle_similarities)
    assert float(found.total) == pytest.approx(math.log1p(total), rel=1e-6)


def _halves(x: list[float]) -> list[tuple[float, float]]:
    return list(zip(x[: len(x) // 2], x[len(x) // 2 :], strict=True))


def product_of_rows(scores: list[float]) -> list[tuple[int, int]]:
    """Pairs of rows of which the first has the lower score."""
    return [(i, j) for i, j in product(range(len(scores)), repeat=2) if scores[i] < scores[j]]


@pytest.mark.parametrize(("distance", "order"), [("euclidean", 2), ("manhattan", 1)])
def test_triplets_by_distances_of_whole_vectors(vectors: list[Tensor], distance: Distance, order: int) -> None:
    a, p, n, _ = vectors
    far = [
        [
            sum(abs(x - y) ** order for x, y in zip(*row, strict=True)) ** (1 / order)
            for row in zip(a.tolist(), b.tolist(), strict=True)
        ]
        for b in (p, n)
    ]
    expected = [max(0.0, near - away + 1.5) for near, away in zip(*far, strict=True)]
    assert min(expected) == 0 < max(expected)
    found = triplet_loss(a, p, n, margin=1.5, distance=distance)
    assert float(found.total) == pytest.approx(sum(expected), abs=1e-4)
    assert found.num_targets == 9


@pytest.mark.parametrize(("distance", "order"), [("euclidean", 2), ("manhattan", 1), ("cosine", 0)])
def test_pairs_that_are_alike_and_others(vectors: list[Tensor], distance: Distance, order: int) -> None:
    a, b, _, _ = vectors
    labels = [1, 0, 0, 1, 0, 1, 0, 1, 1]
    if order:
        rows = zip(a.tolist(), b.tolist(), strict=True)
        far = [sum(abs(x - y) ** order for x, y in zip(*row, strict=True)) ** (1 / order) for row in rows]
    else:
        far = (1 - torch.cosine_similarity(a, b)).tolist()
    margin = sorted(far)[5]
    terms = [d**2 if y else max(0.0, margin - d) ** 2 for d, y in zip(far, labels, strict=True)]
    found = contrastive_loss(a, b, torch.tensor(labels), margin=margin, distance=distance)
    assert float(found.total) == pytest.approx(sum(terms) / 2, abs=1e-4)
    assert found.num_targets == 9
    like = [d for d, y in zip(far, labels, strict=True) if y]
    unlike = [d for d, y in zip(far, labels, strict=True) if not y]
    hard = [d**2 for d in like if d > min(unlike)] + [max(0.0, margin - d) ** 2 for d in unlike if d < max(like)]
    found = online_contrastive_loss(a, b, torch.tensor(labels), margin=margin, distance=distance)
    assert float(found.total) == pytest.approx(sum(hard), abs=1e-4)
    assert found.num_targets == 1
    for alone in (0, 1):  # one label: the mean of its own distances in place of the other's
        one = torch.full((9,), alone)
        mean = sum(far) / 9
        rest = [d**2 for d in far if d > mean] if alone else [max(0.0, margin - d) ** 2 for d in far if d < mean]
        found = online_contrastive_loss(a, b, one, margin=margin, distance=distance)
        assert float(found.total) == pytest.approx(sum(rest), abs=1e-4)


@pytest.mark.campaign
def test_the_losses_are_those_of_sentence_transformers(vectors: list[Tensor]) -> None:
    pytest.importorskip("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import losses
    a, p, n, m = vectors
    rows, nothing, scores = torch.arange(9), torch.nn.Identity(), torch.randint(0, 5, (9,)).double() / 4
    ranking = losses.MultipleNegativesRankingLoss(nothing)
    both = losses.MultipleNegativesRankingLoss(
        nothing, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
    )
    triplets = losses.TripletLoss(nothing, losses.TripletDistanceMetric.COSINE, 0.3)
    cases = [
        (in_batch_loss(a, torch.cat([p, n, m]), rows), ranking.compute_loss_from_embeddings([a, p, n, m], None)),
        (in_batch_loss(a, torch.cat([p, n]), rows, symmetric=True), both.compute_loss_from_embeddings([a, p, n], None)),
        (
            triplet_loss(a, p, n, margin=5, distance="euclidean"),
            losses.TripletLoss(nothing).compute_loss_from_embeddings([a, p, n], None),
        ),
        (
            cosent_loss(a, p, scores, similarities=angle_similarities),
            losses.AnglELoss(nothing).compute_loss_from_embeddings([a, p], scores),
        ),
        (triplet_loss(a, p, n, margin=0.3), triplets.compute_loss_from_embeddings([a, p, n], None)),
        (cosine_loss(a, p, scores), losses.CosineSimilarityLoss(nothing).compute_loss_from_embeddings([a, p], scores)),
        (cosent_loss(a, p, scores), losses.CoSENTLoss(nothing).compute_loss_from_embeddings([a, p], scores)),
    ]
    for ours, theirs in cases:
        torch.testing.assert_close(ours.mean(), theirs, atol=1e-6, rtol=0, check_dtype=False)
