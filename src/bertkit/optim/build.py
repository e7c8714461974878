"""Optimizers by name, for settings and recipes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import nn
from torch.optim import Optimizer

from bertkit.errors import ConfigError, did_you_mean
from bertkit.optim.adam import adamw, lamb
from bertkit.optim.groups import parameter_groups
from bertkit.optim.muon import muon

OptimizerName = Literal["adamw", "adam-weight-decay", "lamb", "muon"]

#: Each takes parameter groups and ``learning_rate=``. ``adam-weight-decay`` is the original's, without bias correction.
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": adamw,
    "adam-weight-decay": partial(adamw, bias_correction=False),
    "lamb": lamb,
    "muon": muon,
}


def make_optimizer(
    name: OptimizerName | str,
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float = 0.01,
    layer_decay: float | None = None,
) -> Optimizer:
    """The optimizer ``name`` of :data:`OPTIMIZERS` over the trainable parameters of ``model``.

    Args:
        name: key of :data:`OPTIMIZERS`.
        model: anything with named parameters.
        learning_rate: peak rate.
        weight_decay: see :func:`bertkit.optim.parameter_groups`.
        layer_decay: see :func:`bertkit.optim.parameter_groups`.

    Raises:
        ConfigError: an unknown name, a setting out of bounds, or a model without trainable parameters.
    """
    if name not in OPTIMIZERS:
        raise ConfigError(
            f"there is no optimizer {name!r}{did_you_mean(name, OPTIMIZERS)}; choose from {', '.join(OPTIMIZERS)}"
        )
    groups = parameter_groups(model, weight_decay=weight_decay, layer_decay=layer_decay)
    return OPTIMIZERS[name](groups, learning_rate=learning_rate)
