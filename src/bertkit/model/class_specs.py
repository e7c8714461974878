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
from bertkit.model.published_tensors import PublishedTensors


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


def published_names(model: ConfiguredModel, half: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """Our name of each parameter that a model may have, and those in published files; empty for unknown classes.

    half: of an encoder-decoder "encoder" or "decoder": the parameters in it, by their names from there on.
    """
    table = any_table(model.config)
    try:
        names = [(ours, theirs) for _, ours, theirs in table.names(spec_of(model), model.config)]
    except InputError:
        return []
    inner = f"{model.base_prefix}.{half}."
    prefix = f"{table.prefix}{half}."
    return (
        [
            (ours.removeprefix(inner), tuple(name.removeprefix(prefix) for name in theirs))
            for ours, theirs in names
            if ours.startswith(inner)
        ]
        if half
        else names
    )


def published_below(model: ConfiguredModel, name: str) -> PublishedTensors | None:
    """The parameters of a model whose names in published files begin with ``name``; None where there are none."""
    if name.startswith("_"):
        return None
    names = published_names(model)
    prefix = any_table(model.config).prefix  # that a bare model does not have
    bare = [(ours, tuple(each.removeprefix(prefix) for each in theirs)) for ours, theirs in names]
    found = PublishedTensors.below(model, name, names)
    return PublishedTensors.below(model, name, bare) if found is None else found
