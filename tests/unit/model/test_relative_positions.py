"""Rows of tables of relative positions, and scores that depend on them, against transformers and plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position
from transformers.models.t5.modeling_t5 import T5Attention

from bertkit.batch import Layout
from bertkit.model.kernels import disentangled_scores
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.disentangled_scores import Distances, attend_disentangled, read_diagonals
from bertkit.model.kernels.relative_positions import log_buckets, t5_buckets

FAR = torch.arange(-9000, 9001)


@pytest.mark.parametrize(("buckets", "most"), [(256, 512), (256, 2048), (64, 512), (8, 16), (4, 9), (7, 100)])
def test_rows_of_deberta(buckets: int, most: int) -> None:
    assert torch.equal(log_buckets(FAR, buckets, most), make_log_bucket_position(FAR, buckets, most).long())


@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (64, 256), (8, 20)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_rows_of_t5(buckets: int, most: int, bidirectional: bool) -> None:
    theirs = T5Attention._relative_position_bucket(FAR, bidirectional, buckets, most)
    assert torch.equal(t5_buckets(FAR, buckets, most, bidirectional=bidirectional), theirs)


LENGTHS = (1, 3, 7, 70, 71, 2, 90)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_bias_by_distance() -> None:
    layout, longest = Layout(LENGTHS), max(LENGTHS) + 2
    qkv, bias = numbers(sum(LENGTHS), 3, 2, 4), numbers(2, 2 * longest - 1, seed=1)
    parts = []
    for start, end in layout.spans():
        q, k, v = qkv[start:end].unbind(1)
        place = torch.arange(end - start)
        scores = torch.einsum("qnh,knh->nqk", q, k) * 0.7 + bias[:, place[None] - place[:, None] + longest - 1]
        parts.append(torch.einsum("nqk,knh->qnh", scores.softmax(-1), v))
    expected = torch.cat(parts)
    assert torch.allclose(attend_bucketed(qkv, layout, 0.0, bias_ND=bias, scale=0.7), expected, atol=1e-12)
    rows = ChosenRows.first_and(torch.tensor([4, 30, 31, 100]), layout)
    found = attend_bucketed(qkv, layout, 0.0, rows, bias_ND=bias, scale=0.7)
    assert torch.allclose(found, expected[rows.rows], atol=1e-12)


def test_diagonals() -> None:
    for size in (1, 2, 3, 8):
        x = numbers(2, 3, size, 2 * size - 1)
        expected = [[x[..., i, j - i + size - 1] for j in range(size)] for i in range(size)]
        assert torch.equal(read_diagonals(x), torch.stack([torch.stack(row, -1) for row in expected], -2))


def one_by_one(qkv: Tensor, layout: Layout, keys: Tensor | None, queries: Tensor | None, scale: float, rows) -> Tensor:  # type: ignore[no-untyped-def]
    """He et al. 2021, equation 4, a pair of tokens at a time."""
    out = []
    for start, end in layout.spans():
        q, k, v = qkv[start:end].unbind(1)
        scores = torch.empty(end - start, end - start, q.shape[1], dtype=q.dtype)
        for i in range(end - start):
            for j in range(end - start):
                row = int(rows(torch.tensor(i - j)))
                score = (q[i] * k[j]).sum(-1)
                score = score if keys is None else score + (q[i] * keys[row]).sum(-1)
                score = score if queries is None else score + (k[j] * queries[row]).sum(-1)
                scores[i, j] = score * scale
        out.append(torch.einsum("qkn,knh->qnh", scores.softmax(1), v))
    return torch.cat(out)


@pytest.mark.parametrize("kinds", ["both", "keys", "queries"])
@pytest.mark.parametrize("span", [2, 40])  # products are gathered for most sequences; read along diagonals for all
def test_disentangled_scores(kinds: str, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout((1, 2, 9, 10, 23))

    def rows(distances: Tensor) -> Tensor:
        return (distances + span).clamp(0, 2 * span - 1)

    given = [numbers(layout.num_tokens, 3, 2, 4), numbers(2 * span, 2, 4, seed=1), numbers(2 * span, 2, 4, seed=2)]
    scale = 1 / math.sqrt(12)
    results = []
    for compute in (one_by_one, None):
        qkv, keys, queries = (x.clone().requires_grad_() for x in given)
        used = (keys if kinds != "queries" else None, queries if kinds != "keys" else None)
        if compute is None:
            out = attend_disentangled(qkv, layout, 0.0, None, Distances(*used, scale, rows))
        else:
            out = compute(qkv, layout, *used, scale, rows)
        (out * numbers(*out.shape, seed=3)).sum().backward()
        results.append([out.detach(), qkv.grad, *(x.grad for x in used if x is not None)])
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*results, strict=True))
    # Some heads, and some sequences, at a time.
    monkeypatch.setattr(disentangled_scores, "MAX_SCORES", 200)
    qkv, keys, queries = given
    used = (keys if kinds != "queries" else None, queries if kinds != "keys" else None)
    out = attend_disentangled(qkv, layout, 0.0, None, Distances(*used, scale, rows))
    assert torch.allclose(out, results[0][0], atol=1e-12)
    wrong = attend_disentangled(qkv, layout, 0.0, None, Distances(*used, scale, lambda d: rows(-d)))
    assert not torch.allclose(out, wrong, atol=1e-3)
