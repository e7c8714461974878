"""Folders with an adapter: low-rank matrices added to those of another model, and whole layers for its head.

Read as a checkpoint whose tensors are those of the other model, sums, or its own; named as by ``peft``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.any_names import any_specs, any_table
from bertkit.checkpoints.match import FLOAT_TYPES
from bertkit.checkpoints.rules import ClassSpec, NameTable
from bertkit.checkpoints.safetensors_format import (
    ITEM_BYTES,
    LowRankSum,
    TensorInfo,
    as_floats,
    read_header,
    read_metadata,
)
from bertkit.config.adapter_config import ADAPTER_WEIGHTS, POOLED_ADAPTER_WEIGHTS, AdapterConfig, read_adapter_config
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import CONFIG
from bertkit.errors import CheckpointError, shorten
from bertkit.system.model_sources import ADAPTER, HEAD
from bertkit.system.untrusted_files import is_there, open_regular, read_at

#: What every name in the file begins with.
PREFIX = "base_model.model."
#: Endings of the names of A and B.
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
#: Where the header of the file says which weights the adapter was trained with.
FINGERPRINT_KEY = "bertkit_base"
#: Values of each tensor that the fingerprint is made of, evenly spaced.
_SAMPLES = 16


class Adapters(NamedTuple):
    """What a model with adapters that are not merged into it knows of them.

    places: by the name of our linear layer the published names of its parts, None for a part without an adapter.
    fingerprint: :func:`base_fingerprint` of the model that they were added to; None: nothing is known of it.
    """

    config: AdapterConfig
    places: Mapping[str, tuple[str | None, ...]]
    fingerprint: str | None


def adapter_weights(folder: Path) -> Path:
    """The file of an adapter's matrices."""
    pooled, file = folder / POOLED_ADAPTER_WEIGHTS, folder / ADAPTER_WEIGHTS
    if is_there(pooled):
        return pooled
    if not is_there(file):
        held = shorten(sorted(entry.name for entry in folder.iterdir()))
        raise CheckpointError(
            f"{folder} has an {ADAPTER}, but no {ADAPTER_WEIGHTS}; it contains {held}. If the weights are a pickle, "
            "load the adapter with peft and save it again"
        )
    return file


def adapted(folder: Path, base: Mapping[str, TensorInfo], where: str) -> dict[str, TensorInfo]:
    """The tensors of the class that an adapter is for, made of those of another model, ``base``, which is ``where``."""
    config, file = read_adapter_config(folder), adapter_weights(folder)
    shape = read_any_config(folder / CONFIG)
    table, spec = any_table(shape), next(iter(any_specs(shape)), None)
    found = _of_class(base, table, spec)
    pairs, whole = _contents(file)
    places = {module: table.canonical(f"{module}.weight") for module in pairs}
    if missing := [module for module, name in places.items() if name not in found]:
        raise CheckpointError(
            f"{file} changes {shorten(missing)}, which the model in {where} does not have: the adapter is for a model "
            "of another shape or family"
        )
    for module, (down, up) in pairs.items():
        found[places[module]] = _sum(found[places[module]], module, down, up, config, where)
    found |= {table.canonical(name): info._replace(name=name) for name, info in whole.items()}
    advice = f"Name the right model as base_model_name_or_path in {folder / ADAPTER}"
    _check_fingerprint(file, base, table, where, advice)
    return _named(found, table, spec)


def with_head(folder: Path, base: Mapping[str, TensorInfo], where: str) -> dict[str, TensorInfo]:
    """The tensors of the model that a head makes of the encoder in ``base``, as :func:`adapted`."""
    shape, file = read_any_config(folder / CONFIG), folder / HEAD
    table, spec = any_table(shape), next(iter(any_specs(shape)), None)
    own = {table.canonical(name): info for name, info in read_header(file).items()}
    _check_fingerprint(file, base, table, where, "Copy a run with its encoder and its heads together, as one folder")
    return _named({**_of_class(base, table, spec), **own}, table, spec)


def _named(found: Mapping[str, TensorInfo], table: NameTable, spec: ClassSpec | None) -> dict[str, TensorInfo]:
    named = {_written(name, info, table, spec): info for name, info in found.items()}
    return {name: info._replace(name=name) for name, info in named.items()}


def _of_class(base: Mapping[str, TensorInfo], table: NameTable, spec: ClassSpec | None) -> dict[str, TensorInfo]:
    """The tensors by their names in the table, without those of the heads that a class does not have."""
    found = {table.canonical(name): info for name, info in base.items()}
    if spec is None:
        return found
    others = {part for part in table.parts if part not in spec.parts}
    return {name: info for name, info in found.items() if not (parts := table.parts_of(name)) or set(parts) - others}


