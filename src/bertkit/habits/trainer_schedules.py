"""The learning-rate schedules of ``transformers``: exact values, which differ from ours while the rate rises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum

from bertkit.optim import Schedule

#: A schedule of so many steps, of which the rate rises in the first ones, with settings of its own.
Make = Callable[[int, int, Mapping[str, float]], Schedule]


def _rising(warm: int, then: Schedule) -> Schedule:
    """From 0 in ``warm`` steps to 1, then ``then``."""
    return lambda step: step / max(1, warm) if step < warm else then(step)


def _linear(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    return _rising(warm, lambda step: max(0.0, (num_steps - step) / max(1, num_steps - warm)))


def _done(num_steps: int, warm: int) -> Schedule:
    return lambda step: (step - warm) / max(1, num_steps - warm)


def _cosine(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    cycles, done = own.get("num_cycles", 0.5), _done(num_steps, warm)
    return _rising(warm, lambda step: max(0.0, 0.5 * (1 + math.cos(math.pi * cycles * 2 * done(step)))))


def _restarts(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    cycles, done = own.get("num_cycles", 1), _done(num_steps, warm)

    def then(step: int) -> float:
        return 0.0 if done(step) >= 1 else max(0.0, 0.5 * (1 + math.cos(math.pi * (cycles * done(step) % 1))))

    return _rising(warm, then)


def _constant(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    return lambda step: 1.0


def _constant_with_warmup(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    return _rising(warm, lambda step: 1.0)


def _inverse_sqrt(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    scale = int(own.get("timescale") or warm or 10_000)
    return _rising(warm, lambda step: 1.0 / math.sqrt((step + scale - warm) / scale))


def _polynomial(num_steps: int, warm: int, own: Mapping[str, float]) -> Schedule:
    """Falls to ``lr_end``, which is measured in the peak rate ``lr``."""
    first, end, power = own["lr"], own.get("lr_end", 1e-7), own.get("power", 1.0)
    done = _done(num_steps, warm)
    return _rising(warm, lambda step: ((first - end) * max(0.0, 1 - done(step)) ** power + end) / first)


#: By the names of ``lr_scheduler_type``.
SCHEDULES: dict[str, Make] = {
    "linear": _linear,
    "cosine": _cosine,
    "cosine_with_restarts": _restarts,
    "constant": _constant,
    "constant_with_warmup": _constant_with_warmup,
    "inverse_sqrt": _inverse_sqrt,
    "polynomial": _polynomial,
}


class SchedulerType(StrEnum):
    """Values of ``lr_scheduler_type``."""

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
    POLYNOMIAL = "polynomial"


class IntervalStrategy(StrEnum):
    """Values of ``eval_strategy``, ``logging_strategy`` and ``save_strategy``."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"


#: The name of the same for evaluations and checkpoints.
EvaluationStrategy = SaveStrategy = IntervalStrategy
