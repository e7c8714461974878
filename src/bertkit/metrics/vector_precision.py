"""Vectors of texts in fewer bits, and what that costs.

The numbers are those of ``sentence_transformers.util.quantize_embeddings``: a whole number from the least to the
largest value that was seen of each place of a vector, or one bit for its sign. Letters of the array shapes: N vectors,
D numbers of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from bertkit.config.sentence_config import Similarity
from bertkit.errors import InputError, did_you_mean
from bertkit.metrics.scores import spearman
from bertkit.metrics.vector_similarity import similarities
from bertkit.ragged import Floats

#: ``binary`` and ``ubinary`` hold eight numbers in a byte, first bit first.
VectorPrecision = Literal["float32", "int8", "uint8", "binary", "ubinary"]
VECTOR_PRECISIONS: tuple[VectorPrecision, ...] = get_args(VectorPrecision)
Bytes = npt.NDArray[np.int8] | npt.NDArray[np.uint8]

#: Steps between the least and the largest value.
_STEPS = 255
#: Vectors that are compared with each other at most when a loss is measured: two million pairs.
_MAX_COMPARED = 2_000


def ranges_of(vectors_ND: Floats) -> Floats:
    """Least and largest value of each of the D numbers, of some hundred typical texts: float32 ``(2, D)``."""
    if vectors_ND.ndim != 2 or len(vectors_ND) < 2:
        raise InputError(f"ranges are taken from at least two vectors (N, D), got shape {vectors_ND.shape}")
    return np.stack([vectors_ND.min(axis=0), vectors_ND.max(axis=0)]).astype(np.float32)


def quantized(vectors: Floats, precision: VectorPrecision, calibration: Floats | None = None) -> Floats | Bytes:
    """Vectors ``(..., D)`` in fewer bits; ``calibration``: typical vectors ``(N, D)``, or their :func:`ranges_of`."""
    if precision not in VECTOR_PRECISIONS:
        raise InputError(
            f"vectors have no precision {precision!r}{did_you_mean(str(precision), VECTOR_PRECISIONS)}; there are "
            f"{', '.join(VECTOR_PRECISIONS)}"
        )
    if precision == "float32":
        return vectors
    if precision in ("binary", "ubinary"):
        bits: npt.NDArray[np.uint8] = np.packbits(vectors > 0, axis=-1)
        if precision == "ubinary":
            return bits
        less: npt.NDArray[np.int8] = (bits ^ np.uint8(0x80)).view(np.int8)  # 128 less
        return less
    start_D, step_D = _scale(vectors.shape[-1], precision, calibration)
    whole: Floats = np.clip(np.floor((vectors - start_D) / step_D), 0, _STEPS)
    return whole.astype(np.uint8) if precision == "uint8" else (whole - 128).astype(np.int8)


def restored(
    values: Bytes | Floats, precision: VectorPrecision, width: int, calibration: Floats | None = None
) -> Floats:
    """Floats ``(..., width)`` that such vectors stand for: the middle of each step, or 1 and -1 for a bit."""
    if precision == "float32":
        return values.astype(np.float32, copy=False)
    if precision in ("binary", "ubinary"):
        bits = values.view(np.uint8) ^ np.uint8(0x80 if precision == "binary" else 0)
        return np.unpackbits(bits, axis=-1, count=width).astype(np.float32) * 2 - 1
    start_D, step_D = _scale(width, precision, calibration)
    whole = values.astype(np.float32) + (128 if precision == "int8" else 0)
    return (start_D + (whole + 0.5) * step_D).astype(np.float32)


@dataclass(frozen=True, slots=True)
class VectorLoss:
    """What fewer bits cost, measured by comparing vectors with each other, before and after.

    spearman: rank correlation of the similarities of all pairs.
    neighbors: of each vector, how many of its ``nearest`` nearest stay among them, as a share.
    size: bytes of a vector, as a share of those of float32.
    """

    precision: VectorPrecision
    compared: int
    spearman: float
    nearest: int
    neighbors: float
    size: float

    def __str__(self) -> str:
        return (
            f"{self.precision} vectors have {self.size:.1%} of the size; of {self.compared:,} vectors the similarities "
            f"have a rank correlation of {self.spearman:.4f} with those in float32, and {self.neighbors:.1%} of the "
            f"{self.nearest} nearest stay the same"
        )


def precision_loss(
    vectors_ND: Floats,
    precision: VectorPrecision,
    calibration: Floats | None = None,
    *,
    nearest: int = 10,
    measure: Similarity = "cosine",
) -> VectorLoss:
    """What :func:`quantized` costs on these vectors; of more than 2,000 an even choice is compared.

    Without ``calibration`` the vectors themselves are taken, which makes the loss look smaller.
    """
    if vectors_ND.ndim != 2 or len(vectors_ND) < 3:
        raise InputError(f"a loss is measured on at least three vectors (N, D), got shape {vectors_ND.shape}")
    calibration = ranges_of(vectors_ND if calibration is None else calibration)
    chosen = vectors_ND[:: -(-len(vectors_ND) // _MAX_COMPARED)]
    bits = quantized(chosen, precision, calibration)
    before, after = (
        similarities(x, x, measure) for x in (chosen, restored(bits, precision, chosen.shape[1], calibration))
    )
    pairs = np.triu_indices(len(chosen), 1)
    nearest = min(nearest, len(chosen) - 2)
    kept = _nearest(before, nearest) & _nearest(after, nearest)
    return VectorLoss(
        precision=precision,
        compared=len(chosen),
        spearman=spearman(after[pairs], before[pairs]),
        nearest=nearest,
        neighbors=float(kept.sum() / (len(chosen) * nearest)),
        size=bits[0].nbytes / chosen[0].nbytes,
    )


def _nearest(similarities_NN: Floats, count: int) -> npt.NDArray[np.bool_]:
    """Which others are the nearest of each vector, ``(N, N)``; of equally near ones those that come first."""
    others = similarities_NN.copy()
    np.fill_diagonal(others, -np.inf)
    found = np.zeros(others.shape, np.bool_)
    np.put_along_axis(found, np.argsort(-others, axis=1, kind="stable")[:, :count], True, axis=1)
    return found


def _scale(width: int, precision: str, calibration: Floats | None) -> tuple[Floats, Floats]:
    """The least value of each number, and the size of a step."""
    if calibration is None:
        raise InputError(
            f"{precision} vectors need ranges: encode some hundred typical texts as float32 with the same settings, "
            "and give these vectors as calibration="
        )
    ranges = ranges_of(calibration)
    if ranges.shape[1] != width:
        raise InputError(f"the vectors have {width:,} numbers, those of calibration= have {ranges.shape[1]:,}")
    step_D = (ranges[1] - ranges[0]) / np.float32(_STEPS)
    return ranges[0], np.where(step_D == 0, np.float32(1), step_D)
