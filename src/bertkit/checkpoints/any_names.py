"""The names of any kind of model, encoder or encoder-decoder, by its config."""

from __future__ import annotations

from bertkit.checkpoints import names
from bertkit.checkpoints.rules import ClassSpec, NameTable
from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig


def any_table(config: AnyConfig) -> NameTable:
    """The table of the config's family."""
    if isinstance(config, BertConfig):
        return names.TABLES[config.model_type]
    from bertkit.checkpoints import seq2seq_names  # most models are encoders, and each process waits for imports

    return seq2seq_names.table_of(config)


def any_specs(config: AnyConfig) -> list[ClassSpec]:
    """The parts of the classes that a config names under ``architectures``; names that are not known are left out."""
    known = any_table(config).classes
    found = [name for name in config.architectures or () if name in known]
    if isinstance(config, BertConfig):
        return [names.class_spec(name, config.model_type, config.pooling) for name in found]
    return [known[name] for name in found]


def any_ties(config: AnyConfig) -> dict[str, str]:
    """What a file of this config may hold twice: a name, and that of the tensor it always equals."""
    ties = dict(any_table(config).ties)
    if isinstance(config, BertConfig):
        return {} if config.has_own_decoder else ties
    if config.has_own_output:
        del ties["lm_head.weight"]
    return ties
