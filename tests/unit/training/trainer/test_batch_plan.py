"""Steps made in advance are the steps, whoever makes them; errors and the end come through."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

from bertkit.batch import Batch
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.errors import ConfigError, DataError
from bertkit.training.trainer.batch_plan import Plan, Prefetched
from pretrain_helpers import pretrain_data, random_tokens

TOKENS = random_tokens(0, 30)


def data(**settings: Any) -> PretrainData:
    settings = {"max_seq_length": 48, "batch_size": 16, "max_tokens": 300, **settings}
    return pretrain_data(TOKENS, TOKENS.vocabulary(), **settings)


def told(plan: Plan[Batch], step: int) -> list[Any]:
    batches = [
        [batch.input_ids.tolist(), batch.layout.lengths, {name: x.tolist() for name, x in batch.targets.items()}]
        for batch in plan.micro_batches(step)
    ]
    return [batches, plan.rows(step), plan.size(step)]


class Numbers:
    """Steps that say who made them; some are slow, one fails."""

    steps_per_epoch, unit = 10, "rows"

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad
        self.made: list[int] = []
        self.threads: set[str] = set()

    def micro_batches(self, step: int) -> list[int]:
        self.made.append(step)
        self.threads.add(threading.current_thread().name)
        time.sleep(0.002 * (step % 3))
        if step == self.bad:
            raise DataError(f"step {step} is damaged")
        return [step]

    def rows(self, step: int) -> list[int]:
        return [step]

    def size(self, step: int) -> int:
        return 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "num_workers",
    [
        pytest.param(0, marks=pytest.mark.campaign),
        pytest.param(1, marks=pytest.mark.campaign),
        2,
        pytest.param(7, marks=pytest.mark.campaign),
    ],
)
def test_one_stream_for_any_number_of_workers(num_workers: int) -> None:
    expected = data()
    last = 2 * expected.steps_per_epoch + 2  # over the ends of two epochs
    # In order; then from another place, as a resumed run; then the same step twice.
    order = [*range(last), *range(3, 7), 5, 5, 0]
    with Prefetched(data(), num_workers=num_workers, end=last) as plan:
        assert (plan.steps_per_epoch, plan.unit) == (expected.steps_per_epoch, "tokens")
        assert [told(plan, step) for step in order] == [told(expected, step) for step in order]
    assert told(expected, 0) != told(expected, 1)


@pytest.mark.parametrize("num_workers", [1, 2, 7])
def test_steps_are_made_in_advance_and_no_more_than_are_wanted(num_workers: int) -> None:
    numbers = Numbers()
    with Prefetched(numbers, num_workers=num_workers, end=9) as plan:
        assert plan.micro_batches(0) == [0]
        assert [plan.micro_batches(step) for step in range(1, 9)] == [[step] for step in range(1, 9)]
    assert sorted(numbers.made) == list(range(9))
    assert threading.main_thread().name not in numbers.threads
    assert len(numbers.threads) <= num_workers


def test_a_bounded_number_of_steps_is_held() -> None:
    numbers = Numbers()
    with Prefetched(numbers, num_workers=2) as plan:
        plan.micro_batches(0)
        time.sleep(0.2)
        assert set(numbers.made) <= {0, 1, 2, 3}
        plan.micro_batches(50)
        time.sleep(0.2)
        assert max(numbers.made) <= 53


def test_an_error_reaches_who_asks_for_the_step() -> None:
    with Prefetched(Numbers(bad=4), num_workers=2) as plan:
        for step in range(4):
            assert plan.micro_batches(step) == [step]
        with pytest.raises(DataError, match="step 4 is damaged"):
            plan.micro_batches(4)


def test_threads_end_with_the_block_whatever_ends_it() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("bertkit-batches")]

    plan = Prefetched(Numbers(), num_workers=3)

    def stopped() -> None:
        with plan:
            plan.micro_batches(0)
            assert threads()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert not threads()
    assert plan.micro_batches(3) == [3]  # without help
    plan.close()


def test_wrong_numbers() -> None:
    with pytest.raises(ConfigError, match="num_workers must be at least 0"):
        Prefetched(Numbers(), num_workers=-1)


def test_random_numbers_of_the_training_process_are_left_alone() -> None:
    before = torch.get_rng_state()
    with Prefetched(data(), num_workers=2) as plan:
        plan.micro_batches(0)
    assert torch.equal(before, torch.get_rng_state())


def test_rows_and_sizes_of_steps_that_are_done_make_no_batch_again() -> None:
    """As on a GPU, where 20 steps are logged together."""
    numbers = Numbers()
    with Prefetched(numbers, num_workers=1, end=40) as plan:
        for step in range(40):
            plan.micro_batches(step)
            if step % 20 == 19:
                for old in range(step - 19, step + 1):
                    assert (plan.rows(old), plan.size(old)) == ([old], 1)
    assert numbers.made == list(range(40))
