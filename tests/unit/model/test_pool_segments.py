"""Pooling of all sequences of a batch at once, as on a GPU, beside pooling one after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from bertkit.batch import Layout
from bertkit.config.sentence_config import POOLING_MODES
from bertkit.model.pooling import pool_segments, pool_sentences, pool_tokens

LAYOUT = Layout((4, 9, 3, 30, 3, 128))


@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("mode", POOLING_MODES)
def test_segments_are_pooled_as_one_after_the_other(mode: str, skipped: int) -> None:
    x_TD = torch.randn(LAYOUT.num_tokens, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    leaves = [x_TD.clone().requires_grad_() for _ in range(2)]
    pools = (pool_segments, pool_tokens) if mode != "weightedmean" else (pool_segments, by_hand)
    found, expected = (pool(leaf, LAYOUT, mode, skipped) for pool, leaf in zip(pools, leaves, strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-12)
    direction = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for each in (found, expected):
        (each * direction).sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-6, atol=1e-12)


def by_hand(x_TD: torch.Tensor, layout: Layout, mode: str, skipped: int) -> torch.Tensor:
    """The mean weighted by position from 1, Muennighoff (2022): sums of float64, where the other is of float32."""
    pooled = []
    for x_SD in x_TD.split(layout.lengths):
        weights_S = torch.arange(1, 1 + len(x_SD), dtype=torch.float64)[skipped:]
        pooled.append((weights_S[:, None] * x_SD[skipped:]).sum(0) / weights_S.sum())
    return torch.stack(pooled)


def test_halves_are_summed_in_32_bits() -> None:
    """In 16 bits the sum of so many ones would stop growing at 256."""
    layout = Layout((5, 1000))
    found = pool_segments(torch.ones(layout.num_tokens, 8, dtype=torch.bfloat16), layout, "mean")
    assert found.dtype == torch.bfloat16
    assert np.array_equal(found.float().numpy(), np.ones((2, 8), np.float32))


def test_a_gpu_is_not_waited_for() -> None:
    """On a pretended GPU, where reading a value back is an error; the same layout needs the same number of kernels."""
    with FakeTensorMode():
        for layout in (LAYOUT, Layout(LAYOUT.lengths * 50)):
            x_TD = torch.empty(layout.num_tokens, 8, device="cuda", dtype=torch.bfloat16)
            found = pool_sentences(x_TD, layout, POOLING_MODES, 1)
            assert found.shape == (layout.num_sequences, 8 * len(POOLING_MODES))
        with pytest.raises(DataDependentOutputException):
            found.sum().item()
