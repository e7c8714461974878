"""From a float matrix, and the inputs that it sees, to one in 8 bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bertkit.checkpoints.int8_folder import Bits
from bertkit.model.kernels.byte_linear import WEIGHT_STEPS, ByteEmbedding, ByteLinear
from bertkit.model.kernels.linear import Linear
from bertkit.system.fork_locks import ForkSafeLock

#: Inputs that are rounded before their errors are handed on to all that come after them, in one product.
BLOCK = 128


class Inputs:
    """What is known of the inputs of a matrix: mean, covariance, largest absolute values; 8 bytes a pair of inputs."""

    def __init__(self, width: int) -> None:
        self.largest = torch.zeros(width)
        self._count = 0
        self._sums = torch.zeros(width, dtype=torch.float64)
        self._products = torch.zeros(width, width, dtype=torch.float64)
        self._lock = ForkSafeLock()

    def see(self, x_TK: Tensor) -> None:
        """Take in T more inputs; from any thread."""
        largest, sums, products = x_TK.abs().amax(dim=0), x_TK.sum(dim=0), x_TK.T @ x_TK
        with self._lock:
            self.largest = torch.maximum(self.largest, largest)
            self._count += len(x_TK)
            self._sums += sums
            self._products += products

    @property
    def mean(self) -> Tensor:
        return self._sums / self._count

    @property
    def covariance(self) -> Tensor:
        return self._products / self._count - self.mean.outer(self.mean)


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a matrix is rounded.

    apart: how many of the largest inputs stay in float32; of a narrow matrix half of its inputs at most.
    smoothing: 0, or how much of the inputs' unevenness is moved into the weights (alpha of SmoothQuant).
    """

    apart: int = 8
    smoothing: float = 0.5
    bits: Bits = 8


def byte_linear(linear: Linear, inputs: Inputs, scheme: Scheme, least: float | None = None) -> ByteLinear:
    """``linear`` in 8 bits. ``least``: a value that no input is below, where most of them are above 0."""
    weight, bias = linear.weight.detach().double(), linear.bias.detach().double()
    outputs, width = weight.shape
    factors = torch.ones(width, dtype=torch.float64)
    if scheme.smoothing:
        columns = weight.abs().amax(dim=0).clamp_min(1e-8)
        factors = columns ** (1 - scheme.smoothing) / inputs.largest.double().clamp_min(1e-8) ** scheme.smoothing
        factors /= factors.log().mean().exp()
    apart = (inputs.largest * factors).topk(min(scheme.apart, width // 2)).indices.sort().values
    rest = torch.ones(width, dtype=torch.bool).index_fill(0, apart, False)
    smoothed = weight[:, rest] / factors[rest]
    covariance = inputs.covariance[rest][:, rest] * factors[rest].outer(factors[rest])
    scale, whole = rounded_weights(smoothed, covariance, scheme.bits)
    # The bias makes up for what rounding changes at the mean input.
    bias += (smoothed - whole * scale[:, None]) @ (inputs.mean * factors)[rest]
    made = ByteLinear(width, outputs, len(apart), one_sided=least is not None)
    made.apart, made.apart_weight = apart, weight[:, apart].T.float().contiguous()
    made.smooth = torch.where(rest, factors, 0.0).float()
    made.scale = scale.float()
    made.weight[:, rest] = whole.to(torch.int8)
    if least is not None:
        made.shift = made.smooth * -least
        bias -= (made.weight.double() * scale[:, None]) @ made.shift.double()
    made.bias = bias.float()
    return made


def rounded_weights(weight_NK: Tensor, covariance_KK: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """Scale ``(N,)`` and whole numbers ``(N, K)`` of a matrix whose inputs have this covariance.

    Weights are rounded input by input, and those not yet rounded are changed so that they make up for the error as far
    as they can: what counts is the error of the outputs (GPTQ: Frantar et al. 2023).
    """
    steps = WEIGHT_STEPS[bits]
    scale = weight_NK.abs().amax(dim=1).clamp_min(1e-12) / steps
    size = len(covariance_KK)
    damping = 0.01 * covariance_KK.diagonal().mean().clamp_min(1e-12)
    lower = torch.linalg.cholesky(covariance_KK + damping * torch.eye(size, dtype=covariance_KK.dtype))
    upper = torch.linalg.cholesky(torch.cholesky_inverse(lower), upper=True)
    left, whole = weight_NK.clone(), torch.zeros_like(weight_NK)
    for start in range(0, size, BLOCK):
        block = slice(start, min(start + BLOCK, size))
        errors = torch.zeros_like(left[:, block])
        for column in range(block.start, block.stop):
            whole[:, column] = (left[:, column] / scale).round().clamp(-steps, steps)
            error = (left[:, column] - whole[:, column] * scale) / upper[column, column]
            left[:, column : block.stop] -= error.outer(upper[column, column : block.stop])
            errors[:, column - start] = error
        left[:, block.stop :] -= errors @ upper[block, block.stop :]
    return scale, whole


def byte_embedding(table_VD: Tensor) -> ByteEmbedding:
    """A table in 8 bits, with a scale for each row and each column, because a few columns of BERT's are far larger."""
    table = table_VD.detach().float()
    made = ByteEmbedding(*table.shape)
    made.column_scale = table.square().mean(dim=0).sqrt().clamp_min(1e-12)
    even = table / made.column_scale
    made.scale = even.abs().amax(dim=1).clamp_min(1e-12) / 127
    made.weight = (even / made.scale[:, None]).round().to(torch.int8)
    return made
