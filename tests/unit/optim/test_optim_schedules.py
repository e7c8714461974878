"""Polynomial, trapezoid and time-budget schedules against their definition, and what all schedules have in common."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bertkit.errors import ConfigError
from bertkit.optim import budget_schedule, linear_schedule, polynomial_schedule, trapezoid_schedule

SHARES = st.floats(0, 0.99)


@given(num_steps=st.integers(1, 300), warmup=SHARES)
def test_polynomial_of_power_1_is_linear_to_the_bit(num_steps: int, warmup: float) -> None:
    ours, linear = polynomial_schedule(num_steps, warmup=warmup), linear_schedule(num_steps, warmup=warmup)
    assert [ours(step) for step in range(num_steps + 3)] == [linear(step) for step in range(num_steps + 3)]


@pytest.mark.parametrize(("power", "end"), [(1.0, 0.0), (2.0, 0.1), (0.5, 0.0), (3.0, 0.5)])
def test_polynomial_equals_the_usual_one_from_the_peak_on(power: float, end: float) -> None:
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    usual = transformers.get_polynomial_decay_schedule_with_warmup(
        optimizer, num_warmup_steps=10, num_training_steps=100, lr_end=end, power=power
    ).lr_lambdas[0]
    ours = polynomial_schedule(100, warmup=0.1, power=power, end=end)
    assert [ours(step) for step in range(10, 120)] == pytest.approx([usual(step) for step in range(10, 120)])


def test_trapezoid() -> None:
    schedule = trapezoid_schedule(20, warmup=0.2, cooldown=0.25)
    rise, flat, fall = [k / 5 for k in (1, 2, 3, 4)], [1.0] * 12, [0.8, 0.6, 0.4, 0.2]
    assert [schedule(step) for step in range(20)] == pytest.approx(rise + flat + fall)
    assert schedule(20) == schedule(100) == 0.0
    root = trapezoid_schedule(20, warmup=0.2, cooldown=0.25, shape="1-sqrt")
    assert [root(step) for step in range(15, 21)] == pytest.approx([1 - math.sqrt(k / 5) for k in range(6)])


@given(
    num_steps=st.integers(1, 300), warmup=SHARES, share=st.floats(0.01, 1), shape=st.sampled_from(["linear", "1-sqrt"])
)
def test_trapezoid_rises_stays_falls_and_wastes_no_step(
    num_steps: int, warmup: float, share: float, shape: str
) -> None:
    schedule = trapezoid_schedule(num_steps, warmup=warmup, cooldown=share * (1 - warmup), shape=shape)
    values = [schedule(step) for step in range(num_steps)]
    assert all(0 < value <= 1 for value in values)
    assert max(values) == 1.0
    peak = values.index(1.0)
    assert all(a < b for a, b in itertools.pairwise(values[: peak + 1]))
    assert all(a >= b for a, b in itertools.pairwise(values[peak:]))
    assert schedule(num_steps) == 0.0


def test_a_longer_trapezoid_is_the_same_before_the_fall() -> None:
    short, long = trapezoid_schedule(100, warmup=0.1, cooldown=0.2), trapezoid_schedule(200, warmup=0.05, cooldown=0.2)
    assert [short(step) for step in range(81)] == [long(step) for step in range(81)]
    assert short(81) < long(81)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def at(max_seconds: float, seconds: float, **options: float) -> float:
    clock = Clock()
    clock.seconds = seconds
    return budget_schedule(max_seconds, clock, **options)(0)


def test_budget_rises_falls_and_is_0_when_the_time_is_up() -> None:
    assert [at(100, s) for s in (0, 5, 10, 55, 99, 100, 500)] == pytest.approx([0.01, 0.5, 1, 0.5, 1 / 90, 0, 0])
    assert at(100, 0, warmup=0.0) == 1.0
    assert [at(100, s, cooldown=0.2) for s in (9, 10, 50, 80, 90, 100)] == pytest.approx([0.9, 1, 1, 1, 0.5, 0])


@given(
    paces=st.lists(st.floats(0.01, 30), min_size=1, max_size=200),
    warmup=SHARES,
    share=st.none() | st.floats(0.01, 1),
)
def test_budget_follows_the_clock_however_uneven_the_steps_are(
    paces: list[float], warmup: float, share: float | None
) -> None:
    clock = Clock()
    cooldown = None if share is None else share * (1 - warmup)
    schedule = budget_schedule(100.0, clock, warmup=warmup, cooldown=cooldown)
    rising, falling = [], []
    for step, pace in enumerate(paces):
        (rising if clock.seconds < 100 * warmup else falling).append(schedule(step))
        assert (schedule(step) > 0) == (clock.seconds < 100)
        clock.seconds += pace
    assert rising == sorted(rising)
    assert falling == sorted(falling, reverse=True)
    assert all(0 <= value <= 1 for value in rising + falling)


def test_a_resumed_budget_goes_on_where_it_was() -> None:
    first = Clock()
    first.seconds = 63.0
    second = Clock()
    second.seconds = 63.0
    assert budget_schedule(100, first)(700) == budget_schedule(100, second)(0) > 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: polynomial_schedule(10, power=0.0), "power"),
        (lambda: polynomial_schedule(10, end=1.5), "end"),
        (lambda: polynomial_schedule(0), "at least one step"),
        (lambda: trapezoid_schedule(10, cooldown=0.0), "cooldown"),
        (lambda: trapezoid_schedule(10, warmup=0.5, cooldown=0.6), "cooldown"),
        (lambda: trapezoid_schedule(10, warmup=1.0), "warmup"),
        (lambda: trapezoid_schedule(10, shape="cosine"), "shape"),  # type: ignore[arg-type]
        (lambda: budget_schedule(0.0, Clock()), "seconds"),
        (lambda: budget_schedule(math.inf, Clock()), "seconds"),
        (lambda: budget_schedule(10.0, Clock(), warmup=-0.1), "warmup"),
        (lambda: budget_schedule(10.0, Clock(), cooldown=0.95), "cooldown"),
    ],
)
def test_wrong_schedules_are_refused(make, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()
