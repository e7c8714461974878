"""Everything a run needs to go on bit for bit, taken from a :class:`~bertkit.training.loop.Trainer` and put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bertkit.errors import CheckpointError
from bertkit.training.checkpoint import Snapshot
from bertkit.training.generators import capture_generators, restore_generators
from bertkit.training.options import Progression

if TYPE_CHECKING:
    from bertkit.training.loop import Trainer


def take_snapshot(trainer: Trainer[Any]) -> Snapshot:
    """Weights, optimizer state, generators, the best weights where they are not the present ones, and plain values."""
    rng_tensors, rng_values = capture_generators()
    tensors = {f"model/{name}": p.detach() for name, p in trainer.model.named_parameters()}
    for name, p in _named_trained(trainer):
        tensors |= {f"optimizer/{name}/{key}": value for key, value in trainer.optimizer.state[p].items()}
    tensors |= {f"generator/{name}": state for name, state in rng_tensors.items()}
    if trainer.best is not None and trainer.at.best_step != trainer.at.step:
        tensors |= {f"best/{name}": value for name, value in trainer.best.items()}
    values = {"progression": asdict(trainer.at), "generators": rng_values, "identity": trainer.identity}
    return Snapshot(tensors, values)


def restore_snapshot(trainer: Trainer[Any], snapshot: Snapshot, source: str) -> None:
    """Put :func:`take_snapshot` back.

    Raises:
        CheckpointError: it belongs to other settings, other data or another model.
    """
    _check_identity(trainer.identity, snapshot.values["identity"], source)
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "generator": {}, "best": {}}
    for key, tensor in snapshot.tensors.items():
        kind, _, name = key.partition("/")
        parts[kind][name] = tensor
    expected = {name: p.shape for name, p in trainer.model.named_parameters()}
    if expected != {name: tensor.shape for name, tensor in parts["model"].items()}:
        raise CheckpointError(f"{source} holds the weights of a model of another shape")
    copy_into(trainer.model, parts["model"])
    _load_optimizer(trainer, parts["optimizer"])
    restore_generators(parts["generator"], snapshot.values["generators"])
    trainer.at = Progression(**snapshot.values["progression"])
    best = parts["model"] if trainer.at.best_step == trainer.at.step else parts["best"]
    trainer.best = {name: tensor.to(trainer.device) for name, tensor in best.items()} or None


def copy_into(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set every parameter of ``model`` to the value of its name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])


def _check_identity(ours: Mapping[str, Any], theirs: Mapping[str, Any], source: str) -> None:
    if differing := sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)):
        told = "; ".join(f"{key} was {theirs.get(key)!r}, now {ours.get(key)!r}" for key in differing[:5])
        raise CheckpointError(f"{source} belongs to another run: {told}. Resume with the same settings and data")


def _load_optimizer(trainer: Trainer[Any], tensors: Mapping[str, Tensor]) -> None:
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition("/")
        by_name.setdefault(name, {})[kind] = tensor
    names = {id(p): name for name, p in _named_trained(trainer)}
    order = [names[id(p)] for p in trainer.trained]  # torch numbers parameters in the order of the groups
    state = {number: by_name[name] for number, name in enumerate(order) if name in by_name}
    trainer.optimizer.load_state_dict({**trainer.optimizer.state_dict(), "state": state})


def _named_trained(trainer: Trainer[Any]) -> list[tuple[str, nn.Parameter]]:
    trained = {id(p) for p in trainer.trained}
    return [(name, p) for name, p in trainer.model.named_parameters() if id(p) in trained]
