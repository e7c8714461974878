"""A model seen otherwise: in eval mode, or with other modules in some places, over the same parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder

ModuleT = TypeVar("ModuleT", bound=nn.Module)


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


class Watch:
    """Tells whether a model is still as it was: its modules, and the weights of its embeddings and its encoder.

    A change through ``weight.data`` is not noticed, unless it puts another tensor there.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._training = model, model.training
        self._children = [(part._modules, dict(part._modules)) for part in model.modules()]
        read = [part for part in model.modules() if isinstance(part, Encoder | Embeddings)]
        owners = {id(owner): owner for part in read for owner in part.modules()}.values()
        self._weights = [
            (owner._parameters, name, weight.data_ptr(), _version(weight))
            for owner in owners
            for name, weight in owner._parameters.items()
            if weight is not None
        ]

    def unchanged(self) -> bool:
        """Whether it is."""
        return (
            self._model.training == self._training
            and all(now == before for now, before in self._children)
            and all(_is_at(held.get(name), place, version) for held, name, place, version in self._weights)
        )


def _is_at(weight: Tensor | None, place: int, version: int) -> bool:
    return weight is not None and weight.data_ptr() == place and _version(weight) == version


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
