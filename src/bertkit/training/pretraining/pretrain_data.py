"""From a token store to the batches of a pre-training run, in one phase or two.

With two phases most steps see short examples, because attention over 512 tokens costs more than over 128 and most of
what a model learns it learns from short ones (Devlin et al. 2019, appendix A.2). It is still one run: one optimizer
state, one schedule, one log.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic

import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.data.examples.denoising import Denoising
from bertkit.data.examples.denoising_batches import NO_TARGET, DenoisingData, DenoisingRules, DenoisingVocabulary
from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pairs import Rules
from bertkit.data.examples.pretrain_batches import ExamplePlan, PlanOptions, PretrainData
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.model.losses import token_loss
from bertkit.model.models import BertForMaskedLM
from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.training.pretraining.objectives import Network
from bertkit.training.pretraining.original_examples import original_plan
from bertkit.training.pretraining.pretrain_settings import Phase, PretrainConfig
from bertkit.training.pretraining.word_statistics import target_entropy, unigram_entropy
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import BatchT, Evaluate

#: Held-out examples do not depend on a run's seed or batch size, so that runs can be compared.
DEV_SEED, DEV_BATCH_SIZE = 0, 64
#: Examples that tell how often targets have special tokens.
FLOOR_EXAMPLES = 256
#: What the examples of an objective need of a tokenizer.
Vocabulary = MaskVocabulary | DenoisingVocabulary


def vocabulary_of(store: TokenStore, config: PretrainConfig) -> Vocabulary:
    """What the objective needs of a store's tokenizer; an error if it lacks something of that."""
    tokenizer = store.tokenizer()
    return MaskVocabulary.of_tokenizer(tokenizer) if config.noise is None else DenoisingVocabulary.of(tokenizer)


def training_data(
    store: TokenStore,
    vocabulary: Vocabulary,
    config: PretrainConfig,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    rank: int = 0,
    num_ranks: int = 1,
) -> Plan[Batch]:
    """The examples that the settings ask for; of each step, this rank's share. ``clock`` counts seconds of training."""
    if len(config.phases) == 2 and config.max_seconds is not None and num_ranks > 1:
        raise ConfigError(
            f"short_seq_length with a time budget does not work with {num_ranks} processes: each has its own clock, so "
            "they would not change the length at the same step. Give max_steps instead of the budget, or use one length"
        )

    def plan(phase: Phase) -> Plan[Batch]:
        if config.protocol == "original":
            return original_plan(store, config, phase, rank=rank, num_ranks=num_ranks)
        options: PlanOptions = {
            "batch_size": phase.batch_size,
            "max_tokens": max(config.max_tokens, phase.max_seq_length),
            "rank": rank,
            "num_ranks": num_ranks,
        }
        if isinstance(vocabulary, DenoisingVocabulary):
            denoising = _denoising(config, phase.max_seq_length, config.seed, config.noise)
            return DenoisingData(store, vocabulary, denoising, **options)
        masking = Masking(config.masking, config.masked_lm_prob, phase.max_predictions, *config.replaced)
        return PretrainData(store, vocabulary, _rules(config, phase.max_seq_length, config.seed, masking), **options)

    if len(config.phases) == 1:
        return plan(config.phases[0])
    (short, long), num_steps = map(plan, config.phases), config.phases[0].num_steps
    if config.max_seconds is None:
        return CountedPhases(short, long, num_steps)
    end = config.short_share * config.max_seconds
    return TimedPhases(short, long, lambda step: step >= num_steps or clock() >= end)


def held_out_data(store: TokenStore, vocabulary: Vocabulary, config: PretrainConfig) -> ExamplePlan:
    """Held-out examples of full length; words are masked singly, at ``dev_masked_lm_prob``, whatever training does.

    The first are the same for any ``dev_examples`` from 64. What an encoder-decoder restores was removed as published.
    """
    length, batch_size = config.max_seq_length, min(DEV_BATCH_SIZE, config.dev_examples)
    max_tokens = max(config.max_tokens, length)
    if isinstance(vocabulary, DenoisingVocabulary):
        rules = _denoising(config, length, DEV_SEED, None)
        return DenoisingData(store, vocabulary, rules, batch_size=batch_size, max_tokens=max_tokens)
    masked = _rules(config, length, DEV_SEED, Masking(rate=config.dev_masked_lm_prob))
    return PretrainData(store, vocabulary, masked, batch_size=batch_size, max_tokens=max_tokens)


def _denoising(config: PretrainConfig, max_seq_length: int, seed: int, how: Denoising | None) -> DenoisingRules:
    assert config.objective == "span-corruption" or config.objective == "text-infilling"
    return DenoisingRules(config.objective, max_seq_length, seed, how)


def _rules(config: PretrainConfig, max_seq_length: int, seed: int, masking: Masking) -> Rules:
    assert config.objective != "span-corruption"
    assert config.objective != "text-infilling"
    return Rules(config.objective, max_seq_length, config.short_seq_prob, seed, masking=masking)


