"""LoRA adapters by the published formula, written down once more: what files of ``peft`` do to a plain model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertkit.model.adapters import adapted_layers

CONFIG, WEIGHTS, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."


@torch.no_grad()
def stir(model: nn.Module, seed: int = 0) -> None:
    """Random values for all that an adapted model trains: of new adapters B is zero, so that they do nothing."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / CONFIG).read_text())
    return found


def change_settings(folder: Path, **changes: Any) -> None:
    (folder / CONFIG).write_text(json.dumps({**settings(folder), **changes}))


def change_tensors(folder: Path, **changes: Tensor | None) -> None:
    """Replace tensors, or leave them out; the header keeps what else it says."""
    with safe_open(folder / WEIGHTS, "pt") as file:
        metadata = file.metadata()
    tensors = {**load_file(folder / WEIGHTS), **changes}
    save_file({name: each for name, each in tensors.items() if each is not None}, folder / WEIGHTS, metadata)


@torch.no_grad()
def apply_by_hand(peer: nn.Module, folder: Path) -> list[str]:
    """``W + B A * scale`` in a plain model of other software, and its own head; the names of the changed layers."""
    said, tensors = settings(folder), load_file(folder / WEIGHTS)
    scale = said["lora_alpha"] / (math.sqrt(said["r"]) if said["use_rslora"] else said["r"])
    changed = []
    for name, tensor in tensors.items():
        own = name.removeprefix(PREFIX)
        assert own != name, name
        if own.endswith(".lora_A.weight"):
            module = own.removesuffix(".lora_A.weight")
            layer = peer.get_submodule(module)
            assert isinstance(layer, nn.Linear), module
            layer.weight += scale * (tensors[f"{PREFIX}{module}.lora_B.weight"] @ tensor).to(layer.weight)
            changed.append(module)
        elif not own.endswith(".lora_B.weight"):
            peer.get_parameter(own).copy_(tensor)
    return changed


def by_hand(
    folder: Path, base: Path, *, modules: dict[str, tuple[int, int]], head: dict[str, Tensor], **said: Any
) -> None:
    """A folder as ``peft`` writes it: matrices for linear layers of these sizes, out and in, and the head's tensors."""
    folder.mkdir()
    values = {
        "auto_mapping": None, "base_model_name_or_path": str(base), "bias": "none", "fan_in_fan_out": False,
        "inference_mode": True, "init_lora_weights": True, "layers_to_transform": None, "loftq_config": {},
        "lora_alpha": 4, "lora_dropout": 0.1, "megatron_core": "megatron.core", "peft_type": "LORA",
        "modules_to_save": ["classifier", "score"], "peft_version": "0.21.2", "r": 2, "rank_pattern": {},
        "revision": None, "target_modules": ["query", "value"], "task_type": "SEQ_CLS", "use_dora": False,
        "use_rslora": False, **said,
    }  # fmt: skip
    (folder / CONFIG).write_text(json.dumps(values))
    generator = torch.Generator().manual_seed(0)
    tensors = {f"{PREFIX}{name}": tensor for name, tensor in head.items()}
    for name, (rows, columns) in modules.items():
        tensors[f"{PREFIX}{name}.lora_A.weight"] = torch.randn(values["r"], columns, generator=generator)
        tensors[f"{PREFIX}{name}.lora_B.weight"] = torch.randn(rows, values["r"], generator=generator)
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def grads(model: nn.Module) -> set[str]:
    """Names of the parameters that the last backward pass reached."""
    return {name for name, p in model.named_parameters() if p.grad is not None}


def trained(model: nn.Module) -> set[str]:
    """Names of the matrices of adapters."""
    return {f"{name}.{kind}" for name in adapted_layers(model) for kind in ("lora_A", "lora_B")}
