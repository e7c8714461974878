"""The weights of a small encoder as ``native/embed.c`` reads them, and what it makes of token ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from native_helpers import Array, encode, normalized, query_factor, random_weights, shape_of

SHAPE = shape_of(48, 4, 100, order=(0, 1))


def embeddings() -> tuple[Array, Array, Array]:
    """The table of words, and the normalization of its rows."""
    chance = np.random.default_rng(4)
    table = chance.normal(size=(30, 48)).astype(np.float32)
    scale, shift = (np.ones(48, np.float32) + chance.normal(0, 0.1, 48).astype(np.float32) for _ in range(2))
    return table, scale, shift


def write_weights(path: Path) -> None:
    table, scale, shift = embeddings()
    parts = [np.array([2, 48, 4, 100, len(table)], np.int32).tobytes()]
    for layer in random_weights(SHAPE):
        for which, (weight, bias) in enumerate(layer.matrices):
            factor = query_factor(SHAPE) if which == 0 else np.ones(len(bias), np.float32)
            parts += [(weight * factor[:, None]).astype(np.float32).tobytes(), (bias * factor).tobytes()]
            if which % 2:
                parts += [part.astype(np.float32).tobytes() for part in layer.norms[which // 2]]
    path.write_bytes(b"".join([*parts, scale.tobytes(), shift.tobytes(), table.tobytes()]))


def expected_vector(ids: Sequence[int]) -> Array:
    """The mean of the top layer over the ids, in float64."""
    table, scale, shift = embeddings()
    rows = normalized(table[list(ids)].astype(np.float64), (scale, shift), 1e-12)
    found: Array = encode(SHAPE, random_weights(SHAPE), rows, np.array([0, len(ids)])).mean(axis=0)
    return found
