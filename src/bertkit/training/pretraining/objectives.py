"""Which objective fits a family of models, and the class that is trained with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.data.examples.denoising import DenoisingObjective
from bertkit.errors import ConfigError
from bertkit.model.models import BertForMaskedLM, BertForPreTraining
from bertkit.model.seq2seq.conditional_generation import WRITERS, ConditionalGeneration
from bertkit.system.console import say
from bertkit.system.model_sources import resolve
from bertkit.training.pretraining.pretrain_settings import AnyObjective, PretrainConfig

#: What is trained: words and pairs of sentences, words alone, or writing.
Network = BertForPreTraining | BertForMaskedLM | ConditionalGeneration
#: Where the initial model comes from: a config, a model in memory, or the folder, file or Hub name of a checkpoint.
Model: TypeAlias = "AnyConfig | Network | str | Path"

#: The objective of a family of encoder-decoders, and why no other way to remove text will do.
_DENOISES: Mapping[str, tuple[DenoisingObjective, str]] = {
    "t5": ("span-corruption", "has sentinels and no mask"),
    "bart": ("text-infilling", "has a mask and no sentinels"),
    "mbart": ("text-infilling", "has a mask and no sentinels"),
}


#: What a model learns whose tokens attend to one side: the word on the other.
_ONE_WAY: Mapping[str, Literal["next-word", "previous-word"]] = {
    "left-to-right": "next-word",
    "right-to-left": "previous-word",
}


def with_objective(config: PretrainConfig, model: Model) -> PretrainConfig:
    """The settings, with the usual objective of the model's family if none is given."""
    if "objective" in config.model_fields_set or (shape := _shape_of(model)) is None:
        return config
    chosen = _usual(shape)
    if chosen in _ONE_WAY.values():
        say(f"each word is predicted from its neighbour (--objective {chosen}), as attention is one way")
    elif chosen == "mlm":
        say(f"masked words alone are trained (--objective mlm), as usual for the {shape.model_type} family")
    return config.replace(objective=chosen)


def network_class(shape: AnyConfig, config: PretrainConfig) -> type[Network]:
    """What the objective trains in a family. BERT has both heads with any, so that each can follow another."""
    if isinstance(shape, EncoderDecoderConfig):
        own, tokens = _DENOISES[shape.model_type]
        if config.objective == own:
            return WRITERS[shape.model_type]
        why = "writes what is missing and has no head for masked words" if config.noise is None else tokens
        raise _unfit(shape, config, why, own)
    if config.noise is not None:
        raise _unfit(shape, config, "has no decoder that could write what is missing", _usual(shape))
    one_way = _ONE_WAY.get(shape.attention_direction)
    if one_way and config.objective == one_way:
        return BertForMaskedLM
    if one_way or config.objective in _ONE_WAY.values():
        has = f"attends {shape.attention_direction}" if one_way else "attends to both sides, so it would see that word"
        raise _unfit(shape, config, has, _usual(shape))
    pairs = {None: "", "next_sentence_label": "mlm+nsp", "sentence_order_label": "mlm+sop"}[shape.family.pair_label]
    if shape.model_type == "bert" or (pairs and config.objective == pairs):
        return BertForPreTraining
    if config.objective == "mlm":
        return BertForMaskedLM
    has = "judges only the order of two segments" if pairs else "has no head that judges pairs of sentences"
    raise _unfit(shape, config, has, f"{pairs} or mlm" if pairs else "mlm")


def _shape_of(model: Model) -> AnyConfig | None:
    """The config; None of a checkpoint without one, whose error is told where the weights are read."""
    if isinstance(model, BertConfig | EncoderDecoderConfig):
        return model
    if isinstance(model, Network):
        return model.config
    file = config_path(resolve(model))
    return read_any_config(file) if file.is_file() else None


def _usual(shape: AnyConfig) -> AnyObjective:
    if isinstance(shape, EncoderDecoderConfig):
        return _DENOISES[shape.model_type][0]
    if one_way := _ONE_WAY.get(shape.attention_direction):
        return one_way
    return "mlm+nsp" if shape.family.pair_label == "next_sentence_label" else "mlm"


def _unfit(shape: AnyConfig, config: PretrainConfig, why: str, own: str) -> ConfigError:
    return ConfigError(
        f"objective={config.objective!r} does not fit a model of the {shape.model_type} family, which {why}; "
        f"use --objective {own}"
    )
