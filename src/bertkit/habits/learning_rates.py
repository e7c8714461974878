"""The learning-rate schedules of ``transformers``, as schedulers of torch for a loop of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from bertkit.errors import InputError, did_you_mean
from bertkit.habits.trainer_schedules import SCHEDULES


def _scheduler(
    optimizer: Optimizer,
    name: str,
    num_warmup_steps: int = 0,
    num_training_steps: int = 1,
    last_epoch: int = -1,
    own: Mapping[str, float] = MappingProxyType({}),
) -> LambdaLR:
    return LambdaLR(optimizer, SCHEDULES[name](num_training_steps, num_warmup_steps, own), last_epoch)


def get_constant_schedule(optimizer: Optimizer, last_epoch: int = -1) -> LambdaLR:
    """The rate of the optimizer, always."""
    return _scheduler(optimizer, "constant", last_epoch=last_epoch)


def get_constant_schedule_with_warmup(optimizer: Optimizer, num_warmup_steps: int, last_epoch: int = -1) -> LambdaLR:
    """From 0 in ``num_warmup_steps`` to the rate of the optimizer, which it keeps."""
    return _scheduler(optimizer, "constant_with_warmup", num_warmup_steps, last_epoch=last_epoch)


def get_linear_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, last_epoch: int = -1
) -> LambdaLR:
    """From 0 in ``num_warmup_steps`` to the rate of the optimizer, and on a line to 0 at ``num_training_steps``."""
    return _scheduler(optimizer, "linear", num_warmup_steps, num_training_steps, last_epoch)


def get_cosine_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: float = 0.5, last_epoch: int = -1
) -> LambdaLR:
    """The same on a cosine, of which half a cycle, unless ``num_cycles`` says otherwise, leads to 0."""
    return _scheduler(optimizer, "cosine", num_warmup_steps, num_training_steps, last_epoch, {"num_cycles": num_cycles})


def get_cosine_with_hard_restarts_schedule_with_warmup(
    optimizer: Optimizer, num_warmup_steps: int, num_training_steps: int, num_cycles: int = 1, last_epoch: int = -1
) -> LambdaLR:
    """The same, where each of ``num_cycles`` begins at the rate of the optimizer."""
    steps = (num_warmup_steps, num_training_steps, last_epoch)
    return _scheduler(optimizer, "cosine_with_restarts", *steps, {"num_cycles": num_cycles})


def get_inverse_sqrt_schedule(
    optimizer: Optimizer, num_warmup_steps: int, timescale: int | None = None, last_epoch: int = -1
) -> LambdaLR:
    """From 0 in ``num_warmup_steps`` to the rate of the optimizer, and down with the root of the steps."""
    own = {} if timescale is None else {"timescale": timescale}
    return _scheduler(optimizer, "inverse_sqrt", num_warmup_steps, last_epoch=last_epoch, own=own)


def get_polynomial_decay_schedule_with_warmup(
    optimizer: Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    lr_end: float = 1e-7,
    power: float = 1.0,
    last_epoch: int = -1,
) -> LambdaLR:
    """From 0 in ``num_warmup_steps`` to the rate of the optimizer, and with a power of what is left to ``lr_end``."""
    first = float(optimizer.defaults["lr"])
    if first <= lr_end:
        raise InputError(f"lr_end={lr_end} must be smaller than the rate of the optimizer, lr={first}")
    own = {"lr": first, "lr_end": lr_end, "power": power}
    return _scheduler(optimizer, "polynomial", num_warmup_steps, num_training_steps, last_epoch, own)


def get_scheduler(
    name: str,
    optimizer: Optimizer,
    num_warmup_steps: int | None = None,
    num_training_steps: int | None = None,
    scheduler_specific_kwargs: Mapping[str, float] | None = None,
) -> LambdaLR:
    """The schedule of this name: ``linear``, ``cosine``, ``cosine_with_restarts``, ``polynomial``, ``constant``,
    ``constant_with_warmup`` or ``inverse_sqrt``.

    Raises:
        InputError: another name, or no ``num_training_steps`` for one that falls.
    """
    name, own = str(getattr(name, "value", name)), dict(scheduler_specific_kwargs or {})
    if name not in SCHEDULES:
        raise InputError(f"no schedule {name!r}{did_you_mean(name, SCHEDULES)}; there are {', '.join(SCHEDULES)}")
    if num_training_steps is None and not name.startswith(("constant", "inverse")):
        raise InputError(f"the schedule {name!r} needs num_training_steps=, where it ends")
    warm, steps = num_warmup_steps or 0, num_training_steps or 1
    if name == "polynomial":
        ends = own.get("lr_end", 1e-7), own.get("power", 1.0)
        return get_polynomial_decay_schedule_with_warmup(optimizer, warm, steps, *ends)
    return _scheduler(optimizer, name, warm, steps, own=own)
