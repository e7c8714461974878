"""A smaller encoder out of some layers of another."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

from torch import nn

from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.encoder import Encoder

ModelT = TypeVar("ModelT", bound=ConfiguredModel)


def keep_layers(model: ModelT, layers: Sequence[int]) -> ModelT:
    """A copy of a model with these layers only, counted from 0, in this order; all else stays.

    Sanh et al. 2019, section 3 ("taking one layer out of two"). The copy shares no tensor with the model.
    """
    shape = shape_with(model.config, layers)
    made = copy.deepcopy(model)
    for module in list(made.modules()):
        if isinstance(module, ConfiguredModel):
            module.config = shape
        elif isinstance(module, Encoder):
            module.layer = nn.ModuleList(module.layer[number] for number in layers)
            module.layer_order = shape.layer_order
    made.load_report = None
    return made


def spread_layers(count: int, num_layers: int) -> tuple[int, ...]:
    """``count`` of ``num_layers`` layers, evenly from the first to the last: of 12 six are 0, 2, 4, 7, 9, 11."""
    if not 1 <= count <= num_layers:
        raise InputError(f"{count} of {num_layers} layers: keep at least 1 and at most all of them")
    steps = max(count - 1, 1)
    return tuple(round(place * (num_layers - 1) / steps) for place in range(count))


def shape_with(config: BertConfig, layers: Sequence[int]) -> BertConfig:
    """The shape of a model with these layers of another; errors as :func:`keep_layers`."""
    total = config.num_hidden_layers
    if not layers or len(set(layers)) < len(layers) or not all(0 <= number < total for number in layers):
        raise InputError(f"layers {list(layers)}: give different numbers from 0 to {total - 1}, at least one")
    if config.num_hidden_groups is not None:
        raise InputError(
            f"the layers of the {config.model_type} family share their weights, so none can be taken out; use a new "
            "shape, or a smaller checkpoint"
        )
    kinds = [config.layer_kinds[number] for number in layers]
    named = {} if config.layer_types is None else {"layer_types": kinds}
    shape = config.replace(num_hidden_layers=len(layers), **named)
    if list(shape.layer_kinds) != kinds or (config.family.pre_norm and layers[0] != 0):
        raise InputError(
            f"layers {list(layers)} do not fit their new places in the {config.model_type} family: the first must be "
            f"layer 0, and what they attend to ({', '.join(kinds)}) must be {', '.join(shape.layer_kinds)}"
        )
    return shape
