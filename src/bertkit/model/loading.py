"""``from_pretrained`` and ``save_pretrained`` of the model classes.

See ``docs/decisions/0020-strict-loading.md`` for the rules of loading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

import torch
from torch import Tensor, nn

from bertkit.checkpoints.apply import DTYPES, to_ours, to_theirs
from bertkit.checkpoints.fit import LABELS, Pooling, fit_checkpoint, requested
from bertkit.checkpoints.huggingface import is_int8
from bertkit.checkpoints.match import Match, Status
from bertkit.checkpoints.names import TABLES
from bertkit.checkpoints.safetensors_format import TensorInfo
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.errors import CheckpointError, InputError
from bertkit.habit_table import has_no_effect, remedy
from bertkit.model.adapters import has_own_adapters, plain_state, save_adapters
from bertkit.model.class_specs import class_name, spec_of
from bertkit.model.configured_model import ConfiguredModel, initialize, no_weights
from bertkit.model.int8_model import load_int8, save_int8
from bertkit.system.device import Device, device_of_map, find_device
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path

ModelT = TypeVar("ModelT", bound=ConfiguredModel)


class LoadOptions(TypedDict, total=False):
    """Options of :func:`load_model`; None is the same as leaving one out.

    num_labels: number of labels; a classifier in the file must have as many.
    id2label, label2id: names of the labels by number, or the other way round; imply their number.
    problem_type: loss of a sequence classifier; see :class:`bertkit.config.bert_config.BertConfig`.
    pooling: what a sequence classifier reads: ``"cls"``, ``"mean"`` or ``"max"``; None: as it was trained; for a new
        one, as ``1_Pooling`` of a sentence-transformers checkpoint says (the mean, if that is one of several), or
        ``"cls"``.
    new_head: initialize the heads of the class anew whatever the file contains, and the pooler if the file has none
        (for ``BertModel``, which has no heads, only that).
    seed: for the weights of a new head; 0 by default. The global generators are not used.
    revision: branch, tag or commit on the Hub.
    device: of the model, as in :func:`bertkit.pipeline`; None means the CPU.
    device_map: another way to say ``device``; ``"auto"`` takes a GPU where there is one.
    dtype: of the weights; None means float32, whatever the file contains; ``"auto"``: that of the file.
    torch_dtype: another name of ``dtype``.
    config: in place of the file's; its shape must be the file's.
    ignore_mismatched_sizes: True initializes the heads anew if the number of labels is another than the file's.

    Any other field of the config may be given too, for example ``hidden_dropout_prob=0.2``, and is then set otherwise.
    """

    num_labels: int | None
    id2label: Mapping[int, str] | Mapping[str, str] | None
    label2id: Mapping[str, int] | None
    problem_type: str | None
    pooling: Pooling | None
    new_head: bool | None
    seed: int | None
    revision: str | None
    device: Device
    dtype: torch.dtype | str | None
    torch_dtype: torch.dtype | str | None
    device_map: str | int | Mapping[str, str | int] | None
    config: BertConfig | EncoderDecoderConfig | None
    ignore_mismatched_sizes: bool | None


def load_model(cls: type[ModelT], name_or_path: str | Path, **options: Unpack[LoadOptions]) -> ModelT:
    """Load a checkpoint into a class: exactly, with a new head if asked for, or not at all.

    ``name_or_path`` is a folder, ``.safetensors`` file, ``.index.json`` of shards, or name on the Hub. The model is in
    eval mode; ``model.load_report`` lists exact, new and unused tensors.

    Raises:
        CheckpointError: a missing, damaged, unsafe or unsuitable checkpoint; lists every tensor that differs.
        ConfigError: contradictory labels.
        InputError: labels for a class without labels, a ``dtype`` that is not a float type, an unknown keyword.
    """
    refuse_unknown(options, BertConfig)
    name = class_name(cls)
    labels = [key for key in LABELS if options.get(key) is not None]
    if labels and not any(table.classes[name].label_head for table in TABLES.values() if name in table.classes):
        raise InputError(f"{cls.__name__} has no labels, got {' and '.join(labels)}; for a new head pass new_head=True")
    path = resolve(name_or_path, revision=options.get("revision"))
    if is_int8(path):
        return _load_int8(cls, path, name, float_type(options), options)
    fitted = fit_checkpoint(path, name, options)
    dtype = float_type(options, fitted.weights.tensors)
    config, table = fitted.config, fitted.match
    has_no_pooler = not table.spec.heads and not table.has_pooler
    with no_weights():
        model = cls(config, add_pooling_layer=False) if has_no_pooler else cls(config)  # type: ignore[call-arg]
    return with_values(model, table, fitted.weights.tensors, dtype, options)


def with_values(
    model: ModelT, table: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype, options: LoadOptions
) -> ModelT:
    """A model of shapes only, with the values of a file that fits and new ones for new heads; in eval mode."""
    state = to_ours(table, tensors, dtype)
    state |= {row.ours: torch.zeros(row.shape, dtype=dtype) for row in table.of(Status.ZERO)}
    _draw_new(model, table, options.get("seed") or 0, dtype)
    missing, unexpected = model.load_state_dict(state, strict=False, assign=True)
    if set(missing) != set(table.new) or unexpected:
        name = type(model).__name__
        raise CheckpointError(f"{name} has tensors that are not in bertkit's name table: {sorted(missing)}")
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    model.load_report = table
    return model.eval().to(find_device(_device(options), "cpu"))


def _device(options: LoadOptions) -> Device:
    device, spread = options.get("device"), options.get("device_map")
    if device is not None and spread is not None:
        raise InputError(f"device_map is another name for device; give one, got {spread!r:.80} and {device!r}")
    return device if spread is None else device_of_map(spread) or "auto"


def _load_int8(cls: type[ModelT], folder: Path, name: str, dtype: torch.dtype, options: LoadOptions) -> ModelT:
    """A model in 8 bits, as it is: such a model can neither be trained nor get another head."""
    own = BertConfig.from_json_file(config_path(folder))
    if options.get("new_head") or requested(own, options) != own or options.get("pooling") not in (None, own.pooling):
        raise InputError(
            f"{folder} is a model in 8 bits, which gets no other head, labels or pooling: load the original model, and "
            "quantize the result"
        )
    if dtype != torch.float32:
        raise InputError(f"{folder} is a model in 8 bits; dtype is float32 for all that is not, got {dtype}")
    known = {each.__name__: each for each in _subclasses(ConfiguredModel)} | {cls.__name__: cls}
    return load_int8(folder, name, known, _device(options))  # type: ignore[return-value]  # its name says so


def _subclasses(of: type[ConfiguredModel]) -> list[type[ConfiguredModel]]:
    return [each for child in of.__subclasses__() for each in (child, *_subclasses(child))]


def refuse_unknown(given: Mapping[str, object], config_class: type[BertConfig | EncoderDecoderConfig]) -> None:
    """Refuse keywords of ``from_pretrained`` that have no meaning here, with what to write instead."""
    known = ["name_or_path", *LoadOptions.__annotations__]
    every = [*known, *config_class.model_fields]
    for name, value in given.items():
        if name in every or config_class.ignores(name) or has_no_effect("from_pretrained", name, value):
            continue
        near = remedy("from_pretrained", name, every)
        raise InputError(
            f"from_pretrained has no {name!r}{near}; it takes {', '.join(known)}, and fields of the config"
        )


def float_type(options: LoadOptions, tensors: Mapping[str, TensorInfo] | None = None) -> torch.dtype:
    """The type of the weights that is asked for; ``tensors`` are those of the file, whose type ``"auto"`` is."""
    dtype, other = options.get("dtype"), options.get("torch_dtype")
    if dtype is not None and other is not None:
        raise InputError(f"torch_dtype is another name for dtype; give one, got {dtype!r} and {other!r}")
    dtype = other if dtype is None else dtype
    if dtype == "auto":
        kinds = Counter(DTYPES[info.dtype] for info in (tensors or {}).values() if info.dtype in DTYPES)
        dtype = max(kinds, key=kinds.__getitem__, default=torch.float32)
    found = torch.float32 if dtype is None else getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if found not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        raise InputError(f"dtype must be float32, float16, bfloat16, float64 or auto, got {dtype!r}")
    return found


def _draw_new(model: ConfiguredModel, table: Match, seed: int, dtype: torch.dtype) -> None:
    """Initialize the requested parts as in a new model, with a separate generator."""
    generator = torch.Generator().manual_seed(seed)
    for part in table.new_parts:
        owners = {row.ours.rpartition(".")[0]: None for row in table.of(Status.NEW) if row.part == part}
        for name in sorted(owners, key=lambda name: name.count(".")):  # parents first
            module = model.get_submodule(name)
            for key, parameter in list(module.named_parameters(recurse=False)):
                module.register_parameter(key, nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype)))
            initialize(module, model.init_range, generator)
            module.to(dtype)


def save_model(model: ConfiguredModel, folder: str | Path) -> None:
    """Write ``config.json`` and ``model.safetensors`` under the published names of the family; 8 bits under our own.

    Of a model with adapters that are not merged, only these and the head of its task.
    """
    if model.quantization is not None:
        save_int8(model, user_path(folder), model.quantization)
        return
    if has_own_adapters(model):
        save_adapters(model, user_path(folder))
        return
    config, tensors = published(model)
    write_folder(user_path(folder), config, tensors)


def published(model: ConfiguredModel) -> tuple[BertConfig, dict[str, Tensor]]:
    """Config and tensors of a model as its files hold them."""
    spec = spec_of(model)
    config = model.config.replace(architectures=[spec.name])
    if {"span head", "span classifier", "sentence-order head"} & set(spec.heads) and config.num_labels != 2:
        config = config.replace(num_labels=2)  # transformers takes the size of these heads from the labels
    return config, dict(to_theirs(plain_state(model), config, spec, TABLES[config.model_type]))
