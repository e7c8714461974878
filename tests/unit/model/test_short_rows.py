"""Softmax over rows that do not fill a register, and whole attention over such texts."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from bertkit.batch import Layout
from bertkit.model.attention import attend_reference
from bertkit.model.kernels.bucketed_attention import attend_bucketed, probabilities


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_and_their_gradient_are_those_of_softmax(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for width in range(1, 20):
        scores = torch.randn(2, 3, 4, width, dtype=torch.float64)
        scores[0, :, :, (width + 1) // 2 :] = -torch.inf  # padding
        weights = torch.randn_like(scores)
        found = []
        for kind, function in ((dtype, probabilities), (torch.float64, lambda x: x.softmax(dim=-1))):
            given = scores.to(dtype).to(kind).requires_grad_()
            out = function(given)
            assert out.dtype == kind
            assert out.shape == scores.shape
            (out * weights.to(dtype).to(kind)).sum().backward()
            found += [out.double(), given.grad]
        tolerance = 1e-6 if dtype == torch.float32 else 2e-2
        assert_close(found[0], found[2], rtol=0, atol=tolerance)
        assert_close(found[1].double(), found[3], rtol=0, atol=tolerance)


def test_attention_over_short_texts_is_the_reference() -> None:
    torch.manual_seed(0)
    layout = Layout((1, 2, 3, 5, 8, 13, 14, 15, 16, 17))
    qkv = torch.randn(sum(layout.lengths), 3, 2, 8)
    found = []
    for attend in (attend_bucketed, attend_reference):
        given = qkv.clone().requires_grad_()
        out = attend(given, layout, 0.0)
        (out * torch.arange(8)).sum().backward()
        found.append((out, given.grad))
    assert_close(found[0], found[1], rtol=0, atol=1e-5)
    assert not torch.allclose(found[0][0], attend_reference(qkv + 0.01, layout, 0.0), rtol=0, atol=1e-3)  # a control
