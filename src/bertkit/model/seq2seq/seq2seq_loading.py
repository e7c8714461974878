"""Loading and saving encoder-decoders, by the rules of :mod:`bertkit.model.loading`."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, Unpack

from bertkit.checkpoints.any_names import any_specs
from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.explain import explain
from bertkit.checkpoints.fit import LABELS, requested, wants_new_head
from bertkit.checkpoints.huggingface import find_weights
from bertkit.checkpoints.match import match, saved_as
from bertkit.checkpoints.save_folder import write_folder
from bertkit.checkpoints.seq2seq_names import table_of, with_own_output
from bertkit.checkpoints.weight_files import WEIGHTS
from bertkit.config.config_file import config_path, read_config
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.generation_settings import GENERATION, GenerationSettings
from bertkit.errors import CheckpointError, InputError
from bertkit.model.adapters import has_own_adapters, plain_state, save_adapters
from bertkit.model.class_specs import spec_of
from bertkit.model.configured_model import ConfiguredModel, no_weights
from bertkit.model.loading import LoadOptions, float_type, refuse_unknown, with_values
from bertkit.system.atomic_files import write_atomically
from bertkit.system.model_sources import adapted_folder, resolve
from bertkit.system.paths import user_path

ModelT = TypeVar("ModelT", bound=ConfiguredModel)


def load_seq2seq(
    cls: type[ModelT],
    config_class: type[EncoderDecoderConfig],
    name_or_path: str | Path,
    **options: Unpack[LoadOptions],
) -> ModelT:
    """As :func:`bertkit.model.loading.load_model`, without ``pooling``."""
    refuse_unknown(options, config_class)
    if options.get("pooling") is not None:
        raise InputError(f"{cls.__name__} has no option pooling; only classifiers on encoders have")
    path = resolve(name_or_path, revision=options.get("revision"))
    weights = find_weights(path)
    dtype = float_type(options, weights.tensors)
    file_config = config_class.from_json_file(config_path(path))
    config = with_own_output(requested(file_config, options), weights.tensors)
    labels = any(options.get(key) is not None for key in LABELS)
    table = table_of(config)
    spec = table.classes[cls.__name__]
    if labels and not spec.label_head:
        raise InputError(f"{cls.__name__} has no labels; num_labels, id2label and label2id are for classifiers")
    found = match(
        weights.tensors,
        config,
        spec,
        table,
        labels=labels or options.get("config") is not None,
        new_head=wants_new_head(file_config, config, options),
    )
    if found.problems:
        own = saved_as(weights.tensors, file_config, any_specs(file_config), table)
        raise CheckpointError(explain(found, weights.where, file_labels=file_config.num_labels, own=own))
    with no_weights():
        model = cls(config)  # type: ignore[arg-type]  # a class of the config's family
    return with_values(model, found, weights.tensors, dtype, options)


def save_seq2seq(model: ConfiguredModel, config: EncoderDecoderConfig, folder: str | Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` under the published names; of adapters only these."""
    if has_own_adapters(model):
        save_adapters(model, user_path(folder))
        return
    table, spec = table_of(config), spec_of(model)
    tensors = to_theirs(plain_state(model), config, spec, table)
    write_folder(user_path(folder), config.replace(architectures=[spec.name]), dict(tensors), WEIGHTS)


def saved_generation(path: Path) -> GenerationSettings:
    """The settings of generation of a checkpoint on this machine."""
    file = config_path(path)
    home = file.parent if file.exists() else adapted_folder(file.parent)
    return GenerationSettings.of_folder(home, read_config(file))


def write_generation(settings: GenerationSettings, config: EncoderDecoderConfig, folder: str | Path) -> None:
    """Write ``generation_config.json``, with the ids that other software looks for there."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    text = settings.to_json_string(**{name: getattr(config, name) for name in names})
    write_atomically(user_path(folder) / GENERATION, text)