def _contents(file: Path) -> tuple[dict[str, tuple[TensorInfo, TensorInfo]], dict[str, TensorInfo]]:
    """A and B of each changed layer, and the tensors that stand for themselves, by their names in the model."""
    tensors = read_header(file)
    own: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        if not name.startswith(PREFIX):
            raise CheckpointError(f"{file}: the name {name[:160]!r} does not begin with {PREFIX!r}: no adapter of peft")
        own[name.removeprefix(PREFIX)] = info
    if wrong := [name for name in own if "lora_" in name and not name.endswith((DOWN, UP))]:
        raise CheckpointError(
            f"{file} has {shorten(wrong)}; bertkit supports low-rank matrices for linear layers only. Merge the "
            "adapter into its model with peft (merge_and_unload, save_pretrained), and take that"
        )
    modules = dict.fromkeys(name.removesuffix(end) for name in own for end in (DOWN, UP) if name.endswith(end))
    if half := [module for module in modules if not {module + DOWN, module + UP} <= own.keys()]:
        raise CheckpointError(f"{file} has only one of lora_A and lora_B for {shorten(half)}; save the adapter again")
    pairs = {module: (own.pop(module + DOWN), own.pop(module + UP)) for module in modules}
    return pairs, own


def _sum(
    whole: TensorInfo, module: str, down: TensorInfo, up: TensorInfo, config: AdapterConfig, where: str
) -> TensorInfo:
    """A changed matrix: in float32, or float64 if it is; rounding to less would lose what was added."""
    rank, shapes = config.rank_of(module), (down.shape, up.shape)
    if len(whole.shape) != 2 or shapes != ((rank, whole.shape[1]), (whole.shape[0], rank)):
        raise CheckpointError(
            f"{down.file}: {module} has lora_A {list(down.shape)} and lora_B {list(up.shape)} of rank {rank}, but "
            f"{whole.name!r} in {where} is {list(whole.shape)}: the adapter is for a model of another shape"
        )
    for info in (whole, down, up):
        if info.dtype not in FLOAT_TYPES:
            raise CheckpointError(f"{info.file}: {info.name!r} has the type {info.dtype}, expected floats")
    total = LowRankSum(whole, up, down, config.scale_of(module))
    return down._replace(dtype="F64" if whole.dtype == "F64" else "F32", shape=whole.shape, sum=total, is_finite=False)


def _written(name: str, info: TensorInfo, table: NameTable, spec: ClassSpec | None) -> str:
    if spec is None:
        return info.name if info.sum is None else info.sum.whole.name
    is_prefixed = spec.base_prefix and not set(table.prefixed).isdisjoint(table.parts_of(name))
    return table.prefix + name if is_prefixed else name


def base_fingerprint(tensors: Mapping[str, TensorInfo], table: NameTable) -> str:
    """A hash of some values of each tensor outside heads; it does not depend on how a file writes names and numbers."""
    copies = dict(table.ties)
    kept = {table.canonical(name): info for name, info in tensors.items()}
    kept |= {original: kept[copy] for copy, original in copies.items() if copy in kept and original not in kept}
    digest = hashlib.sha256()
    for name in sorted(kept.keys() - copies.keys()):
        if {"encoder", "decoder"}.isdisjoint(table.parts_of(name)):
            continue
        digest.update(f"{name} {list(kept[name].shape)}".encode())
        digest.update(_samples(kept[name]).astype("<f4").tobytes())
    return digest.hexdigest()


def _samples(info: TensorInfo) -> npt.NDArray[np.float64]:
    if info.dtype not in FLOAT_TYPES:
        raise CheckpointError(f"{info.file}: {info.name!r} has the type {info.dtype}, expected floats")
    size = ITEM_BYTES[info.dtype]
    places = np.linspace(0, max(0, info.num_values - 1), min(_SAMPLES, info.num_values)).round().astype(int)
    content = np.empty(size * len(places), np.uint8)
    with open_regular(info.file) as stream:
        for number, place in enumerate(places):
            part = memoryview(content)[number * size : (number + 1) * size]  # type: ignore[arg-type]
            read_at(stream, part, info.start + int(place) * size, repr(info.name))
    return as_floats(content, info.dtype)


def _check_fingerprint(file: Path, base: Mapping[str, TensorInfo], table: NameTable, where: str, advice: str) -> None:
    expected = read_metadata(file).get(FINGERPRINT_KEY)
    if expected is None:  # of another trainer
        return
    if (found := base_fingerprint(base, table)) != expected:
        raise CheckpointError(
            f"{file} was trained on other weights than those in {where}: their fingerprint is {found[:12]}, and what "
            f"it holds needs {expected[:12]}. {advice}"
        )
