"""How near vectors of texts are to each other. Letters of the array shapes: A, B vectors, D numbers of a vector."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bertkit.config.sentence_config import Similarity
from bertkit.errors import InputError
from bertkit.ragged import Floats

#: Below this length a vector is not scaled up: its direction is noise.
SHORTEST = 1e-12
#: Differences held at once for distances, in bytes.
_MAX_BYTES = 64 << 20


def unit_vectors(x: Floats) -> Floats:
    """The vectors ``(..., D)`` scaled to length 1."""
    scaled: Floats = x / np.maximum(np.sqrt((x * x).sum(axis=-1, keepdims=True)), SHORTEST)
    return scaled


def similarities(a_AD: npt.ArrayLike, b_BD: npt.ArrayLike, measure: Similarity = "cosine") -> Floats:
    """How near each vector is to each of another collection: float32 ``(A, B)``; distances are negative."""
    a, b = np.atleast_2d(_floats(a_AD)), np.atleast_2d(_floats(b_BD))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise InputError(f"vectors must have the shapes (A, D) and (B, D), got {a.shape} and {b.shape}")
    if measure in ("cosine", "dot"):
        return unit_vectors(a) @ unit_vectors(b).T if measure == "cosine" else a @ b.T
    rows = max(1, _MAX_BYTES // max(1, 4 * b.size))
    paired = _paired(measure)
    parts = [paired(a[start : start + rows, None], b[None]) for start in range(0, len(a), rows)]
    return np.concatenate(parts) if parts else np.zeros((0, len(b)), np.float32)


def paired_similarities(a_BD: npt.ArrayLike, b_BD: npt.ArrayLike, measure: Similarity = "cosine") -> Floats:
    """How near each vector is to the one at the same place: float32 ``(B,)``, or one number for two vectors."""
    a, b = _floats(a_BD), _floats(b_BD)
    if a.shape != b.shape or a.ndim not in (1, 2):
        raise InputError(f"both must be vectors of the same shape, (B, D) or (D,), got {a.shape} and {b.shape}")
    return _paired(measure)(a, b)


def _paired(measure: str) -> Callable[[Floats, Floats], Floats]:
    if measure not in _PAIRED:
        raise InputError(f"vectors are compared by {', '.join(_PAIRED)}, not by {measure!r}")
    return _PAIRED[measure]


_PAIRED: dict[str, Callable[[Floats, Floats], Floats]] = {
    "cosine": lambda a, b: (unit_vectors(a) * unit_vectors(b)).sum(axis=-1),
    "dot": lambda a, b: (a * b).sum(axis=-1),
    "euclidean": lambda a, b: -np.sqrt(np.square(a - b).sum(axis=-1)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=-1),
}


def _floats(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(
            f"vectors to compare must be floats, got {array.dtype}; vectors of fewer bits are turned into floats by "
            "bertkit.metrics.vector_precision.restored"
        )
    return array.astype(np.float32, copy=False)
