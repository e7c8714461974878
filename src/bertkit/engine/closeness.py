"""How near the answers of faster arithmetic are to those of float32, and when that is near enough. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertkit.ragged import Floats


@dataclass(frozen=True, slots=True)
class Closeness:
    """Of B vectors to those of float32.

    cosine_mean, cosine_p1: mean and first percentile of their cosines.
    same_neighbour: share of the vectors whose nearest other one is the same in both.
    """

    cosine_mean: float
    cosine_p1: float
    same_neighbour: float

    def within(self, least: Closeness) -> bool:
        """Whether each figure is at least that of ``least``."""
        return (
            self.cosine_mean >= least.cosine_mean
            and self.cosine_p1 >= least.cosine_p1
            and self.same_neighbour >= least.same_neighbour
        )

    def __str__(self) -> str:
        return (
            f"cosine {self.cosine_mean:.5f} (1st percentile {self.cosine_p1:.5f}), same nearest neighbour "
            f"{self.same_neighbour:.1%}"
        )


#: What int8 and bf16 must reach to be used.
NEAR_ENOUGH = Closeness(cosine_mean=0.998, cosine_p1=0.995, same_neighbour=0.97)


def closeness(found_BD: Floats, expected_BD: Floats) -> Closeness:
    """How near ``found_BD`` is to ``expected_BD``, one vector a row; a single vector is its own neighbour."""
    found, expected = _unit(found_BD), _unit(expected_BD)
    cosines = (found * expected).sum(axis=1)
    same = _neighbours(found) == _neighbours(expected)
    return Closeness(float(cosines.mean()), float(np.percentile(cosines, 1)), float(same.mean()))


def _unit(x_BD: Floats) -> Floats:
    wide = x_BD.astype(np.float64)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-30)  # type: ignore[no-any-return]


def _neighbours(unit_BD: Floats) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    similar = unit_BD @ unit_BD.T
    np.fill_diagonal(similar, -np.inf)
    return similar.argmax(axis=1)  # type: ignore[no-any-return]
