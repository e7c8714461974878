"""Attention in a window against all scores with a mask: results, gradients, chosen rows, dropout, memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bertkit.batch import Layout
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.windowed_attention import attend_windowed

#: Around the window's edges, shorter, much longer, and short ones beside long ones.
BATCHES = [(1,), (4,), (5,), (6,), (8,), (9,), (10,), (40,), (3, 41, 1, 5, 6, 17), (5, 5), (100, 2)]
HALF = 4


def masked(qkv: Tensor, layout: Layout, half: int) -> Tensor:
    """All scores of each sequence, those outside the window hidden."""
    out = []
    for start, end in layout.spans():
        q, k, v = (x.transpose(0, 1) for x in qkv[start:end].unbind(1))
        place = torch.arange(end - start)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill((place[:, None] - place[None, :]).abs() > half, -torch.inf)
        out.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(out)


def numbers(layout: Layout, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(layout.num_tokens)
    return torch.randn(layout.num_tokens, 3, 2, 6, dtype=dtype, generator=generator)


@pytest.mark.parametrize("lengths", BATCHES)
def test_equals_all_scores_with_a_mask(lengths: tuple[int, ...]) -> None:
    layout = Layout(lengths)
    ours, theirs = (numbers(layout).requires_grad_() for _ in range(2))
    out, expected = attend_windowed(ours, layout, 0.0, half=HALF), masked(theirs, layout, HALF)
    assert torch.allclose(out, expected, atol=1e-12)
    weights = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(1))
    (out * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.allclose(ours.grad, theirs.grad, atol=1e-12)  # type: ignore[arg-type]
    if layout.max_seqlen > HALF + 1:  # a wider window would be seen
        assert not torch.allclose(masked(theirs, layout, HALF + 1), expected, atol=1e-3)


@pytest.mark.parametrize("length", [63, 64, 65, 66, 127, 128, 129, 130])
def test_edges_of_the_published_window(length: int) -> None:
    layout = Layout((length, 7, length))
    qkv = numbers(layout)
    assert torch.allclose(attend_windowed(qkv, layout, 0.0, half=64), masked(qkv, layout, 64), atol=1e-12)


def test_chosen_rows() -> None:
    layout = Layout((3, 41, 1, 6))
    qkv = numbers(layout)
    rows = ChosenRows.first_and(torch.tensor([7, 20, 43, 2]), layout)
    found = attend_windowed(qkv, layout, 0.0, rows, half=HALF)
    assert torch.allclose(found, masked(qkv, layout, HALF)[rows.rows], atol=1e-12)


def test_dropout_keeps_the_mean() -> None:
    layout = Layout((30, 3))
    qkv = numbers(layout, torch.float32)
    torch.manual_seed(0)
    draws = torch.stack([attend_windowed(qkv, layout, 0.3, half=HALF) for _ in range(400)])
    error = draws.std(0) / 20
    assert ((draws.mean(0) - masked(qkv, layout, HALF)).abs() <= 5 * error + 1e-6).all()
    assert draws.std(0).min() > 0


class Largest(TorchDispatchMode):
    """The values of the largest tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.values = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        found = out if isinstance(out, tuple | list) else [out]
        self.values = max([self.values, *(x.numel() for x in found if isinstance(x, Tensor))])
        return out


@pytest.mark.campaign
@pytest.mark.slow
def test_memory_grows_with_the_length_only() -> None:
    """No tensor is much larger than queries, keys and values themselves; all scores would be 2,000 times as large."""
    layout = Layout((8191,))
    with Largest() as seen:
        qkv = torch.zeros(8191, 3, 2, 6)
        attend_windowed(qkv, layout, 0.0, half=64)
    assert seen.values <= 20 * qkv.numel()
    with Largest() as seen:
        masked(qkv, layout, 64)
    assert seen.values > 400 * qkv.numel()
