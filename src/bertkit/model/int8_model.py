"""Models whose matrices and tables are in 8 bits: read, written, and made of float ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bertkit.checkpoints.huggingface import INT8_WEIGHTS
from bertkit.checkpoints.int8_folder import FACTS, Quantization, read_quantization
from bertkit.checkpoints.safetensors_format import read_header
from bertkit.checkpoints.save_folder import write_folder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG
from bertkit.errors import CheckpointError, InputError, shorten
from bertkit.model.configured_model import ConfiguredModel, no_weights
from bertkit.model.kernels.byte_linear import WEIGHT_STEPS, ByteEmbedding, ByteLinear
from bertkit.system.device import Device, find_device
from bertkit.system.json_files import write_json


def has_bytes(model: nn.Module) -> bool:
    """Whether some of the model is in 8 bits."""
    return any(isinstance(module, ByteLinear | ByteEmbedding) for module in model.modules())


def replace_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put ``module`` in the place of the one with this name."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)


def save_int8(model: ConfiguredModel, folder: Path, facts: Quantization) -> None:
    """Write config, weights and ``quantization.json`` of a model in 8 bits; errors as :func:`write_folder`."""
    config = model.config.replace(architectures=[type(model).__name__])
    write_folder(folder, config, {name: x.contiguous() for name, x in model.state_dict().items()}, INT8_WEIGHTS)
    write_json(folder / FACTS, asdict(facts))


def load_int8(
    folder: Path, wanted: str, classes: Mapping[str, type[ConfiguredModel]], device: Device
) -> ConfiguredModel:
    """The model of a folder, in eval mode: of the class that was quantized or, if ``BertModel``, its encoder."""
    facts = read_quantization(folder)
    known = classes.get(facts.model_class)
    if known is None:
        raise CheckpointError(f"{folder / FACTS} names the class {facts.model_class!r}, which bertkit does not know")
    if wanted not in (facts.model_class, "BertModel"):
        raise InputError(
            f"{folder} is a {facts.model_class} in 8 bits and cannot be loaded as {wanted}, whose head it lacks: "
            "fine-tune the original model, then quantize the result"
        )
    state = _read(folder / INT8_WEIGHTS)
    config = BertConfig.from_json_file(folder / CONFIG)
    with no_weights():
        if facts.model_class == "BertModel" and not any(name.startswith("pooler.") for name in state):
            model = known(config, add_pooling_layer=False)  # type: ignore[call-arg]
        else:
            model = known(config)
    _put_bytes(model, state)
    expected, found = ({name: (x.shape, x.dtype) for name, x in each.items()} for each in (model.state_dict(), state))
    if expected != found:
        differing = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise CheckpointError(
            f"{folder / INT8_WEIGHTS} does not fit config.json at {shorten(differing)}; quantize again"
        )
    model.load_state_dict(state, assign=True)
    for name, part in model.named_modules():
        if isinstance(part, ByteLinear | ByteEmbedding) and (damage := _damage(part)):
            raise CheckpointError(f"{folder / INT8_WEIGHTS}: {name} {damage}; the file is damaged, quantize again")
    model.quantization = facts
    encoder = model if isinstance(model, classes["BertModel"]) else model.bert
    assert isinstance(encoder, ConfiguredModel)
    if encoder is not model:
        kept = [name.removeprefix(f"{model.base_prefix}.") for name in facts.kept]
        encoder.quantization = replace(facts, model_class="BertModel", kept=kept)
    made = encoder if wanted == "BertModel" else model
    return made.eval().to(find_device(device, "cpu"))


def _read(path: Path) -> dict[str, Tensor]:
    read_header(path)  # which compares it with its checksum
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    for name, x in state.items():
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise CheckpointError(f"{path}: {name} has values that are not finite; the file is damaged, quantize again")
    return state


def _damage(part: ByteLinear | ByteEmbedding) -> str | None:
    """What is wrong with the numbers of a module, if anything: ``quantize`` writes none of these."""
    scales = (part.scale,) if isinstance(part, ByteLinear) else (part.scale, part.column_scale)
    if any(bool((scale <= 0).any()) for scale in scales):
        return "has a scale that is not above 0"
    if part.weight.numel() and int(part.weight.min()) < -WEIGHT_STEPS[8]:
        return f"has weights below {-WEIGHT_STEPS[8]}"
    if isinstance(part, ByteLinear):
        if bool((part.smooth < 0).any()):
            return "has factors of inputs below 0"
        apart = part.apart.tolist()
        if apart != sorted(set(apart)) or (apart and not 0 <= apart[0] <= apart[-1] < part.in_features):
            return f"keeps inputs apart that are not numbers from 0 to {part.in_features - 1}, ascending"
    return None


def _put_bytes(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Modules in 8 bits where the file has such weights; what does not fit is left for the comparison of shapes."""
    for name, weight in state.items():
        if weight.dtype != torch.int8 or weight.ndim != 2:
            continue
        place = name.removesuffix(".weight")
        parts: dict[str, Any] = {part: state.get(f"{place}.{part}") for part in ("apart", "column_scale", "shift")}
        try:
            model.get_submodule(place)
        except AttributeError:
            continue
        with no_weights():
            if parts["column_scale"] is not None:
                made: nn.Module = ByteEmbedding(*weight.shape)
            else:
                num_apart = 0 if parts["apart"] is None else len(parts["apart"])
                outputs, inputs = weight.shape
                made = ByteLinear(inputs, outputs, num_apart, one_sided=parts["shift"] is not None)
        replace_module(model, place, made)
