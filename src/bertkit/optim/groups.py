"""How the parameters of a model are grouped for an optimizer, and what bertkit's own optimizers share."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from bertkit.errors import ConfigError

#: A group of parameters in torch's form: ``params`` and settings; of :func:`parameter_groups` also ``names`` and
#: ``lr_scale``.
Group = dict[str, Any]

_LAYER = re.compile(r"(?:^|\.)encoder\.layer\.(\d+)\.")
#: Tables of words, positions and distances; the last stand in the encoder, beside the layers that share them.
_EMBEDDINGS = re.compile(r"(?:^|\.)(?:embeddings|positions)\.")
_CLASSIFIER = re.compile(r"(?:^|\.)(?:classifier|qa_outputs)\.(?:weight|bias)$")
_LAYER_OF_EITHER = re.compile(r"(?:^|\.)(?:en|de)coder\.layer\.\d+\.")
#: Tensors that query, key and value share, or the last two.
_FUSED = re.compile(r"(?:^|\.)(q?)kv\.(?:weight|bias)$")


def parameter_groups(
    model: nn.Module, *, weight_decay: float = 0.01, layer_decay: float | None = None, classifier_rate: float = 1.0
) -> list[Group]:
    """Group the trainable parameters by how the optimizer must treat them.

    Biases and LayerNorm weights are not decayed (every parameter with fewer than two axes; appendix A.2 of the paper
    decays "weights"). Frozen parameters are in no group, so they never change. ``layer_decay`` is the factor from one
    layer to the one below (Sun et al. 2019, 0.95): the head has factor 1, the top layer ``layer_decay``, the embeddings
    ``layer_decay ** (L + 1)``; ``classifier_rate`` is that of the last layer of each head, on top of it.
    """
    _check_decay(weight_decay)
    if layer_decay is not None and not 0 < layer_decay <= 1:
        raise ConfigError(f"layer_decay must be above 0 and at most 1, got {layer_decay}")
    depth = 1 + max(
        (int(found[1]) for name, _ in model.named_parameters() if (found := _LAYER.search(name))), default=-1
    )
    groups: dict[tuple[float, float], Group] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        decay = weight_decay if parameter.ndim >= 2 else 0.0
        if found := _LAYER.search(name):
            distance = depth - int(found[1])  # from the head and the pooler, which are at 0
        else:
            distance = depth + 1 if _EMBEDDINGS.search(name) else 0
        scale = 1.0 if layer_decay is None else layer_decay**distance
        scale *= classifier_rate if _CLASSIFIER.search(name) else 1.0
        group = groups.setdefault((decay, scale), {"params": [], "names": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(parameter)
        group["names"].append(name)
    if not groups:
        raise ConfigError("the model has no trainable parameter: all have requires_grad=False")
    return list(groups.values())


def with_rates(groups: Iterable[Group], learning_rate: float) -> list[Group]:
    """Copies of ``groups`` with ``lr``, the peak rate times the group's ``lr_scale``."""
    return [{**group, "lr": learning_rate * group.get("lr_scale", 1.0)} for group in groups]


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Set the rate of every group, its ``lr_scale`` applied."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group.get("lr_scale", 1.0)


def num_parts(name: str) -> int:
    """Number of the paper's weights in a parameter: 3 where query, key and value share one tensor, 2 without query."""
    fused = _FUSED.search(name)
    return 1 if fused is None else 2 + len(fused[1])


def is_hidden_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Is it a weight matrix of a layer? Embeddings, biases, norms, pooler and heads are not."""
    return parameter.ndim == 2 and _LAYER_OF_EITHER.search(name) is not None


def eager(method: Any) -> Any:
    """A method without torch's wrapper, which imports the compiler: a second and 70 MB of every process."""
    return getattr(method, "__wrapped__", method)


class EagerOptimizer(Optimizer):
    """torch's base class, with :func:`eager` methods."""

    add_param_group = eager(Optimizer.add_param_group)
    load_state_dict = eager(Optimizer.load_state_dict)
    state_dict = eager(Optimizer.state_dict)
    zero_grad = eager(Optimizer.zero_grad)


class GroupOptimizer(EagerOptimizer):
    """An optimizer that updates the parameters of a group together; all its state is tensors in ``self.state[p]``."""

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        **own: float,
    ) -> None:
        check_adam_settings(lr, betas, eps, weight_decay)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, **own})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient. ``closure`` recomputes the loss first, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            names = group.get("names") or [""] * len(group["params"])
            active = [(p, name) for p, name in zip(group["params"], names, strict=True) if p.grad is not None]
            if active:
                params, grads = [p for p, _ in active], [p.grad for p, _ in active]
                self._update(params, grads, [num_parts(name) for _, name in active], group)
        return loss

    @abstractmethod
    def _update(self, params: list[Tensor], grads: list[Tensor], parts: list[int], group: Group) -> None:
        """Change ``params`` in place, not ``grads``; ``parts`` of each along axis 0, see :func:`num_parts`."""

    def _running(self, key: str, params: list[Tensor]) -> list[Tensor]:
        """The state ``key`` of each parameter, with its shape; initialized to zeros."""
        for p in params:
            if key not in self.state[p]:
                self.state[p][key] = torch.zeros_like(p)
        return [self.state[p][key] for p in params]

    def _adam_directions(
        self, params: list[Tensor], grads: list[Tensor], betas: tuple[float, float], eps: float
    ) -> list[Tensor]:
        """New tensors: bias-corrected ``m / (sqrt(v) + eps)`` after adding ``grads`` (Kingma & Ba 2015, alg. 1)."""
        means, squares = self._running("exp_avg", params), self._running("exp_avg_sq", params)
        for p in params:
            # On the CPU, so that reading it does not synchronize with the device.
            self.state[p]["step"] = self.state[p].get("step", torch.zeros((), device="cpu")) + 1
        counts = [self.state[p]["step"].item() for p in params]
        b1, b2 = betas
        torch._foreach_lerp_(means, grads, 1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, value=1 - b2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, [math.sqrt(1 - b2**count) for count in counts])
        torch._foreach_add_(roots, eps)
        directions = torch._foreach_div(means, roots)
        torch._foreach_div_(directions, [1 - b1**count for count in counts])
        return list(directions)


def split_parts(tensors: list[Tensor], parts: list[int]) -> list[Tensor]:
    """Views of each tensor's equal parts along axis 0, in order."""
    return [part for tensor, count in zip(tensors, parts, strict=True) for part in tensor.chunk(count)]


def check_adam_settings(learning_rate: float, betas: tuple[float, float], eps: float, decay: float = 0.0) -> None:
    """Refuse settings with which the update is undefined or ascends; the ConfigError names the setting."""
    if not (math.isfinite(learning_rate) and learning_rate >= 0):
        raise ConfigError(f"learning_rate must be a finite number of at least 0, got {learning_rate}")
    if not all(0 <= beta < 1 for beta in betas):
        raise ConfigError(f"betas must both be from 0 to below 1, got {betas}")
    if not eps > 0:
        raise ConfigError(f"eps must be above 0, got {eps}: a weight without a gradient would become NaN")
    _check_decay(decay)


def _check_decay(weight_decay: float) -> None:
    if not (math.isfinite(weight_decay) and weight_decay >= 0):
        raise ConfigError(f"weight_decay must be a finite number of at least 0, got {weight_decay}")
