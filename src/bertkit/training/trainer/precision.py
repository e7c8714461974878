"""Number formats of the forward and backward pass: fp32, bf16, fp16 (Micikevicius et al. 2018).

Weights, gradients and the optimizer's state stay fp32. On a GPU bf16 computes with copies of the weights
(:mod:`bertkit.training.trainer.half_weights`); elsewhere ``torch.autocast`` runs matrix products in the half format.
Normalization, softmax and losses are in fp32 or have fp32 sums.

fp16 has no numbers between 0 and 6e-8, so the loss is multiplied by a scale before the backward pass and the gradients
are divided by it. The scale follows ``torch.amp.GradScaler``: halved when a gradient overflows, and that step is
skipped; doubled after 2,000 steps in a row without overflow. The test is on the gradient norm of the whole step, which
the loop needs anyway and which is the same on every rank, also with sharded gradients.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from bertkit.config.number_formats import Precision
from bertkit.errors import ConfigError
from bertkit.model.kernels.products import linear
from bertkit.model.kernels.varlen_attention import HEAD_WIDTH_STEP, backend_for, varlen_capability
from bertkit.system.device import Device, find_device, runs_ahead
from bertkit.system.processor import find_processor
from bertkit.training.trainer.half_weights import half_weights
from bertkit.training.trainer.loop_options import Progression
from bertkit.training.trainer.parallel import SINGLE, Parallel

#: The type of the numbers in matrix products.
DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
#: The first compute capability of an NVIDIA GPU with products in TF32.
HAS_TF32 = (8, 0)
#: Steps without overflow after which the scale is doubled.
GROWTH_INTERVAL = 2000
#: Below this, the scale cannot be the reason for an overflow.
SMALLEST_SCALE = 2.0**-14
#: How many times as fast products in bf16 must be to be the default on a CPU.
WORTH_BF16 = 1.3
#: The first compute capability of an NVIDIA GPU with fast products in fp16.
FAST_FP16 = (7, 0)
#: Rows, inputs and outputs of the product that is timed, and how often.
_TIMED, _TIMES = (128, 768, 768), 20


def fastest_precision(device: Device) -> Precision:
    """The number format that training should use; None: the CPU.

    On a GPU bf16 where it has it, else fp16 if its products are faster in that (7.0, Volta), else fp32. On a CPU bf16
    where it is faster, else fp32.
    Instruction sets are no guide: of the processors with AVX-512 BF16 some multiply in bf16 twice as fast as in fp32,
    others half as fast. See ``docs/decisions/0150-training-on-a-cpu.md``.
    """
    found = find_device(device, "cpu")
    if found.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16"
        return "fp16" if torch.cuda.get_device_capability(found) >= FAST_FP16 else "fp32"
    on_cpu = found.type == "cpu"
    return "bf16" if on_cpu and find_processor().has_bf16 and bf16_speedup() >= WORTH_BF16 else "fp32"


def plain_precision(device: Device) -> Precision:
    """That of trainings which were not compared with fp32 in 16 bits: tf32 where a GPU has it, else fp32."""
    found = find_device(device, "cpu")
    return "tf32" if found.type == "cuda" and torch.cuda.get_device_capability(found) >= HAS_TF32 else "fp32"


@cache
def bf16_speedup() -> float:
    """How many times as fast as in fp32 this CPU multiplies in bf16: the best of short products in one thread."""
    rows, inputs, outputs = _TIMED
    x, weight = torch.ones(rows, inputs), torch.ones(outputs, inputs)

    def seconds(x: Tensor, weight: Tensor) -> float:
        start = time.perf_counter()
        linear(x, weight)
        return time.perf_counter() - start

    torch.get_num_threads()  # sets torch up in this thread, which would overrule a limit that was set before
    with torch.inference_mode(), threadpool_limits(1, user_api="openmp"):
        halves = x.bfloat16(), weight.bfloat16()
        pairs = [(seconds(x, weight), seconds(*halves)) for _ in range(_TIMES)]
    return min(full for full, _ in pairs) / min(half for _, half in pairs)


def has_copies(model: nn.Module, precision: Precision, device: torch.device, parallel: Parallel = SINGLE) -> bool:
    """Whether a model computes with copies of its weights, not by autocasting.

    fp16 is left to autocasting, which knows what overflows in it; so are sharded weights, whose copies torch makes, and
    models with parts that others wrote, which may compute with float32 numbers of their own.
    """
    if precision != "bf16" or not runs_ahead(device) or parallel.is_sharded:
        return False
    return all(type(module).__module__.partition(".")[0] in ("bertkit", "torch") for module in model.modules())


def contexts(
    model: nn.Module, precision: Precision, device: torch.device, *, copies: bool
) -> tuple[AbstractContextManager[object], AbstractContextManager[object]]:
    """For a forward pass and its backward pass, and for the forward pass alone; ``copies``: see :func:`has_copies`."""
    if copies:
        return half_weights(model, DTYPES[precision]), nullcontext()
    return nullcontext(), autocast(precision, device)


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """The context for a forward pass with the weights as they are."""
    if DTYPES[precision] == torch.float32:
        return torch.autocast(device.type, enabled=False)
    return torch.autocast(device.type, DTYPES[precision])


@contextmanager
def float32_products_in(precision: Precision) -> Iterator[None]:
    """Inside the block a GPU multiplies float32 numbers in TF32 if that is the format, else as they are."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def has_varlen(precision: Precision, device: torch.device) -> bool:
    """Whether attention in ``precision`` is that of :func:`bertkit.model.kernels.varlen_attention.attend_varlen`."""
    found = backend_for(varlen_capability(device), DTYPES[precision], HEAD_WIDTH_STEP)
    return found.name == "variable-length"


def check_precision(precision: Precision, device: torch.device) -> None:
    """Refuse (ConfigError) what the device cannot compute in."""
    if precision not in DTYPES:
        raise ConfigError(f"precision must be fp32, tf32, bf16 or fp16, got {precision!r}")
    if precision == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < HAS_TF32):
        raise ConfigError("precision tf32 is for NVIDIA GPUs of compute capability 8.0 and newer; use fp32")
    if precision == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        name = torch.cuda.get_device_name(device)
        raise ConfigError(f"{name} has no bf16 arithmetic; use precision fp16 or fp32")


def loss_scale(at: Progression, precision: Precision) -> float:
    """The factor of the next step's loss; 1 except for fp16."""
    return at.loss_scale if precision == "fp16" else 1.0


def overflowed(loss: float, grad_norm: float, precision: Precision, at: Progression) -> bool:
    """Whether fp16 skips a step: a finite loss with gradients that are not, and a scale that can be the reason."""
    lost = math.isfinite(loss) and not math.isfinite(grad_norm)
    return lost and precision == "fp16" and at.loss_scale > SMALLEST_SCALE


def update_loss_scale(at: Progression, precision: Precision, *, skipped: bool) -> None:
    """Halve or double the scale after a step, as ``torch.amp.GradScaler.update`` does."""
    if precision != "fp16":
        return
    if skipped:
        at.loss_scale /= 2
        at.steps_since_overflow = 0
        at.num_skipped += 1
        return
    at.steps_since_overflow += 1
    if at.steps_since_overflow == GROWTH_INTERVAL:
        at.loss_scale *= 2
        at.steps_since_overflow = 0


def unscale(parameters: list[nn.Parameter], scale: float) -> None:
    """Divide the gradients by ``scale``, a power of two, in place: exact except for numbers below 1e-38."""
    if scale != 1.0:
        torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], 1 / scale)
