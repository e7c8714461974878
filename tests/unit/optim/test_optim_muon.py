"""Muon against a numpy reference that works on singular values, and against torch's own."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bertkit.errors import ConfigError
from bertkit.model.models import BertForPreTraining
from bertkit.optim import muon, orthogonalize, parameter_groups
from training_helpers import TINY, tiny_model

SHAPES = [(6, 6), (4, 9), (9, 4), (1, 5), (5, 1), (4, 9), (1, 1)]


def by_singular_values(matrix: np.ndarray, steps: int = 5) -> np.ndarray:
    """The quintic of Jordan et al. 2024 on the singular values, which is what the matrix iteration amounts to."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    s = s / max(np.sqrt((s**2).sum()), 1e-7)
    for _ in range(steps):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ vt


def test_orthogonalize_is_the_polynomial_of_the_singular_values() -> None:
    generator = np.random.default_rng(0)
    matrices = [generator.normal(size=shape) * 10.0 ** generator.integers(-3, 4) for shape in SHAPES]
    given = [torch.tensor(matrix) for matrix in matrices]
    found = orthogonalize(given)
    for matrix, result, tensor in zip(matrices, found, given, strict=True):
        np.testing.assert_allclose(result.numpy(), by_singular_values(matrix), rtol=1e-7, atol=1e-9)
        np.testing.assert_array_equal(tensor.numpy(), matrix)  # the input is not changed
    assert not np.allclose(found[0].numpy(), by_singular_values(matrices[0], steps=4), rtol=1e-3)  # a control


@pytest.mark.parametrize("shape", [(64, 64), (64, 256), (256, 64)])
def test_singular_values_come_near_1(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    [found] = orthogonalize([torch.randn(shape)])
    values = torch.linalg.svdvals(found)
    # The published coefficients trade exactness for a steep rise; a square random matrix has values near 0.
    assert values.max() < 1.25
    assert values.median() > 0.65
    if shape[0] != shape[1]:
        assert values.min() > 0.65


def test_zeros_stay_zeros() -> None:
    [found] = orthogonalize([torch.zeros(3, 5)])
    assert torch.equal(found, torch.zeros(3, 5))
    assert orthogonalize([]) == []


def named(name: str, values: np.ndarray) -> tuple[nn.Parameter, list[dict]]:
    p = nn.Parameter(torch.tensor(values))
    return p, [{"params": [p], "names": [name], "weight_decay": 0.1}]


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_the_update_of_a_hidden_matrix(shape: tuple[int, int]) -> None:
    generator = np.random.default_rng(1)
    x, grads = generator.normal(size=shape), generator.normal(size=(5, *shape))
    p, groups = named("encoder.layer.3.ffn_up.weight", x)
    optimizer = muon(groups, learning_rate=0.02)
    mean = np.zeros(shape)
    for grad in grads:
        p.grad = torch.tensor(grad)
        optimizer.step()
        mean = 0.95 * mean + 0.05 * grad
        update = 0.2 * math.sqrt(max(shape)) * by_singular_values(0.05 * grad + 0.95 * mean)
        x = x - 0.02 * 0.1 * x - 0.02 * update
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-7, atol=1e-9)


def test_the_same_as_torch_which_works_in_bf16() -> None:
    torch.manual_seed(0)
    start = torch.randn(16, 48)
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    name = "encoder.layer.0.ffn_up.weight"
    ours = muon([{"params": [p], "names": [name], "weight_decay": 0.1}], learning_rate=0.02)
    theirs = torch.optim.Muon([q], lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(5):
        p.grad = torch.randn_like(p)
        q.grad = p.grad.clone()
        ours.step()
        theirs.step()
    moved = (p - start).norm()
    assert (p - q).norm() < 0.02 * moved
    assert moved > 0.1  # a control: both did move


def test_query_key_and_value_are_made_orthogonal_one_by_one() -> None:
    generator = np.random.default_rng(2)
    grad = np.concatenate([generator.normal(size=(8, 8)) * scale for scale in (1e-3, 1.0, 1e3)])
    p, groups = named("encoder.layer.0.attention.qkv.weight", np.zeros((24, 8)))
    p.grad = torch.tensor(grad)
    muon(groups, learning_rate=1.0).step()
    expected = [-0.2 * math.sqrt(8) * by_singular_values(part) for part in np.split(grad, 3)]
    np.testing.assert_allclose(p.detach().numpy(), np.concatenate(expected), rtol=1e-6, atol=1e-8)


def test_hidden_matrices_only_and_nothing_is_lost() -> None:
    model = BertForPreTraining(TINY)
    optimizer = muon(parameter_groups(model, layer_decay=0.9), learning_rate=0.1)
    kind = {name: group["orthogonal"] for group in optimizer.param_groups for name in group["names"]}
    assert sorted(kind) == sorted(name for name, _ in model.named_parameters())
    hidden = [
        f"bert.encoder.layer.{layer}.{part}.weight"
        for layer in range(2)
        for part in ("attention.out", "attention.qkv", "ffn_down", "ffn_up")
    ]
    assert sorted(name for name, orthogonal in kind.items() if orthogonal) == hidden


def test_the_rest_is_adamw() -> None:
    ours_model, adam_model = tiny_model(), tiny_model()
    ours = muon(parameter_groups(ours_model), learning_rate=1e-2)
    adam = torch.optim.AdamW(parameter_groups(adam_model), lr=1e-2, eps=1e-6)
    torch.manual_seed(4)
    for _ in range(4):
        for p, q in zip(ours_model.parameters(), adam_model.parameters(), strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        ours.step()
        adam.step()
    for (name, p), q in zip(ours_model.named_parameters(), adam_model.parameters(), strict=True):
        hidden = "encoder.layer" in name and p.ndim == 2
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6) != hidden, name


def test_groups_without_hidden_matrices_or_names_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"none is trainable; use adamw"):
        muon([{"params": [nn.Parameter(torch.ones(2, 2))], "names": ["classifier.weight"]}], learning_rate=0.1)
    with pytest.raises(ConfigError, match=r"needs 'names'"):
        muon([{"params": [nn.Parameter(torch.ones(2, 2))]}], learning_rate=0.1)
    _, groups = named("encoder.layer.0.ffn_up.weight", np.ones((2, 2)))
    with pytest.raises(ConfigError, match="momentum"):
        muon(groups, learning_rate=0.1, momentum=1.0)
