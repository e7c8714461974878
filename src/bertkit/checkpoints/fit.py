"""Whether a checkpoint fits a class, and with which config: all of loading that comes before the values.

See ``docs/decisions/0020-strict-loading.md`` for the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from bertkit.checkpoints.any_names import any_specs
from bertkit.checkpoints.huggingface import Weights, check_vocabulary, find_weights
from bertkit.checkpoints.match import Match, match, saved_as
from bertkit.checkpoints.names import TABLES, class_spec
from bertkit.checkpoints.sentence_folder import saved_pooling
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.errors import CheckpointError, ConfigError, InputError

if TYPE_CHECKING:
    from bertkit.config.encoder_decoder_config import EncoderDecoderConfig

ConfigT = TypeVar("ConfigT", BertConfig, "EncoderDecoderConfig")
#: What a sequence classifier may read.
Pooling = Literal["cls", "mean", "max"]
#: What asks for a head of labels.
LABELS = ("num_labels", "id2label", "label2id")
#: Those of :class:`bertkit.model.loading.LoadOptions` that change the config or the head.
Options = Mapping[str, Any]


class Fitted(NamedTuple):
    """A checkpoint that fits a class: the config of the model, its tensors and where they go."""

    config: BertConfig
    weights: Weights
    match: Match


def fit_checkpoint(path: Path, name: str, options: Options) -> Fitted:
    """The checkpoint of an encoder, with a head or without, for a class of ours.

    Raises:
        CheckpointError: it does not fit; lists every tensor that differs.
        ConfigError, InputError: options that contradict it, or the class.
    """
    labels = any(options.get(key) is not None for key in LABELS)
    weights = find_weights(path)
    file_config = BertConfig.from_json_file(config_path(path))
    config = requested(file_config, options)
    new_head, pooling = wants_new_head(file_config, config, options), options.get("pooling")
    if name == "BertForSequenceClassification":
        from bertkit.checkpoints.cross_encoder import saved_activation

        config = config.replace(
            pooling=pooling_of(file_config, weights.folder, pooling, new_head=new_head),
            activation_fn=saved_activation(weights.folder) or config.activation_fn,
        )
    elif pooling is not None:
        raise InputError(f"{name} has no option pooling; only sequence classifiers have")
    elif not config.family.head_layer:
        config = config.replace(pooling="cls")
    spec = class_spec(name, config.model_type, config.pooling)
    check_vocabulary(weights.folder, config)
    names = TABLES[config.model_type]
    labels = labels or bool(options.get("config"))
    table = match(weights.tensors, config, spec, names, labels=labels, new_head=new_head)
    if table.problems:
        from bertkit.checkpoints.explain import explain

        own = saved_as(weights.tensors, file_config, any_specs(file_config), names)
        raise CheckpointError(explain(table, weights.where, file_labels=file_config.num_labels, own=own))
    return Fitted(config, weights, table)


def requested(config: ConfigT, options: Options) -> ConfigT:
    """The config of the file, or the one given in its place, with the fields asked for.

    Its labels keep their names if only their number is given. InputError for a config of another family.
    """
    given = options.get("config")
    if given is not None and (type(given), getattr(given, "model_type", None)) != (type(config), config.model_type):
        kind = getattr(given, "model_type", type(given).__name__)
        raise InputError(f"config= is of the {kind} family, and the checkpoint is a {config.model_type}")
    config = config if given is None else given
    fields = {*config.model_fields, *LABELS} - {"pooling"}
    changes = {name: value for name, value in options.items() if name in fields and value is not None}
    if changes.get("num_labels") == config.num_labels and "id2label" not in changes and "label2id" not in changes:
        del changes["num_labels"]
    return config.replace(**changes) if changes else config


def wants_new_head(file_config: ConfigT, config: ConfigT, options: Options) -> bool:
    """Whether the heads are to be initialized whatever the file has."""
    other = file_config.num_labels != config.num_labels
    return bool(options.get("new_head") or (options.get("ignore_mismatched_sizes") and other))


def own_pooling(folder: Path) -> Pooling | None:
    """How a folder of sentence-transformers pools, as far as a classifier can: of several modes it has one."""
    modes: tuple[Pooling, ...] = ("mean", "max", "cls")
    return next((mode for mode in modes if mode in saved_pooling(folder)), None)


def pooling_of(config: BertConfig, folder: Path, wanted: Pooling | None, *, new_head: bool) -> Pooling:
    """What a sequence classifier made of a checkpoint reads; see :class:`bertkit.model.loading.LoadOptions`."""
    if wanted not in (None, "cls", "mean", "max"):
        raise InputError(f"pooling must be 'cls', 'mean' or 'max', got {wanted!r}")
    trained = any(saved.endswith("ForSequenceClassification") for saved in config.architectures or ())
    if not trained or new_head:
        return wanted or own_pooling(folder) or (config.pooling if config.family.head_layer else "cls")
    if wanted not in (None, config.pooling):
        raise ConfigError(
            f"the checkpoint's classifier was trained with pooling={config.pooling!r}, got {wanted!r}; leave pooling "
            "out, or ask for a new classifier with new_head=True"
        )
    return config.pooling
