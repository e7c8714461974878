"""The learning-rate schedule of a pre-training run, by steps, by time, or by whichever ends first."""

from __future__ import annotations

from collections.abc import Callable

from bertkit.optim import (
    Schedule,
    budget_schedule,
    linear_schedule,
    original_schedule,
    polynomial_schedule,
    trapezoid_schedule,
)
from bertkit.training.pretraining.pretrain_settings import PretrainConfig


def make_schedule(config: PretrainConfig, clock: Callable[[], float]) -> Schedule:
    """The schedule that the settings ask for.

    With a time budget the rate follows the clock. Where both steps and time are limited, it is the smaller of the two
    factors, so it has fallen to 0 whichever of them ends the run.

    Args:
        config: settings that agree with each other.
        clock: seconds of training so far, over all parts of a resumed run.

    Raises:
        ConfigError: a setting out of bounds.
    """
    schedules = []
    if config.max_seconds is not None:
        cooldown = config.cooldown if config.schedule == "trapezoid" else None
        schedules.append(budget_schedule(config.max_seconds, clock, warmup=config.warmup, cooldown=cooldown))
    if config.max_seconds is None or config.max_steps is not None:
        schedules.append(_by_steps(config))
    return lambda step: min(schedule(step) for schedule in schedules)


def _by_steps(config: PretrainConfig) -> Schedule:
    match config.schedule:
        case "linear":
            return linear_schedule(config.num_steps, warmup=config.warmup)
        case "polynomial":
            return polynomial_schedule(config.num_steps, warmup=config.warmup, power=config.power, end=config.end_rate)
        case "trapezoid":
            return trapezoid_schedule(config.num_steps, warmup=config.warmup, cooldown=config.cooldown)
        case "original":
            return original_schedule(config.num_steps, warmup=config.warmup)
