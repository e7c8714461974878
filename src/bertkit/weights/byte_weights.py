"""The weights of a folder in 8 bits; :mod:`bertkit.model.int8_model` makes torch modules of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.checkpoints.int8_folder import Quantization, read_quantization
from bertkit.checkpoints.names import TABLES, class_spec
from bertkit.checkpoints.safetensors_format import TensorInfo, first_not_finite, read_header, tensor_bytes
from bertkit.checkpoints.weight_files import INT8_FACTS, INT8_WEIGHTS
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG
from bertkit.errors import CheckpointError, InputError, shorten
from bertkit.weights.encoder_weights import Arrays

_TYPES = {"F32": "<f4", "I8": "<i1", "I64": "<i8"}
_LEAST = -127


def read_byte_weights(folder: Path, wanted: str) -> tuple[BertConfig, Arrays, Quantization]:
    """Config, arrays by the names of the class ``wanted``, and facts.

    The class is the one that was quantized or, if ``BertModel``, its encoder.

    Raises:
        CheckpointError: an incomplete or damaged folder.
        InputError: another class.
    """
    facts = read_quantization(folder)
    config, path = BertConfig.from_json_file(folder / CONFIG), folder / INT8_WEIGHTS
    if facts.model_class not in TABLES[config.model_type].classes:
        raise CheckpointError(
            f"{folder / INT8_FACTS} names the class {facts.model_class!r}, which bertkit does not know"
        )
    if wanted not in (facts.model_class, "BertModel"):
        raise InputError(
            f"{folder} is a {facts.model_class} in 8 bits and cannot be loaded as {wanted}, whose head it lacks: "
            "fine-tune the original model, then quantize the result"
        )
    arrays = {name: _values(info) for name, info in read_header(path).items()}
    if differing := sorted(_differing(arrays, config, facts.model_class)):
        raise CheckpointError(f"{path} does not fit config.json at {shorten(differing)}; quantize again")
    for name in [name.removesuffix(".weight") for name, array in arrays.items() if array.dtype == np.int8]:
        if (damage := _damage(arrays, name)) is not None:
            raise CheckpointError(f"{path}: {name} {damage}; the file is damaged, quantize again")
    if wanted != facts.model_class:
        arrays = {name.removeprefix("bert."): array for name, array in arrays.items() if name.startswith("bert.")}
        if not config.family.has_pooler:  # it was the classifier's own
            arrays = {name: array for name, array in arrays.items() if not name.startswith("pooler.")}
        facts = replace(facts, model_class=wanted, kept=[name.removeprefix("bert.") for name in facts.kept])
    return config, arrays, facts


def _values(info: TensorInfo) -> NDArray[Any]:
    content = tensor_bytes(info)
    if first_not_finite(content, info.dtype) is not None:
        raise CheckpointError(
            f"{info.file}: {info.name} has values that are not finite; the file is damaged, quantize again"
        )
    # Of another type the bytes, which fit nowhere.
    return content.view(_TYPES[info.dtype]).reshape(info.shape) if info.dtype in _TYPES else content


def _differing(arrays: Arrays, config: BertConfig, model_class: str) -> Iterator[str]:
    """The names of tensors that are missing, surplus, or of another shape or type than the config asks for."""
    spec, table = class_spec(model_class, config.model_type, config.pooling), TABLES[config.model_type]
    letters, left = table.sizes(config, spec), dict(arrays)
    parts = [part for part in spec.parts if part != "pooler" or spec.heads or "pooler.dense.weight" in arrays]
    for part in parts:
        prefix = table.written_prefix(part, spec.base_prefix)
        for rule in table.rules(part, config):
            name, shape = prefix + rule.ours, rule.our_shape(letters)
            found = left.pop(name, None)
            if found is None:
                if not name.endswith(".bias") or name not in arrays:
                    yield name
            elif found.dtype == np.int8 and len(shape) == 2:
                yield from _companions(left, name.removesuffix(".weight"), shape)
            kinds = (np.float32, np.int8) if len(shape) == 2 else (np.float32,)
            if found is not None and (found.shape != shape or found.dtype not in kinds):
                yield name
    yield from left


def _companions(left: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Iterator[str]:
    """Take what belongs to a weight in 8 bits out of ``left``; the names of what does not fit."""
    outputs, inputs = shape
    wanted: dict[str, tuple[tuple[int, ...], type]]
    if f"{name}.column_scale" in left:
        wanted = {"scale": ((outputs,), np.float32), "column_scale": ((inputs,), np.float32)}
    else:
        apart = left.get(f"{name}.apart", np.zeros(0))
        wanted = {
            "scale": ((outputs,), np.float32),
            "bias": ((outputs,), np.float32),
            "smooth": ((inputs,), np.float32),
            "shift": ((inputs,), np.float32),
            "apart": ((apart.size,), np.int64),
            "apart_weight": ((apart.size, outputs), np.float32),
        }
    for part, (size, kind) in wanted.items():
        found = left.pop(f"{name}.{part}", None)
        if found is None and part == "shift":
            continue
        if found is None or found.shape != size or found.dtype != kind:
            yield f"{name}.{part}"


def _damage(arrays: Arrays, name: str) -> str | None:
    """What is wrong with the numbers of a weight in 8 bits, if anything: ``quantize`` writes none of these."""
    scales = [arrays[f"{name}.{part}"] for part in ("scale", "column_scale") if f"{name}.{part}" in arrays]
    if any((scale <= 0).any() for scale in scales):
        return "has a scale that is not above 0"
    weight = arrays[f"{name}.weight"]
    if weight.size and weight.min() < _LEAST:
        return f"has weights below {_LEAST}"
    if f"{name}.apart" in arrays:
        if (arrays[f"{name}.smooth"] < 0).any():
            return "has factors of inputs below 0"
        apart = arrays[f"{name}.apart"].tolist()
        if apart != sorted(set(apart)) or (apart and not 0 <= apart[0] <= apart[-1] < weight.shape[1]):
            return f"keeps inputs apart that are not numbers from 0 to {weight.shape[1] - 1}, ascending"
        if arrays[f"{name}.smooth"][apart].any():
            return "has factors of inputs apart that are not 0"
    return None
