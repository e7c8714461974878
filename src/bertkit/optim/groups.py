"""How the parameters of a model are grouped for an optimizer: decay, rate, and which of them are hidden matrices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from bertkit.errors import ConfigError

_LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")
_FUSED_QKV = re.compile(r"(?:^|\.)qkv\.(?:weight|bias)$")


def parameter_groups(
    model: nn.Module, *, weight_decay: float = 0.01, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """Group the trainable parameters by how the optimizer must treat them.

    Biases and LayerNorm weights are not decayed (every parameter with fewer than two axes; appendix A.2 of the paper
    decays "weights"). Frozen parameters (``requires_grad=False``) are in no group, so they never change.

    Args:
        model: anything with named parameters.
        weight_decay: decoupled decay of the other parameters.
        layer_decay: factor from one layer to the layer below (Sun et al. 2019, 0.95): the head has factor 1, the top
            layer ``layer_decay``, the embeddings ``layer_decay ** (L + 1)``. None: the same rate everywhere.

    Returns:
        Groups with ``params``, ``names``, ``weight_decay`` and ``lr_scale``; each trainable parameter once.

    Raises:
        ConfigError: the model has no trainable parameter.
    """
    depth = 1 + max(
        (int(found[1]) for name, _ in model.named_parameters() if (found := _LAYER.search(name))), default=-1
    )
    groups: dict[tuple[float, float], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = weight_decay if parameter.ndim >= 2 else 0.0
        scale = 1.0 if layer_decay is None else layer_decay ** _distance_from_head(name, depth)
        group = groups.setdefault((decay, scale), {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(parameter)
        group["names"].append(name)
    if not groups:
        raise ConfigError("the model has no trainable parameter: all have requires_grad=False")
    return list(groups.values())


def _distance_from_head(name: str, depth: int) -> int:
    """Layers between a parameter and the task head: 0 for the head and the pooler, 1 for the top layer."""
    if found := _LAYER.search(name):
        return depth - int(found[1])
    return depth + 1 if re.search(r"(?:^|\.)embeddings\.", name) else 0


def with_rates(groups: Iterable[dict[str, Any]], learning_rate: float) -> list[dict[str, Any]]:
    """Copies of ``groups`` with ``lr``, the peak rate times the group's ``lr_scale``."""
    return [{**group, "lr": learning_rate * group.get("lr_scale", 1.0)} for group in groups]


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the rate of every group, its ``lr_scale`` applied."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_scale", 1.0)


def num_parts(name: str) -> int:
    """Number of the paper's weights in a parameter: 3 where query, key and value share one tensor, else 1."""
    return 3 if _FUSED_QKV.search(name) else 1


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Is it a weight matrix of an encoder layer? Embeddings, biases, norms, pooler and heads are not."""
    return parameter.ndim == 2 and _LAYER.search(name) is not None
