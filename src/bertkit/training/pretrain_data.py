"""From a token store to the batches of a pre-training run."""

from __future__ import annotations

from bertkit.batch import Batch
from bertkit.data.loader import PretrainData
from bertkit.data.masking import Masking, MaskVocabulary
from bertkit.data.store import TokenStore
from bertkit.tokenization import BertTokenizer
from bertkit.training.plan import Plan
from bertkit.training.pretrain_original import original_plan
from bertkit.training.pretrain_phases import PhasedPlan
from bertkit.training.pretrain_settings import PretrainConfig

#: Held-out examples do not depend on the seed and the batch size of a run, so that runs can be compared.
DEV_SEED, DEV_BATCH_SIZE = 0, 64


def mask_vocabulary(tokenizer: BertTokenizer) -> MaskVocabulary:
    """What masking needs to know of a tokenizer.

    Raises:
        DataError: it has no [CLS], [SEP] or [MASK].
    """
    return MaskVocabulary.of_tokenizer(tokenizer)


def training_data(
    store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig, *, rank: int = 0, num_ranks: int = 1
) -> Plan[Batch]:
    """The examples that the settings ask for, in one phase or two; of each step this rank's part.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.loader.PretrainData`.
    """
    phases: list[tuple[Plan[Batch], int]] = []
    for max_seq_length, limit, num_steps in config.phases:
        plan: Plan[Batch]
        if config.protocol == "original":
            plan = original_plan(store, config, max_seq_length, limit, rank=rank, num_ranks=num_ranks)
        else:
            masking = Masking(config.masking, config.masked_lm_prob, limit)
            plan = _data(
                store, vocabulary, config, masking, config.seed, max_seq_length, config.batch_size, rank, num_ranks
            )
        phases.append((plan, num_steps))
    return phases[0][0] if len(phases) == 1 else PhasedPlan(phases)


def held_out_data(store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig) -> PretrainData:
    """Held-out examples: masked token by token at ``dev_masked_lm_prob`` however the training text is masked, and of
    the full length throughout, so that scores can be compared.

    They are the same for all runs of the same text, objective, ``max_seq_length``, ``short_seq_prob`` and
    ``dev_masked_lm_prob``; the first ones are the same for any ``dev_examples`` of at least 64.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.loader.PretrainData`.
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
