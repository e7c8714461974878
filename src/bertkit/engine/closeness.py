"""How near the answers of faster arithmetic are to those of float32, and when that is near enough."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from bertkit.errors import ConfigError
from bertkit.ragged import Floats

#: A neighbour ties with the nearest one if its cosine in float32 is less than this below that of the nearest.
TIE = 0.001


@dataclass(frozen=True, slots=True)
class Closeness:
    """Of B vectors to those of float32.

    cosine_mean, cosine_p1: mean and first percentile of their cosines.
    near_neighbour: share of the vectors whose nearest other one is the nearest in float32 too, or ties with it there
        (:data:`TIE`). same_neighbour: the same share with ties not counted, which are frequent where a classifier has
        drawn a label's texts together.
    """

    cosine_mean: float
    cosine_p1: float
    near_neighbour: float
    same_neighbour: float = 0.0

    def within(self, least: Closeness) -> bool:
        """Whether each figure is at least that of ``least``."""
        return all(found >= wanted for found, wanted in zip(astuple(self), astuple(least), strict=True))

    def as_limit(self) -> str:
        """As what others must reach; without :attr:`same_neighbour`, which is only reported."""
        neighbour = f"same nearest neighbour {100 * self.near_neighbour:g}%"
        return f"cosine {self.cosine_mean:g} (1st percentile {self.cosine_p1:g}), {neighbour}"

    def cosines(self) -> str:
        """Without the neighbours."""
        return f"cosine {self.cosine_mean:.5f} (1st percentile {self.cosine_p1:.5f})"

    def __str__(self) -> str:
        neighbours = f"{self.near_neighbour:.1%} ({self.same_neighbour:.1%} without ties)"
        return f"{self.cosines()}, same nearest neighbour {neighbours}"


#: What int8 and bf16 must reach to be used.
NEAR_ENOUGH = Closeness(cosine_mean=0.998, cosine_p1=0.995, near_neighbour=0.97)


def closeness(found_BD: Floats, expected_BD: Floats) -> Closeness:
    """How near ``found_BD`` is to ``expected_BD``, one vector a row; a single vector is its own neighbour."""
    found, expected = _unit(found_BD), _unit(expected_BD)
    cosines = (found * expected).sum(axis=1)
    similar, nearest = expected @ expected.T, nearest_other(found @ found.T)
    right = nearest_other(similar)
    rows = np.arange(len(similar))
    lost = np.where(nearest == right, 0.0, similar[rows, right] - similar[rows, nearest])
    return Closeness(
        cosine_mean=float(cosines.mean()),
        cosine_p1=float(np.percentile(cosines, 1)),
        near_neighbour=float((lost < TIE).mean()),
        same_neighbour=float((nearest == right).mean()),
    )


def check_precision(found_BD: Floats, expected_BD: Floats, precision: str) -> None:
    """Refuse (ConfigError) faster arithmetic for a model whose text vectors it changes."""
    found = closeness(found_BD, expected_BD)
    if found.cosine_mean < NEAR_ENOUGH.cosine_mean or found.cosine_p1 < NEAR_ENOUGH.cosine_p1:
        raise ConfigError(
            f"precision {precision!r} changes this model's answers too much: {found}, where cosines of "
            f"{NEAR_ENOUGH.cosine_mean} and {NEAR_ENOUGH.cosine_p1} are the least; use 'auto'"
        )


def _unit(x_BD: Floats) -> Floats:
    wide = x_BD.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-30)  # type: ignore[no-any-return]


def nearest_other(similar_BB: Floats) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Which other row is nearest to each, of the products ``(B, B)`` of vectors of length 1."""
    others = similar_BB - 9.0 * np.eye(len(similar_BB))
    return others.argmax(axis=1)  # type: ignore[no-any-return]
