"""Loading and saving encoder-decoders, by the rules of :mod:`bertkit.model.loading`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, Unpack

from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.explain import explain
from bertkit.checkpoints.huggingface import WEIGHTS, Weights, config_path, find_weights
from bertkit.checkpoints.match import match, saved_as
from bertkit.checkpoints.save_folder import write_folder
from bertkit.checkpoints.seq2seq_names import table_of
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig, T5Config
from bertkit.errors import CheckpointError, InputError
from bertkit.model.configured_model import ConfiguredModel, no_weights
from bertkit.model.loading import LoadOptions, float_type, refuse_unknown, requested, with_values
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path

ModelT = TypeVar("ModelT", bound=ConfiguredModel)


def load_seq2seq(
    cls: type[ModelT],
    config_class: type[EncoderDecoderConfig],
    name_or_path: str | Path,
    **options: Unpack[LoadOptions],
) -> ModelT:
    """Load a checkpoint into a class: exactly, with a new head if asked for, or not at all.

    See :func:`bertkit.model.loading.load_model`; there is no ``pooling``.
    """
    refuse_unknown(options)
    dtype = float_type(options)
    if options.get("pooling") is not None:
        raise InputError(f"{cls.__name__} has no option pooling; only classifiers on encoders have")
    path = resolve(name_or_path, revision=options.get("revision"))
    weights = find_weights(path)
    file_config = config_class.from_json_file(config_path(path))
    config = _with_own_output(requested(file_config, options), weights)
    labels = any(options.get(key) is not None for key in ("num_labels", "id2label", "label2id"))
    table = table_of(config)
    spec = table.classes[cls.__name__]
    if labels and not spec.label_head:
        raise InputError(f"{cls.__name__} has no labels; num_labels, id2label and label2id are for classifiers")
    found = match(weights.tensors, config, spec, table, labels=labels, new_head=options.get("new_head") or False)
    if found.problems:
        named = [table.classes[name] for name in file_config.architectures or () if name in table.classes]
        own = saved_as(weights.tensors, file_config, named, table)
        raise CheckpointError(explain(found, weights.where, file_labels=file_config.num_labels, own=own))
    with no_weights():
        model = cls(config)  # type: ignore[arg-type]  # a class of the config's family
    return with_values(model, found, weights.tensors, dtype, options)


def _with_own_output(config: EncoderDecoderConfig, weights: Weights) -> EncoderDecoderConfig:
    """A T5 v1.1 whose config was written by transformers 5 says that output and words are tied: its file knows."""
    names = ("lm_head.weight", "shared.weight")
    if not isinstance(config, T5Config) or config.scale_decoder_outputs is not False:
        return config
    if config.has_own_output or not all(name in weights.tensors for name in names):
        return config
    return config.replace(tie_word_embeddings=False)


def save_seq2seq(model: ConfiguredModel, config: EncoderDecoderConfig, folder: str | Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` under the published names."""
    table = table_of(config)
    spec = table.classes[type(model).__name__]
    tensors = to_theirs(model.state_dict(), config, spec, table)
    write_folder(user_path(folder), config.replace(architectures=[spec.name]), dict(tensors), WEIGHTS)
