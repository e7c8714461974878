"""A pretended GPU, on which it is an error to make the host wait: the device ``meta``, or ``cuda`` without values."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


class WaitError(AssertionError):
    """The host would wait for the device."""


#: Operators whose result has a size or a value that the host must know.
WAITING = (
    "_local_scalar_dense",
    "nonzero",
    "is_nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
)


class NoWait(TorchDispatchMode):
    """An error for every operator that makes the host wait for the device, and for copies that do.

    ``seen``: the operators that computed there, by name.
    """

    def __init__(self, kind: str = "meta") -> None:
        super().__init__()
        self.kind = kind
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.name().removeprefix("aten::").partition(".")[0]
        flat, _ = torch.utils._pytree.tree_flatten((args, kwargs))
        given = [each for each in flat if isinstance(each, Tensor)]
        there = any(each.device.type == self.kind for each in given)
        if there:
            self.seen[name] += 1
        if there and name in WAITING:
            raise WaitError(name)
        if there and name.startswith("index") and any(each.dtype == torch.bool for each in given):
            raise WaitError(f"{name} by a mask")
        if name in ("_to_copy", "copy_"):
            places = [given[-1].device.type, torch.device(kwargs.get("device") or given[0].device).type]
            if len(set(places)) > 1 and (places[-1] == "cpu" or not kwargs.get("non_blocking", args[-1] is True)):
                raise WaitError(f"{name} between {places}")
        return function(*args, **kwargs)


def without_values(model: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """The model with parameters that have a GPU's device and no values; those that are one stay one."""
    made: dict[int, nn.Parameter] = {}
    with mode:
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is None:
                    continue
                if id(weight) not in made:
                    there = torch.empty(weight.shape, dtype=weight.dtype, device="cuda")
                    made[id(weight)] = nn.Parameter(there, requires_grad=weight.requires_grad)
                module._parameters[name] = made[id(weight)]
    return model


class NoNewTensor(TorchFunctionMode):
    """An error where a tensor is made on the device ``meta`` from values of the host, which is a copy that waits."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.tensor, torch.as_tensor) and str((kwargs or {}).get("device")) == "meta":
            raise WaitError(f"{function.__name__} on the device")
        return function(*args, **(kwargs or {}))
