"""A model seen otherwise: in eval mode, or with other modules in some places, over the same parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import nn

from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder

ModuleT = TypeVar("ModuleT", bound=nn.Module)
#: Equal to another one as long as a model has not changed.
Stamp = tuple[object, ...]


def eval_view(model: ModuleT) -> ModuleT:
    """``model`` if it is in eval mode; otherwise a second tree of modules in eval mode over the same parameters.

    The mode of a module is an attribute that all threads see, so switching it for the time of a computation would put
    dropout into, or take it out of, whatever another thread computes meanwhile.
    """
    return module_view(model, lambda module: None) if model.training else model


def module_view(model: ModuleT, replacement: Callable[[nn.Module], nn.Module | None]) -> ModuleT:
    """A second tree of modules in eval mode over the same parameters, some of them replaced by others."""
    seen: dict[nn.Module, nn.Module] = {}

    def view(module: nn.Module) -> nn.Module:
        if module not in seen:
            other = replacement(module)
            seen[module] = twin = copy.copy(module) if other is None else other
            twin.training = False
            if other is None:
                children = module._modules.items()
                twin._modules = {name: child if child is None else view(child) for name, child in children}
        return seen[module]

    found = view(model)
    assert isinstance(found, type(model))
    return found


def stamp_of(model: nn.Module) -> Stamp:
    """Changes with the parts of the model and its encoder's weights, unless they are changed through ``.data``."""
    encoder = [part for part in model.modules() if isinstance(part, Encoder | Embeddings)]
    weights = [(p.data_ptr(), 0 if p.is_inference() else p._version) for part in encoder for p in part.parameters()]
    parts = [id(part) for child in model.children() for part in (child, *child.children())]
    return (*weights, *parts, model.training)
