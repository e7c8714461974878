"""Optimizers against written-out formulas and torch's own; schedules against their definition."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest
import torch
from torch import nn

from bertkit import BertConfig, BertForSequenceClassification
from bertkit.errors import ConfigError
from bertkit.optim import (
    AdamW,
    AdamWeightDecay,
    Lamb,
    adamw,
    linear_schedule,
    original_schedule,
    parameter_groups,
    set_learning_rate,
)
from family_helpers import SHAPES
from forked_interpreter import run_forked
from training_helpers import tiny_model


def test_every_trainable_parameter_is_in_one_group_and_norms_and_biases_are_not_decayed() -> None:
    model = tiny_model()
    groups = parameter_groups(model, weight_decay=0.1)
    decay = {name: group["weight_decay"] for group in groups for name in group["names"]}
    assert sorted(decay) == sorted(name for name, _ in model.named_parameters())
    assert sum(len(group["params"]) for group in groups) == len(decay)
    for name, value in decay.items():
        spared = name.endswith("bias") or "norm" in name.lower()
        assert value == (0.0 if spared else 0.1), name


def test_frozen_parameters_are_left_out() -> None:
    model = tiny_model()
    model.bert.requires_grad_(False)
    names = [name for group in parameter_groups(model) for name in group["names"]]
    assert sorted(names) == ["classifier.bias", "classifier.weight"]
    model.classifier.requires_grad_(False)
    with pytest.raises(ConfigError, match="no trainable parameter"):
        parameter_groups(model)


@pytest.mark.parametrize("decay", [-1.0, math.nan, math.inf])
def test_wrong_decays_are_refused(decay: float) -> None:
    weights = [nn.Parameter(torch.ones(3))]
    for make in (AdamW, AdamWeightDecay, Lamb):
        with pytest.raises(ConfigError, match="weight_decay must be"):
            make(weights, lr=0.1, weight_decay=decay)
    for setting in ("weight_decay", "layer_decay"):
        with pytest.raises(ConfigError, match=f"{setting} must be"):
            parameter_groups(tiny_model(), **{setting: decay})


def test_layer_decay_falls_from_the_head_to_the_embeddings() -> None:
    groups = parameter_groups(tiny_model(), layer_decay=0.5)
    scale = {name: group["lr_scale"] for group in groups for name in group["names"]}
    assert scale["classifier.weight"] == scale["bert.pooler.dense.weight"] == 1.0
    assert scale["bert.encoder.layer.1.ffn_up.weight"] == 0.5
    assert scale["bert.encoder.layer.0.ffn_up.bias"] == 0.25
    assert scale["bert.embeddings.word_embeddings.weight"] == 0.125
    optimizer = adamw(groups, learning_rate=1.0)
    set_learning_rate(optimizer, 0.1)
    assert sorted({round(group["lr"], 6) for group in optimizer.param_groups}) == [0.0125, 0.025, 0.05, 0.1]


@pytest.mark.parametrize("kind", SHAPES)
def test_tables_of_every_family_are_the_lowest_layer(kind: str) -> None:
    """Those of distances too, which every layer reads: only what is above the layers has the full rate."""
    family, values = SHAPES[kind]
    config = BertConfig.from_dict({"model_type": family, **values})
    groups = parameter_groups(BertForSequenceClassification(config), layer_decay=0.5)
    scale = {name: group["lr_scale"] for group in groups for name in group["names"]}
    tables = [name for name in scale if "embeddings" in name or ".positions." in name]
    assert {scale[name] for name in tables} == {0.5 ** (config.num_stored_layers + 1)}
    assert any("encoder.positions.table" in name for name in tables) == (family in ("mpnet", "deberta-v2"))
    above = {name for name, value in scale.items() if value == 1.0}
    assert all(re.match(r"classifier\.|layer\.|bert\.pooler\.|bert\.encoder\.final_norm\.", name) for name in above)


def test_a_classifier_has_a_rate_of_its_own_beside_that_of_its_layer() -> None:
    groups = parameter_groups(tiny_model(), layer_decay=0.5, classifier_rate=5.0)
    scale = {name: group["lr_scale"] for group in groups for name in group["names"]}
    assert {name for name, value in scale.items() if value > 1} == {"classifier.weight", "classifier.bias"}
    assert scale["classifier.bias"] == 5.0
    assert scale["bert.encoder.layer.1.ffn_up.weight"] == 0.5


def test_adamw_is_the_textbook_update() -> None:
    """Loshchilov & Hutter 2019, algorithm 2, in float64 numpy."""
    generator = np.random.default_rng(0)
    start, grads = generator.normal(size=(4, 3)), generator.normal(size=(6, 4, 3))
    p = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = adamw([{"params": [p], "weight_decay": 0.01}], learning_rate=0.1)
    x, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for t, grad in enumerate(grads, start=1):
        p.grad = torch.tensor(grad)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        corrected = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        x = x - 0.1 * 0.01 * x - 0.1 * corrected
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-9)


def test_the_original_update_has_no_bias_correction() -> None:
    generator = np.random.default_rng(1)
    start, grads = generator.normal(size=(5,)), generator.normal(size=(6, 5))
    p = nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = AdamWeightDecay([p], lr=0.1, weight_decay=0.01)
    x, m, v = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for grad in grads:
        p.grad = torch.tensor(grad)
        optimizer.step()
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        x = x - 0.1 * (m / (np.sqrt(v) + 1e-6) + 0.01 * x)
        np.testing.assert_allclose(p.detach().numpy(), x, rtol=1e-9)


def test_without_bias_correction_the_first_step_is_three_times_larger() -> None:
    sizes = []
    for bias_correction in (True, False):
        p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
        p.grad = torch.ones_like(p)
        adamw([{"params": [p], "weight_decay": 0.0}], learning_rate=1.0, bias_correction=bias_correction).step()
        sizes.append(-p.item())
    assert sizes[1] / sizes[0] == pytest.approx(0.1 / math.sqrt(0.001), rel=1e-4)


def test_original_optimizer_state_survives_a_state_dict() -> None:
    def make() -> tuple[nn.Parameter, AdamWeightDecay]:
        p = nn.Parameter(torch.ones(3))
        return p, AdamWeightDecay([p], lr=0.1)

    p, first = make()
    q, second = make()
    for number in range(4):
        p.grad = torch.full((3,), float(number))
        first.step()
        if number == 1:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
            q.data.copy_(p.data)
        if number > 1:
            q.grad = torch.full((3,), float(number))
            second.step()
    assert torch.equal(p, q)


def test_closure_is_called() -> None:
    p = nn.Parameter(torch.ones(1))
    optimizer = AdamWeightDecay([p], lr=0.1)

    def closure() -> float:
        loss = (p * p).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 1.0
    assert p.item() < 1.0


@pytest.mark.parametrize(("num_steps", "warmup"), [(100, 0.1), (7, 0.5), (1, 0.1), (3, 0.0), (1000, 0.99), (2, 0.9)])
def test_linear_schedule_wastes_no_step(num_steps: int, warmup: float) -> None:
    schedule = linear_schedule(num_steps, warmup=warmup)
    values = [schedule(step) for step in range(num_steps)]
    peak = values.index(max(values))
    assert all(0 < value <= 1 for value in values)
    assert max(values) == 1.0
    assert values.count(1.0) == 1
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert peak == min(round(num_steps * warmup), num_steps - 1)
    assert schedule(num_steps) == 0.0


def test_linear_schedule_equals_the_usual_one_from_the_peak_on() -> None:
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    usual = transformers.get_linear_schedule_with_warmup(optimizer, 10, 100).lr_lambdas[0]
    ours = linear_schedule(100, warmup=0.1)
    assert [ours(step) for step in range(10, 101)] == pytest.approx([usual(step) for step in range(10, 101)])
    assert usual(0) == 0.0 < ours(0)


def test_original_schedule() -> None:
    schedule = original_schedule(100, warmup=0.1)
    assert [schedule(step) for step in (0, 5, 9, 10, 50, 99, 100)] == pytest.approx([0, 0.5, 0.9, 0.9, 0.5, 0.01, 0.0])


@pytest.mark.parametrize(("num_steps", "warmup"), [(0, 0.1), (10, 1.0), (10, -0.1), (10, math.nan)])
def test_wrong_schedules_are_refused(num_steps: int, warmup: float) -> None:
    for make in (linear_schedule, original_schedule):
        with pytest.raises(ConfigError):
            make(num_steps, warmup=warmup)


def test_adamw_of_older_tutorials() -> None:
    """``from transformers import AdamW`` becomes ``from bertkit import AdamW``; the defaults are that class's."""
    from bertkit import AdamW, ConfigError

    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = AdamW([weight], lr=1e-2)
    assert {name: optimizer.defaults[name] for name in ("lr", "betas", "eps", "weight_decay")} == {
        "lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0,
    }  # fmt: skip
    weight.grad = torch.full((3,), 0.5)
    optimizer.step()
    torch.testing.assert_close(weight.detach(), torch.full((3,), 1 - 1e-2 * 0.5 / (0.5 + 1e-6)))
    with pytest.raises(ConfigError, match="AdamWeightDecay"):
        AdamW([weight], correct_bias=False)


