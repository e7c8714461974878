"""Models whose matrices and tables are in 8 bits: read, written, and made of float ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.checkpoints.int8_folder import Quantization
from bertkit.checkpoints.save_folder import write_folder
from bertkit.checkpoints.weight_files import INT8_FACTS, INT8_WEIGHTS
from bertkit.model.configured_model import ConfiguredModel, no_weights
from bertkit.model.kernels.byte_linear import ByteEmbedding, ByteLinear
from bertkit.system.device import Device, find_device
from bertkit.weights.byte_weights import read_byte_weights


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
    text = json.dumps(asdict(facts), indent=2, allow_nan=False) + "\n"
    tensors = {name: x.contiguous() for name, x in model.state_dict().items()}
    write_folder(folder, config, tensors, INT8_WEIGHTS, beside={INT8_FACTS: text})


def load_int8(
    folder: Path, wanted: str, classes: Mapping[str, type[ConfiguredModel]], device: Device
) -> ConfiguredModel:
    """The model of a folder, in eval mode: of the class that was quantized or, if ``BertModel``, its encoder."""
    config, arrays, facts = read_byte_weights(folder, wanted)
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    known = classes[wanted]
    with no_weights():
        if wanted == "BertModel" and not any(name.startswith("pooler.") for name in state):
            model = known(config, add_pooling_layer=False)  # type: ignore[call-arg]
        else:
            model = known(config)
    _put_bytes(model, state)
    model.load_state_dict(state, assign=True)
    model.quantization = facts
    if wanted != "BertModel":
        encoder = model.bert
        assert isinstance(encoder, ConfiguredModel)
        kept = [name.removeprefix(f"{model.base_prefix}.") for name in facts.kept]
        encoder.quantization = replace(facts, model_class="BertModel", kept=kept)
    return model.eval().to(find_device(device, "cpu"))


def _put_bytes(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Modules in 8 bits where the file has such weights."""
    for name, weight in state.items():
        if weight.dtype != torch.int8 or weight.ndim != 2:
            continue
        place = name.removesuffix(".weight")
        parts: dict[str, Any] = {part: state.get(f"{place}.{part}") for part in ("apart", "column_scale", "shift")}
        with no_weights():
            if parts["column_scale"] is not None:
                made: nn.Module = ByteEmbedding(*weight.shape)
            else:
                num_apart = 0 if parts["apart"] is None else len(parts["apart"])
                outputs, inputs = weight.shape
                made = ByteLinear(inputs, outputs, num_apart, one_sided=parts["shift"] is not None)
        replace_module(model, place, made)
