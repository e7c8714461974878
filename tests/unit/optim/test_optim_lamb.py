"""LAMB against algorithm 2 of its paper, written out in float64 numpy with one loop over the weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bertkit.errors import ConfigError
from bertkit.optim import Lamb, lamb, parameter_groups
from training_helpers import tiny_model

Weights = dict[str, np.ndarray]


def algorithm_2(start: Weights, grads: list[Weights], *, lr: float, decay: float, vectors: bool) -> Weights:
    """You et al. 2020; the scaling function is the identity, and the ratio is 1 where a norm is 0."""
    x = {name: value.copy() for name, value in start.items()}
    m = {name: np.zeros_like(value) for name, value in start.items()}
    v = {name: np.zeros_like(value) for name, value in start.items()}
    for t, at_t in enumerate(grads, start=1):
        for name, grad in at_t.items():
            m[name] = 0.9 * m[name] + 0.1 * grad
            v[name] = 0.999 * v[name] + 0.001 * grad * grad
            r = (m[name] / (1 - 0.9**t)) / (np.sqrt(v[name] / (1 - 0.999**t)) + 1e-6)
            update = r + decay * x[name]
            weight_norm, update_norm = np.sqrt((x[name] ** 2).sum()), np.sqrt((update**2).sum())
            ratio = weight_norm / update_norm if weight_norm > 0 and update_norm > 0 else 1.0
            if x[name].ndim < 2 and not vectors:
                ratio = 1.0
            x[name] = x[name] - lr * ratio * update
    return x


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lamb_is_algorithm_2(decay: float, vectors: bool) -> None:
    generator = np.random.default_rng(0)
    shapes = {"a": (4, 3), "b": (7,), "c": (2, 9), "zero": (3, 3)}
    start = {name: generator.normal(size=shape) * (name != "zero") for name, shape in shapes.items()}
    grads = [{name: generator.normal(size=shape) for name, shape in shapes.items()} for _ in range(7)]
    params = {name: nn.Parameter(torch.tensor(value)) for name, value in start.items()}
    optimizer = Lamb(params.values(), lr=0.05, weight_decay=decay, adapt_vectors=vectors)
    for at_t in grads:
        for name, p in params.items():
            p.grad = torch.tensor(at_t[name])
        optimizer.step()
    expected = algorithm_2(start, grads, lr=0.05, decay=decay, vectors=vectors)
    for name, p in params.items():
        np.testing.assert_allclose(p.detach().numpy(), expected[name], rtol=1e-9, atol=1e-12, err_msg=name)
    # A control: without the ratio of matrix "a" the comparison fails.
    other = algorithm_2({"a": start["a"]}, [{"a": g["a"]} for g in grads], lr=0.06, decay=decay, vectors=vectors)
    assert not np.allclose(other["a"], expected["a"], rtol=1e-3)


@pytest.mark.parametrize("name", ["encoder.layer.0.attention.qkv.weight", "decoder.layer.0.cross.kv.weight"])
def test_query_key_and_value_have_ratios_of_their_own(name: str) -> None:
    generator, parts = np.random.default_rng(3), name.split(".")[-2]
    pieces = {part: generator.normal(size=(4, 4)) * {"q": 0.1, "k": 1.0, "v": 10.0}[part] for part in parts}
    grads = [{part: generator.normal(size=(4, 4)) for part in parts} for _ in range(3)]
    p = nn.Parameter(torch.tensor(np.concatenate(list(pieces.values()))))
    alone = nn.Parameter(p.detach().clone())
    split = lamb([{"params": [p], "names": [name], "weight_decay": 0.01}], learning_rate=0.05)
    whole = lamb([{"params": [alone], "names": ["dense.weight"], "weight_decay": 0.01}], learning_rate=0.05)
    for at_t in grads:
        p.grad = torch.tensor(np.concatenate([at_t[part] for part in parts]))
        alone.grad = p.grad.clone()
        split.step()
        whole.step()
    expected = algorithm_2(pieces, grads, lr=0.05, decay=0.01, vectors=False)
    np.testing.assert_allclose(p.detach().numpy(), np.concatenate(list(expected.values())), rtol=1e-9)
    assert not torch.allclose(alone, p, rtol=1e-3)  # a control: one ratio for all of them is something else


def test_the_first_update_of_every_matrix_is_a_fixed_share_of_its_length() -> None:
    """What LAMB is for: whatever the gradient's size, |change| = lr |weight|."""
    model = tiny_model()
    optimizer = lamb(parameter_groups(model, weight_decay=0.0), learning_rate=0.01)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for number, p in enumerate(model.parameters()):
        p.grad = torch.randn_like(p) * 10.0 ** (number % 7 - 3)
    optimizer.step()
    for name, p in model.named_parameters():
        if p.ndim >= 2:
            parts = 3 if "qkv" in name else 1
            for old, new in zip(before[name].chunk(parts), p.detach().chunk(parts), strict=True):
                assert (new - old).norm().item() == pytest.approx(0.01 * old.norm().item(), rel=1e-3), name


def test_parameters_without_gradient_stay_and_keep_their_own_count() -> None:
    p, q = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([p, q], lr=0.1)
    p.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(q.detach(), torch.ones(2, 2))
    q.grad = torch.ones(2, 2)
    p.grad = None
    optimizer.step()
    torch.testing.assert_close(p, q)  # each has taken one and the same step


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="betas"):
        lamb([{"params": [nn.Parameter(torch.ones(1))]}], learning_rate=0.1, betas=(-0.1, 0.9))
