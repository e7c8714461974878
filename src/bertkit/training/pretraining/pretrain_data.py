"""From a token store to the batches of a pre-training run, in one phase or two.

With two phases most steps see short examples, because attention over 512 tokens costs more than over 128 and most of
what a model learns it learns from short ones (Devlin et al. 2019, appendix A.2). It is still one run: one optimizer
state, one schedule, one log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from threading import Lock
from typing import Generic

from bertkit.batch import Batch
from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pairs import Rules
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.training.pretraining.original_examples import original_plan
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.trainer.batch_plan import BatchT, Plan

#: Held-out examples do not depend on a run's seed or batch size, so that runs can be compared.
DEV_SEED, DEV_BATCH_SIZE = 0, 64


def training_data(
    store: TokenStore,
    vocabulary: MaskVocabulary,
    config: PretrainConfig,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    rank: int = 0,
    num_ranks: int = 1,
) -> Plan[Batch]:
    """The examples that the settings ask for; of each step, this rank's share.

    Args:
        store: the corpus.
        vocabulary: of the store's tokenizer.
        config: consistent settings.
        clock: seconds of training so far; ends the first of two phases in a run with a time budget.
        rank: number of this process.
        num_ranks: number of processes.

    Raises:
        ConfigError: two phases under a time budget and several processes, which would not switch at the same step.
        ConfigError, DataError: see :class:`~bertkit.data.examples.pretrain_batches.PretrainData`.
    """
    if len(config.phases) == 2 and config.max_seconds is not None and num_ranks > 1:
        raise ConfigError(
            f"short_seq_length with a time budget does not work with {num_ranks} processes: each has its own clock, so "
            "they would not change the length at the same step. Give max_steps instead of the budget, or use one length"
        )
    phases: list[tuple[Plan[Batch], int]] = []
    for phase in config.phases:
        plan: Plan[Batch]
        if config.protocol == "original":
            plan = original_plan(store, config, phase, rank=rank, num_ranks=num_ranks)
        else:
            masking = Masking(config.masking, config.masked_lm_prob, phase.max_predictions)
            plan = PretrainData(
                store,
                vocabulary,
                _rules(config, phase.max_seq_length, config.seed, masking),
                batch_size=phase.batch_size,
                max_tokens=max(config.max_tokens, phase.max_seq_length),
                rank=rank,
                num_ranks=num_ranks,
            )
        phases.append((plan, phase.num_steps))
    if len(phases) == 1:
        return phases[0][0]
    if config.max_seconds is None:
        return CountedPhases(phases)
    (short, num_steps), (long, _) = phases
    end = config.short_share * config.max_seconds
    return TimedPhases(short, long, lambda step: step >= num_steps or clock() >= end)


def held_out_data(store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig) -> PretrainData:
    """Held-out examples of full length, masked token by token at ``dev_masked_lm_prob`` whatever training does.

    They are the same for all runs with the same text, objective, ``max_seq_length``, ``short_seq_prob`` and
    ``dev_masked_lm_prob``; the first ones are the same for any ``dev_examples`` of at least 64.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.examples.pretrain_batches.PretrainData`.
    """
    return PretrainData(
        store,
        vocabulary,
        _rules(config, config.max_seq_length, DEV_SEED, Masking(rate=config.dev_masked_lm_prob)),
        batch_size=min(DEV_BATCH_SIZE, config.dev_examples),
        max_tokens=max(config.max_tokens, config.max_seq_length),
    )


def _rules(config: PretrainConfig, max_seq_length: int, seed: int, masking: Masking) -> Rules:
    return Rules(config.objective, max_seq_length, config.short_seq_prob, seed, masking=masking)


class Phases(ABC, Generic[BatchT]):
    """Plans one after another, which together are a :class:`~bertkit.training.trainer.batch_plan.Plan`.

    ``steps_per_epoch`` is that of the first plan throughout: it only sets how often a run is evaluated.

    Args:
        plans: at least one; all count in the same unit.
    """

    def __init__(self, plans: Sequence[Plan[BatchT]]) -> None:
        assert plans, "a run has at least one phase"
        self.plans = list(plans)
        self.steps_per_epoch = plans[0].steps_per_epoch
        self.unit = plans[0].unit

    @abstractmethod
    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        """The plan that step ``step`` belongs to, and the step's number in it."""

    def micro_batches(self, step: int) -> list[BatchT]:
        plan, own_step = self.locate(step)
        return plan.micro_batches(own_step)

    def rows(self, step: int) -> list[int]:
        plan, own_step = self.locate(step)
        return plan.rows(own_step)

    def size(self, step: int) -> int:
        plan, own_step = self.locate(step)
        return plan.size(own_step)


class CountedPhases(Phases[BatchT]):
    """Each plan for a fixed number of steps, starting at its own step 0: a pure function of the step.

    Args:
        phases: plans, each with its number of steps, at least one. The last plan also takes all steps beyond the sum.
    """

    def __init__(self, phases: Sequence[tuple[Plan[BatchT], int]]) -> None:
        super().__init__([plan for plan, _ in phases])
        assert all(num_steps > 0 for _, num_steps in phases), "a phase has at least one step"
        #: The first step of each phase.
        self.starts = [0, *accumulate(num_steps for _, num_steps in phases[:-1])]
        assert all(a < b for a, b in pairwise(self.starts))

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        phase = bisect_right(self.starts, step) - 1
        return self.plans[phase], step - self.starts[phase]


class TimedPhases(Phases[BatchT]):
    """One plan until the clock ends its phase, then another.

    The second plan continues with the number of the step at which it takes over, so a resumed run, whose clock is past
    the switch, need not know where that was.

    Args:
        first, second: the plans.
        is_over: whether the first phase has ended; called with the step number until it returns True, then no more.
    """

    def __init__(self, first: Plan[BatchT], second: Plan[BatchT], is_over: Callable[[int], bool]) -> None:
        super().__init__([first, second])
        self._is_over = is_over
        self._lock = Lock()
        self._last_of_first = -1
        self._switch: int | None = None

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        # The answer for a step never changes: batches are made ahead of the clock, and a step may be asked for again.
        with self._lock:
            if self._switch is None:
                if self._is_over(step):
                    self._switch = max(step, self._last_of_first + 1)
                else:
                    self._last_of_first = max(step, self._last_of_first)
            is_second = self._switch is not None and step >= self._switch
        return self.plans[is_second], step
