"""Time budgets: a run ends with the step that uses the budget up, over all parts of a resumed run, and is evaluated."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from bertkit.optim import budget_schedule
from bertkit.system.interrupts import Interrupted
from bertkit.training.trainer import loop
from bertkit.training.trainer.records import progress, show
from training_helpers import ToyData, tiny_model, toy_trainer

DATA = ToyData()


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = staticmethod(time.perf_counter)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop, "time", clock)
    return clock


def slow_trainer(clock: Clock, *, step_s: float = 2.0, evaluation_s: float = 100.0, **options: Any) -> Any:
    trainer = toy_trainer(tiny_model(), DATA, num_steps=options.pop("num_steps", 10**9), **options)
    step, evaluate = trainer.train_step, trainer.evaluate

    def slow_step() -> Any:
        clock.now += step_s
        return step()

    def slow_evaluation(check: Any) -> Any:
        clock.now += evaluation_s
        return evaluate(check) if evaluate else {}

    trainer.train_step = slow_step  # type: ignore[method-assign]
    trainer.evaluate = slow_evaluation
    return trainer


def test_the_run_ends_with_the_step_that_uses_the_budget_up(clock: Clock) -> None:
    at = slow_trainer(clock, max_seconds=41.0).run()
    assert (at.step, at.seconds, at.stopped_by_time) == (21, 42.0, True)
    # 8 steps an epoch; evaluations take 100 s each and none of the budget; the last one is of the last weights.
    assert [epoch["step"] for epoch in at.epochs] == [8, 16, 21]
    assert "dev_accuracy" in at.epochs[-1]


def test_a_budget_that_one_step_uses_up_still_makes_one_step_and_one_evaluation(clock: Clock) -> None:
    at = slow_trainer(clock, max_seconds=0.001).run()
    assert (at.step, len(at.epochs)) == (1, 1)


def test_the_number_of_steps_ends_a_run_before_its_budget(clock: Clock) -> None:
    at = slow_trainer(clock, num_steps=10, max_seconds=1e6).run()
    assert (at.step, at.stopped_by_time, at.evaluated_step) == (10, False, 10)


def test_a_resumed_run_has_what_is_left_of_the_budget(clock: Clock, tmp_path: Path) -> None:
    first = slow_trainer(clock, max_seconds=41.0, folder=tmp_path, checkpoint_every_s=1e9)
    step = first.train_step

    def signalled() -> Any:
        if first.at.step == 11:
            os.kill(os.getpid(), signal.SIGTERM)
        return step()

    first.train_step = signalled
    with pytest.raises(Interrupted, match=r"after step 12, 24 s of the 41 s budget used"):
        first.run()
    clock.now += 86_400  # a night in between costs nothing
    second = slow_trainer(clock, max_seconds=41.0, folder=tmp_path)
    assert second.resume()
    at = second.run()
    assert (at.step, at.seconds) == (21, 42.0)


def test_a_killed_run_has_its_budget_of_the_checkpoint(clock: Clock, tmp_path: Path) -> None:
    first = slow_trainer(clock, max_seconds=41.0, folder=tmp_path, checkpoint_every_s=9.0, evaluation_s=0.0)
    step = first.train_step

    def killed() -> Any:
        if first.at.step == 12:
            raise RuntimeError("the power is gone")
        return step()

    first.train_step = killed
    with pytest.raises(RuntimeError):
        first.run()
    second = slow_trainer(clock, max_seconds=41.0, folder=tmp_path)
    assert second.resume()
    assert (second.at.step, second.at.seconds) == (10, 20.0)  # saved after steps 5 and 10
    assert second.run().seconds == 42.0


def test_a_signal_in_the_final_evaluation_makes_it_again_and_no_step_more(clock: Clock, tmp_path: Path) -> None:
    first = slow_trainer(clock, max_seconds=5.0, folder=tmp_path)

    def interrupted(check: Any) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        check()
        raise AssertionError("check() did not stop")

    first.evaluate = interrupted
    with pytest.raises(Interrupted):
        first.run()
    second = slow_trainer(clock, max_seconds=5.0, folder=tmp_path)
    assert second.resume()
    at = second.run()
    assert (at.step, [epoch["step"] for epoch in at.epochs]) == (3, [3])


def test_a_larger_budget_goes_on_from_the_end_of_a_smaller_one(clock: Clock, tmp_path: Path) -> None:
    first = slow_trainer(clock, max_seconds=5.0, folder=tmp_path)
    first.run()
    first.save()
    second = slow_trainer(clock, max_seconds=9.0, folder=tmp_path)
    assert second.resume()
    assert second.run().step == 5


def test_the_rate_of_a_budget_schedule_falls_to_nothing_at_the_end(clock: Clock) -> None:
    records: list[dict[str, Any]] = []
    trainer = slow_trainer(clock, max_seconds=40.0)
    trainer.log = records.append
    trainer.schedule = budget_schedule(40.0, lambda: trainer.at.seconds, warmup=0.25)
    at = trainer.run()
    rates = [record["lr"] / trainer.options.learning_rate for record in records if "lr" in record]
    assert len(rates) == at.step == 20
    # Step n begins when 2 n seconds are used.
    assert rates == pytest.approx([0.01, 0.2, 0.4, 0.6, 0.8, *((40 - 2 * n) / 30 for n in range(5, 20))])


def test_progress_is_of_the_budget(clock: Clock) -> None:
    trainer = slow_trainer(clock, max_seconds=41.0)
    trainer.at.seconds = 10.0
    with progress(trainer.options, trainer.at) as shown:
        result = trainer.train_step()
        trainer.at.seconds += 12.5
        show(shown, trainer.options, trainer.at, result)
        assert shown.line().startswith("training: 22/41 s (53 %), ")
        assert f"step 1, loss {result.loss:.3f}" in shown.line()
        trainer.at.seconds = 44.0  # the last step may take longer than there was time
        show(shown, trainer.options, trainer.at, result)
        assert "41/41 s (100 %)" in shown.line()


def test_evaluations_can_come_in_the_middle_of_an_epoch() -> None:
    at = toy_trainer(tiny_model(), DATA, num_steps=12, evaluate_every_steps=5).run()
    assert [epoch["step"] for epoch in at.epochs] == [5, 10, 12]
