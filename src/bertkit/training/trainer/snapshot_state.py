"""Everything a run needs to resume bit for bit: taken from a trainer, and put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bertkit.errors import CheckpointError
from bertkit.training.trainer.generators import capture_generators, restore_generators, seed_generators
from bertkit.training.trainer.loop_options import Progression
from bertkit.training.trainer.snapshot import Snapshot

if TYPE_CHECKING:
    from bertkit.training.trainer.loop import Trainer


def take_snapshot(trainer: Trainer[Any]) -> Snapshot:
    """Weights, optimizer state, generators, the best weights where they are not the present ones, and plain values.

    Call it on every rank; rank 0 gets it whole, with the generators of all ranks, and the others without tensors.
    """
    parallel = trainer.parallel
    tensors: dict[str, Tensor] = {}

    def add(key: str, tensor: Tensor) -> None:
        if parallel.is_sharded:
            from bertkit.training.trainer.sharding import whole

            tensor = whole(tensor)
        if parallel.is_first:
            tensors[key] = tensor

    for name, p in trainer.model.named_parameters():
        add(f"model/{name}", p.detach())
    for name, p in _named_trained(trainer):
        for key, value in trainer.optimizer.state[p].items():
            add(f"optimizer/{name}/{key}", value)
    if trainer.best is not None and trainer.at.best_step != trainer.at.step:
        for name, value in trainer.best.items():
            add(f"best/{name}", value)
    generators = parallel.gather(capture_generators())
    for rank, (rng_tensors, _) in enumerate(generators):
        tensors |= {_generator_key(rank, name): state for name, state in rng_tensors.items()}
    values = {
        "progression": asdict(trainer.at),
        "generators": generators[0][1],
        "generators_of_other_ranks": [rng_values for _, rng_values in generators[1:]],
        "identity": trainer.identity,
    }
    return Snapshot(tensors, values)


def restore_snapshot(trainer: Trainer[Any], snapshot: Snapshot, source: str) -> None:
    """Put :func:`take_snapshot` back; call it on every rank with the whole snapshot.

    The number of ranks and their mode may have changed. With the same number the run goes on bit for bit; with another
    one the weights and the optimizer's state are the same, sums are rounded otherwise, and ranks that the snapshot does
    not know begin with generators derived from those of rank 0.

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
    _restore_generators(trainer, parts["generator"], snapshot.values)
    trainer.at = Progression(**snapshot.values["progression"])
    if trainer.options.monitor is not None:  # without a score to compare, the last weights are the best
        best = parts["model"] if trainer.at.best_step == trainer.at.step else parts["best"]
        parameters = dict(trainer.model.named_parameters())
        trainer.best = {name: _as(value, parameters[name]).clone() for name, value in best.items()} or None


def copy_into(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set every parameter of ``model``, sharded or not, to the value of its name."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_as(values[name], parameter))


def _as(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of ``like``, and cut into parts as ``like`` is."""
    if hasattr(like, "placements") and not hasattr(value, "placements"):
        from bertkit.training.trainer.sharding import part_of

        return part_of(value, like)
    return value.to(like.device)


def _generator_key(rank: int, name: str) -> str:
    return f"generator/{name}" if rank == 0 else f"generator/rank{rank}.{name}"


def _restore_generators(trainer: Trainer[Any], tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Of this rank; ranks that had none get a stream of their own, which begins with the state of rank 0."""
    rank, others = trainer.parallel.rank, values.get("generators_of_other_ranks", [])
    if 0 < rank <= len(others):
        prefix = f"rank{rank}."
        own = {name.removeprefix(prefix): state for name, state in tensors.items() if name.startswith(prefix)}
        restore_generators(own, others[rank - 1])
        return
    restore_generators(tensors, values["generators"])
    if rank > 0:
        drawn = int(torch.randint(2**62, ()))
        seed_generators(drawn ^ rank)


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
    state = {
        number: {kind: _as(value, p) if value.shape == p.shape else value for kind, value in by_name[name].items()}
        for number, (name, p) in enumerate(zip(order, trainer.trained, strict=True))
        if name in by_name
    }
    trainer.optimizer.load_state_dict({**trainer.optimizer.state_dict(), "state": state})


def _named_trained(trainer: Trainer[Any]) -> list[tuple[str, nn.Parameter]]:
    trained = {id(p) for p in trainer.trained}
    return [(name, p) for name, p in trainer.model.named_parameters() if id(p) in trained]