@pytest.mark.parametrize("fused", [True, False])
def test_adamw_is_that_of_torch(fused: bool) -> None:
    """To the bit, with a closure, and from a state that was saved and loaded."""
    ours, theirs = (nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4)) for _ in range(2))
    settings = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1, "fused": fused}
    first, second = AdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    values: list[float] = []
    for _ in range(3):
        for p, optimizer in ((ours, first), (theirs, second)):

            def loss(p: nn.Parameter = p, optimizer: torch.optim.Optimizer = optimizer) -> float:
                optimizer.zero_grad()
                value = (p.sin() * p).sum()
                value.backward()
                return value.item()

            values.append(optimizer.step(loss))
        assert values[-2] == values[-1]
        assert torch.equal(ours, theirs)
        fresh = AdamW([ours], **settings)
        fresh.load_state_dict(copy.deepcopy(first.state_dict()))
        first = fresh
    assert len(set(values)) == 3, "the control: it moves"


@pytest.mark.campaign  # a run of fine-tuning is looked at every day
@pytest.mark.slow
def test_optimizers_import_no_compiler() -> None:
    """Which torch's own do when they are made: a second of every process that trains."""
    code = (
        "import sys, torch\n"
        "from bertkit.optim import OPTIMIZERS, parameter_groups\n"
        "model = torch.nn.Module()\n"
        "model.encoder = torch.nn.Module()\n"
        "model.encoder.layer = torch.nn.ModuleList([torch.nn.Linear(4, 4)])\n"
        "for make in OPTIMIZERS.values():\n"
        "    optimizer = make(parameter_groups(model), learning_rate=0.1)\n"
        "    model.encoder.layer[0](torch.ones(4)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "    optimizer.load_state_dict(optimizer.state_dict())\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "torch.optim.AdamW(model.parameters())\n"
        "assert 'torch._dynamo' in sys.modules, 'the control'\n"
    )
    assert (done := run_forked(code)).returncode == 0, done.stderr