class TwoPhases(ABC, Generic[BatchT]):
    """One plan after another; ``steps_per_epoch`` is that of the first, and only sets how often a run is evaluated."""

    def __init__(self, first: Plan[BatchT], second: Plan[BatchT]) -> None:
        self.plans = (first, second)
        self.steps_per_epoch, self.unit = first.steps_per_epoch, first.unit

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

    @property
    def max_tokens(self) -> int | None:
        return max((plan.max_tokens for plan in self.plans if plan.max_tokens is not None), default=None)

    def halve(self) -> int | None:
        first, second = (plan.halve() for plan in self.plans)
        return first if second is None else second


class CountedPhases(TwoPhases[BatchT]):
    """The first plan for ``num_steps``, then the second from its own step 0: a pure function of the step."""

    def __init__(self, first: Plan[BatchT], second: Plan[BatchT], num_steps: int) -> None:
        super().__init__(first, second)
        self.num_steps = num_steps

    def locate(self, step: int) -> tuple[Plan[BatchT], int]:
        if step < self.num_steps:
            return self.plans[0], step
        return self.plans[1], step - self.num_steps


class TimedPhases(TwoPhases[BatchT]):
    """One plan until the clock ends its phase, then another.

    The second plan continues with the number of the step at which it takes over, so a resumed run, whose clock is past
    the switch, need not know where that was.
    """

    def __init__(self, first: Plan[BatchT], second: Plan[BatchT], is_over: Callable[[int], bool]) -> None:
        super().__init__(first, second)
        self._is_over = is_over
        self._lock = ForkSafeLock()
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


def loss_floor(store: TokenStore, vocabulary: Vocabulary, data: Plan[Batch]) -> float:
    """The loss, in nats, of a model that knows only how frequent each token is among the targets of training."""
    if not isinstance(vocabulary, DenoisingVocabulary):
        return unigram_entropy(store)
    plan = data.plans[1] if isinstance(data, TwoPhases) else data
    num_steps = min(math.ceil(FLOOR_EXAMPLES / len(plan.rows(0))), plan.steps_per_epoch)
    batches = [batch for step in range(num_steps) for batch in plan.micro_batches(step)]
    labels = torch.cat([batch.targets["labels"].flatten() for batch in batches])
    return target_entropy(store, labels[labels != NO_TARGET].numpy(), vocabulary.ends)


def scored_batches(data: ExamplePlan, num_examples: int) -> Iterator[Batch]:
    """The first ``num_examples`` held-out examples, always the same; the last step is not cut, so there may be more."""
    for step in range(min(data.steps_per_epoch, math.ceil(num_examples / data.batch_size))):
        yield from data.micro_batches(step)


def held_out_scores(network: Network, data: ExamplePlan, num_examples: int) -> Evaluate:
    """Loss (nats) and accuracy of words and next sentences, as in the original, or of an encoder-decoder."""

    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for batch in scored_batches(data, num_examples):
            check()
            for name, value in _counts(network, batch.to(network.device)).items():
                totals[name] = totals.get(name, 0.0) + value
        return {
            f"{term}_{metric}": totals[f"{term}_{metric}"] / totals[f"{term}_targets"]
            for term in ("masked_lm", "next_sentence", "denoising", "next_word")
            for metric in ("loss", "accuracy")
            if f"{term}_targets" in totals
        }

    return evaluate


def _counts(network: Network, batch: Batch) -> dict[str, float]:
    """Numerators and denominators of the metrics, summed over one batch."""
    if isinstance(network, ConditionalGeneration):
        logits_RV, labels_R = network.logits_at_targets(batch)
        return _counted("denoising", token_loss(logits_RV, labels_R).total, logits_RV, labels_R)
    out = network.forward_packed(batch)
    assert out.loss_terms is not None
    assert batch.logit_rows is not None
    terms = dict(out.loss_terms)
    word_logits = out.prediction_logits
    words = "masked_lm" if network.config.attention_direction == "both" else "next_word"
    if isinstance(network, BertForMaskedLM):  # whose only term is the whole loss
        terms, word_logits = {words: terms["loss"]}, out.logits
    compared: dict[str, tuple[Tensor | None, Tensor]] = {
        words: (word_logits, batch.targets["labels"][batch.logit_rows]),
    }
    if "next_sentence" in terms:
        compared["next_sentence"] = (out.seq_relationship_logits, batch.targets["next_sentence_label"])
    counts: dict[str, float] = {}
    for term, (logits, labels) in compared.items():
        assert logits is not None
        counts |= _counted(term, terms[term].total, logits, labels)
    return counts


def _counted(term: str, loss: Tensor, logits: Tensor, labels: Tensor) -> dict[str, float]:
    hits = float((logits.argmax(-1) == labels).sum())
    return {f"{term}_loss": float(loss), f"{term}_accuracy": hits, f"{term}_targets": float(labels.numel())}
