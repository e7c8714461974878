"""``torch.compile`` for the part of an encoder layer whose shapes depend only on the number of tokens.

Attention is left out: it is one kernel on a GPU, and elsewhere depends on every sequence length, so that each packed
batch would be compiled again. The rest (dropout, residual, LayerNorm, feed-forward) is one graph for all layers and any
number of tokens. On a CPU it gains nothing, see ``docs/decisions/0043-compile.md``; when a GPU compiles by itself, see
``docs/decisions/0322-training-on-a-gpu.md``.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from bertkit.config.number_formats import Compile, Precision
from bertkit.errors import ConfigError
from bertkit.model.encoder import EncoderLayer
from bertkit.training.trainer.precision import has_varlen

_PART = EncoderLayer.after_attention.__name__
#: Optimizer steps, or seconds, of a run that is long enough to gain what compiling costs: about a minute.
WORTH_STEPS, WORTH_SECONDS = 5_000, 900.0


def will_compile(
    asked: Compile,
    device: torch.device,
    precision: Precision,
    num_steps: int,
    max_seconds: float | None = None,
    *,
    fits: bool = True,
) -> bool:
    """Whether a run of so many steps, or seconds, compiles; ``auto``: if it ``fits``, long runs in 16 bits on a GPU."""
    if asked != "auto":
        return asked == "on"
    long = num_steps >= WORTH_STEPS and (max_seconds is None or max_seconds >= WORTH_SECONDS)
    return fits and long and has_varlen(precision, device) and importlib.util.find_spec("triton") is not None


@contextmanager
def compiled(model: nn.Module, *, enabled: bool, backend: str | Callable[..., Any] = "inductor") -> Iterator[None]:
    """Inside the block the encoder layers of ``model`` run compiled code in training; afterwards they are unchanged.

    Evaluation is not compiled: its weights may be packed, which the compiler cannot read.
    """
    layers = [module for module in model.modules() if enabled and isinstance(module, EncoderLayer)]
    for layer in layers:
        plain = getattr(layer, _PART)
        setattr(layer, _PART, partial(_run, layer, torch.compile(plain, dynamic=True, backend=backend), plain))
    try:
        yield
    finally:
        for layer in layers:
            delattr(layer, _PART)  # uncovers the method of the class


def _run(layer: EncoderLayer, fast: Callable[..., Any], plain: Callable[..., Any], *inputs: Any) -> Any:
    return (fast if layer.training else plain)(*inputs)


def check_compiling(device: torch.device, *, sharded: bool = False) -> None:
    """Refuse what ``torch.compile`` cannot do, such as sharded weights, before it fails in the middle of a step."""
    if sharded:
        raise ConfigError("compile does not work on sharded weights; use mode ddp, or leave compile out")
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise ConfigError("compile needs the package triton on a GPU: pip install triton, or leave compile out")
        if torch.cuda.get_device_capability(device) < (7, 0):
            raise ConfigError(
                f"compile needs a GPU of compute capability 7.0 or newer, {torch.cuda.get_device_name(device)} is older"
            )
        return
    from torch._inductor import cpp_builder, exc

    try:
        cpp_builder.get_cpp_compiler()
    except (exc.InvalidCxxCompiler, RuntimeError) as error:
        raise ConfigError(
            "compile needs a C++ compiler, but none was found: install g++ or clang, name one in the environment "
            "variable CXX, or leave compile out"
        ) from error
