"""Every optimizer in the training loop: it learns, its checkpoint resumes to the bit, it leaves no gradient changed."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from bertkit.batch import Batch
from bertkit.optim import OPTIMIZERS, budget_schedule, linear_schedule, parameter_groups, set_learning_rate
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from training_helpers import ToyData, no_dropout, tiny_model, weights

DATA = ToyData()
NAMES = sorted(OPTIMIZERS)
#: LAMB's rate is a share of the weight's length, so it is another scale than Adam's.
RATES = {"adamw": 3e-3, "adam-weight-decay": 1e-3, "lamb": 3e-2, "muon": 1e-2}


def make_optimizer(
    name: str, model: nn.Module, learning_rate: float, layer_decay: float | None = None
) -> torch.optim.Optimizer:
    return OPTIMIZERS[name](parameter_groups(model, layer_decay=layer_decay), learning_rate=learning_rate)


def make_trainer(name: str, num_steps: int, folder: Path | None = None, seed: int = 0) -> Trainer[Batch]:
    seed_generators(seed)
    model = tiny_model(seed)
    optimizer = make_optimizer(name, model, learning_rate=RATES[name], layer_decay=0.9)
    options = LoopOptions(num_steps, RATES[name], folder=folder)
    return Trainer(model, DATA.plan(), optimizer, linear_schedule(num_steps), options)


def after_four_steps(name: str, folder: Path) -> Trainer[Batch]:
    """A run of 9 steps, 4 of which are made."""
    trainer = make_trainer(name, 9, folder)
    for _ in range(4):
        trainer.train_step()
    return trainer


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(name: str, tmp_path: Path) -> None:
    whole = make_trainer(name, 9)
    whole.run()
    after_four_steps(name, tmp_path).save()
    second = make_trainer(name, 9, tmp_path, seed=1)
    assert second.resume()
    second.run()
    ours, theirs = weights(second.model), weights(whole.model)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("name", NAMES)
def test_without_its_state_the_resumed_run_is_another(name: str, tmp_path: Path) -> None:
    """A control for the test above: the optimizer's state matters."""
    whole = make_trainer(name, 9)
    whole.run()
    first = after_four_steps(name, tmp_path)
    first.optimizer.state.clear()
    first.run()
    ours, theirs = weights(first.model), weights(whole.model)
    assert not all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_learns(name: str) -> None:
    model = no_dropout()
    optimizer = make_optimizer(name, model, learning_rate=RATES[name])
    plan = DATA.plan(step_size=30)
    trainer = Trainer(model, plan, optimizer, linear_schedule(80), LoopOptions(80, RATES[name]))
    losses = [trainer.train_step().loss for _ in range(80)]
    assert sum(losses[-2:]) < 0.5 * sum(losses[:2])


@pytest.mark.parametrize("name", NAMES)
def test_state_is_tensors_and_survives_a_state_dict(name: str) -> None:
    models = [tiny_model(), tiny_model()]
    optimizers = [make_optimizer(name, model, learning_rate=1e-2) for model in models]
    for number in range(4):
        torch.manual_seed(number)
        grads = [torch.randn_like(p) for p in models[0].parameters()]
        for model, optimizer in zip(models, optimizers, strict=True):
            if number < 2 and model is models[1]:
                continue
            for p, grad in zip(model.parameters(), grads, strict=True):
                p.grad = grad.clone()
            optimizer.step()
            assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), grads, strict=True))
        if number == 1:
            optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
            models[1].load_state_dict(models[0].state_dict())
    assert all(isinstance(value, torch.Tensor) for state in optimizers[0].state.values() for value in state.values())
    for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("name", NAMES)
def test_a_rate_of_0_changes_nothing(name: str) -> None:
    model = tiny_model()
    optimizer = make_optimizer(name, model, learning_rate=1e-2)
    before = weights(model)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    set_learning_rate(optimizer, 0.0)
    optimizer.step()
    assert all(torch.equal(before[key], value) for key, value in weights(model).items())


@pytest.mark.parametrize("name", NAMES)
def test_a_gradient_of_0_gives_no_nan(name: str) -> None:
    model = tiny_model()
    optimizer = make_optimizer(name, model, learning_rate=1e-2)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert all(torch.isfinite(value).all() for value in weights(model).values())


def test_a_budget_run_reads_the_clock_of_the_loop() -> None:
    trainer = make_trainer("adamw", 5)
    trainer.schedule = budget_schedule(100.0, lambda: trainer.at.seconds)
    assert trainer.train_step().learning_rate == pytest.approx(0.01 * RATES["adamw"])
    trainer.at.seconds = 55.0
    assert trainer.train_step().learning_rate == pytest.approx(0.5 * RATES["adamw"])
