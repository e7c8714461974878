"""From a token store to the batches of a pre-training run."""

from __future__ import annotations

from bertkit.data.loader import PretrainData
from bertkit.data.masking import Masking, MaskVocabulary
from bertkit.data.store import TokenStore
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretrain_settings import PretrainConfig

#: Held-out examples are the same for every run, so that runs of other seeds can be compared.
DEV_SEED = 0


def mask_vocabulary(tokenizer: BertTokenizer) -> MaskVocabulary:
    """What masking needs to know of a tokenizer.

    Raises:
        DataError: it has no [CLS], [SEP] or [MASK].
    """
    return MaskVocabulary.of(tokenizer.convert_ids_to_tokens(range(len(tokenizer))))


def training_data(store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig) -> PretrainData:
    """The examples that the settings ask for.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.loader.PretrainData`.
    """
    masking = Masking(config.masking, config.masked_lm_prob, config.max_predictions_per_seq)
    return _data(store, vocabulary, config, masking, config.seed)


def held_out_data(store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig) -> PretrainData:
    """Held-out examples: masked token by token at ``dev_masked_lm_prob`` however the training text is masked, so that
    the scores of runs with other masking can be compared.

    Raises:
        ConfigError, DataError: see :class:`~bertkit.data.loader.PretrainData`.
    """
    return _data(store, vocabulary, config, Masking(rate=config.dev_masked_lm_prob), DEV_SEED)


def _data(
    store: TokenStore, vocabulary: MaskVocabulary, config: PretrainConfig, masking: Masking, seed: int
) -> PretrainData:
    return PretrainData(
        store,
        vocabulary,
        objective=config.objective,
        max_seq_length=config.max_seq_length,
        batch_size=config.batch_size,
        max_tokens=max(config.max_tokens, config.max_seq_length),
        masking=masking,
        short_seq_prob=config.short_seq_prob,
        seed=seed,
    )
