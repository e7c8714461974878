"""Learning-rate schedules: the factor of the peak rate at each optimizer step, or at each moment of a time budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from bertkit.errors import ConfigError

#: ``schedule(step)`` is the factor for the peak learning rate at optimizer step ``step``, counted from 0.
Schedule = Callable[[int], float]

#: Factor of :func:`budget_schedule` at time 0.
_FIRST_FACTOR = 0.01


def linear_schedule(num_steps: int, *, warmup: float = 0.1) -> Schedule:
    """Rise linearly for ``warmup * num_steps`` steps, then fall linearly to 0.

    No step is wasted: step 0 has factor ``1 / (W + 1)``, not 0, and 0 is reached only after the last step. From the
    peak on, the values are those of the common schedule: ``(num_steps - step) / (num_steps - W)``.
    """
    return polynomial_schedule(num_steps, warmup=warmup, power=1.0)


def polynomial_schedule(num_steps: int, *, warmup: float = 0.1, power: float = 1.0, end: float = 0.0) -> Schedule:
    """Rise as :func:`linear_schedule`, then fall as ``end + (1 - end) x^power``, where ``x`` goes from 1 to 0."""
    warm = _num_warmup_steps(num_steps, warmup)
    if not (power > 0 and math.isfinite(power)):
        raise ConfigError(f"power must be above 0, got {power}")
    if not 0 <= end <= 1:
        raise ConfigError(f"end is a share of the peak rate, from 0 to 1, got {end}")

    def schedule(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        left = max(0.0, (num_steps - step) / (num_steps - warm))
        return end + (1 - end) * math.pow(left, power)

    return schedule


def original_schedule(num_steps: int, *, warmup: float = 0.1) -> Schedule:
    """The schedule of the published code: ``step / W``, so step 0 has no effect, then ``1 - step / N`` from there."""
    warm = _num_warmup_steps(num_steps, warmup, int)
    return lambda step: step / warm if step < warm else max(0.0, 1.0 - step / num_steps)


def trapezoid_schedule(
    num_steps: int, *, warmup: float = 0.1, cooldown: float = 0.2, shape: Literal["linear", "1-sqrt"] = "linear"
) -> Schedule:
    """Rise, stay at the peak, fall to 0 at the end (warm-up, stable, decay).

    A run can be extended from any state before the fall, because earlier values depend on ``num_steps`` only through
    the warm-up (Hägele et al. 2024). ``1-sqrt(done)`` falls fast at first (the same paper, section 4).
    """
    warm = _num_warmup_steps(num_steps, warmup)
    _check_cooldown(warmup, cooldown)
    if shape not in ("linear", "1-sqrt"):
        raise ConfigError(f"shape must be 'linear' or '1-sqrt', got {shape!r}")
    cool = min(max(1, round(num_steps * cooldown)), num_steps - warm)

    def schedule(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        left = min(1.0, max(0.0, (num_steps - step) / cool))
        return left if shape == "linear" else 1 - math.sqrt(1 - left)

    return schedule


def budget_schedule(
    max_seconds: float, clock: Callable[[], float], *, warmup: float = 0.1, cooldown: float | None = None
) -> Schedule:
    """A schedule over time instead of steps: it reaches 0 when ``max_seconds`` are used up, however fast the steps are.

    The first step, at time 0, has 1/100 of the peak rate instead of 0, so it is not wasted. ``clock`` counts the
    seconds before an interruption too. Two runs never see the same clock, so such a run cannot be repeated exactly.
    """
    if not (max_seconds > 0 and math.isfinite(max_seconds)):
        raise ConfigError(f"a time budget must be a finite number of seconds above 0, got {max_seconds}")
    _check_warmup(warmup)
    falling = 1 - warmup if cooldown is None else cooldown
    _check_cooldown(warmup, falling)

    def schedule(step: int) -> float:
        used = clock() / max_seconds
        if used < warmup:
            return max(_FIRST_FACTOR, used / warmup)
        return min(1.0, max(0.0, (1 - used) / falling))

    return schedule


def _num_warmup_steps(num_steps: int, warmup: float, whole: Callable[[float], int] = round) -> int:
    if num_steps < 1:
        raise ConfigError(f"a schedule needs at least one step, got num_steps={num_steps}")
    _check_warmup(warmup)
    return min(whole(num_steps * warmup), num_steps - 1)


def _check_warmup(warmup: float) -> None:
    if not 0.0 <= warmup < 1.0:
        raise ConfigError(f"warmup is the share of steps with a rising rate, from 0 to below 1, got {warmup}")


def _check_cooldown(warmup: float, cooldown: float) -> None:
    # 1e-9: the sum of two shares such as 0.7 and 0.3 may exceed 1 by rounding.
    if not (cooldown > 0 and warmup + cooldown <= 1 + 1e-9):
        raise ConfigError(
            f"cooldown is the share of the run with a falling rate: above 0, and warmup + cooldown at most 1; got "
            f"warmup={warmup}, cooldown={cooldown}"
        )
