"""What the name tables call a model's class."""

from __future__ import annotations

from bertkit.checkpoints.any_names import any_table
from bertkit.checkpoints.names import TABLES, class_spec
from bertkit.checkpoints.rules import ClassSpec
from bertkit.checkpoints.seq2seq_names import CLASSES as SEQ2SEQ_CLASSES
from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model.configured_model import ConfiguredModel


def class_name(cls: type[ConfiguredModel]) -> str:
    """The class itself or the one that it is derived from, by its name in the tables; InputError if there is none."""
    known = {*SEQ2SEQ_CLASSES, *(name for table in TABLES.values() for name in table.classes)}
    for base in cls.__mro__:
        if base.__name__ in known:
            return base.__name__
    raise InputError(f"{cls.__name__} cannot be loaded or saved; choose one of {', '.join(sorted(known))}")


def spec_of(model: ConfiguredModel) -> ClassSpec:
    """The parts that a model has."""
    name = class_name(type(model))
    config: AnyConfig = model.config
    if isinstance(config, BertConfig):
        return class_spec(name, config.model_type, config.pooling)
    return any_table(config).classes[name]
