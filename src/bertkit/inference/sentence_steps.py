"""From pooled token vectors to vectors of texts, in numpy: what follows the pooling of a sentence model.

:class:`bertkit.model.sentence_model.SentenceHead` is the same for training.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bertkit.checkpoints.sentence_folder import SentenceParts, StepWeights
from bertkit.config.sentence_config import Activation, Dense, LayerNorm, Normalize, Step
from bertkit.errors import WidthError
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats

#: The epsilon of ``torch.nn.LayerNorm``.
_EPSILON = 1e-5
_erf = np.frompyfunc(math.erf, 1, 1)
_ACTIVATIONS: dict[Activation, Callable[[Floats], Floats]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "GELU": lambda x: x * 0.5 * (1 + _erf(x * math.sqrt(0.5)).astype(np.float32)),
    "SiLU": lambda x: x * _sigmoid(x),
    "Sigmoid": lambda x: _sigmoid(x),
}


#: Multiplications of a product up to which OpenBLAS starts no threads (``interface/gemm.c``), and rows of a piece.
_ONE_THREAD, _ROWS = 65_536 * 4, 16


def sentence_vectors(
    pooled_BD: Floats, parts: SentenceParts, *, normalize: bool | None = None, dimensions: int | None = None
) -> Floats:
    """Vectors of texts ``(B, width)``, float32, from what the back-end pooled.

    normalize: True scales the result to length 1; False leaves out a normalization at the end of the steps.
    dimensions: keep only so many numbers of a vector; None: as the model says. As in sentence-transformers they are cut
        after the steps, and before ``normalize``.
    """
    x = pooled_BD
    steps = list(zip(parts.config.steps, parts.weights, strict=True))
    if normalize is False and steps and isinstance(steps[-1][0], Normalize):
        del steps[-1]
    for step, weights in steps:
        x = _after(x, step, weights)
    cut = parts.config.dimensions if dimensions is None else dimensions
    if cut is not None and not 1 <= cut <= x.shape[1]:
        width = x.shape[1]
        raise WidthError(f"dimensions must be from 1 to {width}, the numbers of a vector, got {cut}", width)
    x = x[:, :cut]
    return unit_vectors(x) if normalize else x


def _product(x_BD: Floats, weight_WD: Floats) -> Floats:
    """``x @ weight.T``, in pieces that numpy's OpenBLAS computes in the calling thread.

    A larger product it shares with threads of its own, which wait for cores that the engine's threads hold: some
    milliseconds for each pack of rows, which made an encoder of two layers with a linear layer 1.6 times as slow.
    """
    (rows, depth), width = x_BD.shape, len(weight_WD)
    columns = max(1, _ONE_THREAD // (_ROWS * depth))
    found: Floats = np.empty((rows, width), np.float32)
    for row in range(0, rows, _ROWS):
        for column in range(0, width, columns):
            part, weights = x_BD[row : row + _ROWS], weight_WD[column : column + columns]
            np.matmul(part, weights.T, out=found[row : row + _ROWS, column : column + columns])
    return found


def _after(x_BD: Floats, step: Step, weights: StepWeights) -> Floats:
    match step:
        case Normalize():
            return unit_vectors(x_BD)
        case LayerNorm():
            centered = x_BD - x_BD.mean(axis=1, keepdims=True)
            scale = np.sqrt(np.square(centered).mean(axis=1, keepdims=True) + np.float32(_EPSILON))
            normed: Floats = centered / scale * weights["norm.weight"] + weights["norm.bias"]
            return normed
        case Dense():
            out: Floats = _product(x_BD, weights["linear.weight"])
            out = _ACTIVATIONS[step.activation](out + weights["linear.bias"] if step.bias else out)
            if step.residual:
                out = out + (_product(x_BD, weights["residual.weight"]) if "residual.weight" in weights else x_BD)
            return out


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 0.5 + 0.5 * np.tanh(0.5 * x)  # cannot overflow
    return found
