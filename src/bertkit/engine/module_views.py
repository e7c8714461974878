"""A model seen otherwise: in eval mode, or with other modules in some places, over the same parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sized
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
    found = _view(model, replacement, {})
    assert isinstance(found, type(model))
    return found


def own_view(model: ModuleT) -> ModuleT:
    """A second tree of modules in eval mode that may be changed; the parameters are the same, their tables are not.

    While torch traces a module, its tables hold tensors without values, which no other thread must compute with.
    """
    view = module_view(model, lambda module: None)
    for module in view.modules():
        module._parameters, module._buffers = dict(module._parameters), dict(module._buffers)
    return view


def _view(
    module: nn.Module, replacement: Callable[[nn.Module], nn.Module | None], seen: dict[nn.Module, nn.Module]
) -> nn.Module:
    """The twin of a module, the same wherever it occurs. (A nested function would hold itself, and all of ``seen``.)"""
    if module not in seen:
        other = replacement(module)
        seen[module] = twin = copy.copy(module) if other is None else other
        twin.training = False
        if other is None:
            children = module._modules.items()
            twin._modules = {
                name: child if child is None else _view(child, replacement, seen) for name, child in children
            }
    return seen[module]


class Watch:
    """Tells whether a model is still as it was: its modules, and all that its embeddings and its encoder compute with.

    Not noticed are changes through ``weight.data``, unless they put another tensor there, and those that an optimizer
    with ``fused=True`` makes to a model that is never put into training mode.
    """

    def __init__(self, model: nn.Module) -> None:
        self._children = [(part._modules, dict(part._modules)) for part in model.modules()]
        parts = computing_parts(model)
        self._hooks = [(hooks, len(hooks)) for part in parts for hooks in hooks_of(part)]
        self._settings = [
            (vars(part), name, value)
            for part in parts
            for name, value in vars(part).items()
            if name != "training" and not name.startswith("_")
        ]
        self._weights = [
            (held, name, weight.data_ptr(), _version(weight))
            for part in parts
            for held in (part._parameters, part._buffers)
            for name, weight in held.items()
            if weight is not None
        ]

    def unchanged(self) -> bool:
        """Whether it is."""
        return (
            all(now == before for now, before in self._children)
            and all(len(hooks) == number for hooks, number in self._hooks)
            and all(held.get(name) == value for held, name, value in self._settings)
            and all(_is_at(held.get(name), place, version) for held, name, place, version in self._weights)
        )


def computing_parts(model: nn.Module) -> list[nn.Module]:
    """The modules of a model's embeddings and of its encoder, each once."""
    owners = [part for part in model.modules() if isinstance(part, Encoder | Embeddings)]
    return list(dict.fromkeys(part for owner in owners for part in owner.modules()))


def hooks_of(module: nn.Module) -> tuple[Sized, Sized]:
    """What is called with a module, before it and after it."""
    return module._forward_pre_hooks, module._forward_hooks


def _is_at(weight: Tensor | None, place: int, version: int) -> bool:
    return weight is not None and weight.data_ptr() == place and _version(weight) == version


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
