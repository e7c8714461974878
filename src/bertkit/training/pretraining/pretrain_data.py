"""From a token store to the batches of a pre-training run."""

from __future__ import annotations

from collections.abc import Callable

from bertkit.batch import Batch
from bertkit.data.examples.masking import Masking, MaskVocabulary
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining.original_examples import original_plan
from bertkit.training.pretraining.phases import CountedPhases, TimedPhases
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.trainer.batch_plan import Plan

#: Held-out examples do not depend on the seed and the batch size of a run, so that runs can be compared.
DEV_SEED, DEV_BATCH_SIZE = 0, 64


def mask_vocabulary(tokenizer: BertTokenizer) -> MaskVocabulary:
    """What masking needs to know of a tokenizer.

    Raises:
        DataError: it has no [CLS], [SEP] or [MASK].
    """
    return MaskVocabulary.of_tokenizer(tokenizer)


def training_data(
    store: TokenStore,
    vocabulary: MaskVocabulary,
    config: PretrainConfig,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    rank: int = 0,
    num_ranks: int = 1,
) -> Plan[Batch]:
    """The examples that the settings ask for, in one phase or two; of each step this rank's part.

    Args:
        store: the corpus.
        vocabulary: of its tokenizer.
        config: settings that agree with each other.
        clock: seconds of training so far, which end the first of two phases of a run with a time budget.
        rank: number of this process.
        num_ranks: how many there are.

    Raises:
        ConfigError: two phases that a clock divides, and several processes, which would not change at the same step.
        ConfigError, DataError: see :class:`~bertkit.data.examples.pretrain_batches.PretrainData`.
    """
    if len(config.phases) == 2 and config.max_seconds is not None and num_ranks > 1:
        raise ConfigError(
            f"two lengths (short_seq_length) under a time budget: {num_ranks} processes have {num_ranks} clocks and "
            "would not change the length at the same step. Give max_steps in place of the budget, or one length"
        )
    phases: list[tuple[Plan[Batch], int]] = []
    for phase in config.phases:
        plan: Plan[Batch]
        if config.protocol == "original":
            plan = original_plan(store, config, phase, rank=rank, num_ranks=num_ranks)
        else:
            masking = Masking(config.masking, config.masked_lm_prob, phase.max_predictions)
            plan = _data(
                store, vocabulary, config, masking, config.seed, phase.max_seq_length, phase.batch_size, rank, num_ranks
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
    """Held-out examples: masked token by token at ``dev_masked_lm_prob`` however the training text is masked, and of
    the full length throughout, so that scores can be compared.

    They are the same for all runs of the same text, objective, ``max_seq_length``, ``short_seq_prob`` and
    ``dev_masked_lm_prob``; the first ones are the same for any ``dev_examples`` of at least 64.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.examples.pretrain_batches.PretrainData`.
    """
    masking = Masking(rate=config.dev_masked_lm_prob)
    batch_size = min(DEV_BATCH_SIZE, config.dev_examples)
    return _data(store, vocabulary, config, masking, DEV_SEED, config.max_seq_length, batch_size)


def _data(
    store: TokenStore,
    vocabulary: MaskVocabulary,
    config: PretrainConfig,
    masking: Masking,
    seed: int,
    max_seq_length: int,
    batch_size: int,
    rank: int = 0,
    num_ranks: int = 1,
) -> PretrainData:
    return PretrainData(
        store,
        vocabulary,
        objective=config.objective,
        max_seq_length=max_seq_length,
        batch_size=batch_size,
        max_tokens=max(config.max_tokens, max_seq_length),
        masking=masking,
        short_seq_prob=config.short_seq_prob,
        seed=seed,
        rank=rank,
        num_ranks=num_ranks,
    )
