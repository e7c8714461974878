"""The original's optimizer to the last bit, against its published update written out one element at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bertkit.errors import ConfigError
from bertkit.model.models import BertForPreTraining
from bertkit.optim import AdamWeightDecay, adamw, parameter_groups
from published_adam import F, published_step
from training_helpers import TINY


def run_both(size: int, num_steps: int, lr: float, decay: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    start = generator.normal(size=size).astype(F)
    # Gradients of many magnitudes, some exactly 0, as the rows of an embedding table have them.
    grads = (generator.normal(size=(num_steps, size)) * 10.0 ** generator.integers(-8, 2, size=size)).astype(F)
    grads[generator.random((num_steps, size)) < 0.2] = 0
    p = nn.Parameter(torch.from_numpy(start.copy()))
    optimizer = AdamWeightDecay([p], lr=lr, weight_decay=decay)
    for grad in grads:
        p.grad = torch.from_numpy(grad.copy())
        optimizer.step()
    expected = []
    for column, value in enumerate(start):
        x, m, v = value, F(0), F(0)
        for grad in grads[:, column]:
            x, m, v = published_step(x, grad, m, v, lr=lr, decay=decay)
        expected.append(x)
    return p.detach().numpy(), np.array(expected, dtype=F)


@given(
    size=st.integers(1, 70),
    num_steps=st.integers(1, 12),
    lr=st.sampled_from([2e-5, 1e-4, 1e-2, 0.3]),
    decay=st.sampled_from([0.0, 0.01, 0.1]),
    seed=st.integers(0, 10_000),
)
def test_every_bit_is_that_of_the_published_update(
    size: int, num_steps: int, lr: float, decay: float, seed: int
) -> None:
    ours, published = run_both(size, num_steps, lr, decay, seed)
    np.testing.assert_array_equal(ours.view(np.int32), published.view(np.int32))


def test_the_comparison_sees_one_rounding() -> None:
    """A control: multiply-add, rounded once in place of twice, is told apart."""
    generator = np.random.default_rng(5)
    grads = torch.from_numpy(generator.normal(size=(8, 400)).astype(F))
    p, q = nn.Parameter(torch.ones(400)), torch.ones(400)
    optimizer = AdamWeightDecay([p], lr=1e-2)
    m, v = torch.zeros(400), torch.zeros(400)
    for grad in grads:
        p.grad = grad.clone()
        optimizer.step()
        m.mul_(0.9).add_(grad, alpha=1 - 0.9)
        v.mul_(0.999).addcmul_(grad, grad, value=1 - 0.999)
        q.sub_(1e-2 * (m / (v.sqrt() + 1e-6) + 0.01 * q))
    assert not torch.equal(p.detach(), q)
    torch.testing.assert_close(p.detach(), q)


def test_tensors_cut_for_the_cache_or_not_contiguous_have_the_same_bits() -> None:
    """A tensor of several runs and a transposed one, against the published update on whole float32 arrays."""
    generator = np.random.default_rng(7)
    shape = (3, (1 << 16) + 5)
    start, grads = generator.normal(size=shape).astype(F), generator.normal(size=(3, *shape)).astype(F)
    long = nn.Parameter(torch.from_numpy(start.copy()))
    turned = nn.Parameter(torch.from_numpy(start.T.copy()).T)
    assert not turned.is_contiguous()
    optimizer = AdamWeightDecay([long, turned], lr=1e-2)
    x, m, v = start, np.zeros_like(start), np.zeros_like(start)
    for grad in grads:
        long.grad, turned.grad = torch.from_numpy(grad.copy()), torch.from_numpy(grad.copy())
        optimizer.step()
        m = F(0.9) * m + F(1.0 - 0.9) * grad
        v = F(0.999) * v + F(1.0 - 0.999) * (grad * grad)
        x = x - F(1e-2) * (m / (np.sqrt(v) + F(1e-6)) + F(0.01) * x)
    for p in (long, turned):
        np.testing.assert_array_equal(p.detach().numpy().view(np.int32), x.view(np.int32))


def test_no_decay_for_what_the_original_excludes_by_name() -> None:
    """The published list is LayerNorm, layer_norm and bias; ours goes by the number of axes and must come out equal."""
    for group in parameter_groups(BertForPreTraining(TINY), weight_decay=0.01):
        for name in group["names"]:
            excluded = name.endswith("bias") or "norm" in name.lower()
            assert (group["weight_decay"] == 0.0) == excluded, name


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"learning_rate": -1e-3}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": 1e-3, "betas": (0.9, 1.0)}, "betas"),
        ({"learning_rate": 1e-3, "eps": 0.0}, "eps"),
    ],
)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_settings_out_of_bounds_are_refused(wrong: dict, told: str, bias_correction: bool) -> None:
    with pytest.raises(ConfigError, match=told):
        adamw([{"params": [nn.Parameter(torch.ones(1))]}], bias_correction=bias_correction, **wrong)
