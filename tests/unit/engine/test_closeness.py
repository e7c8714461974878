"""How near vectors are to others, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from bertkit.engine.closeness import NEAR_ENOUGH, Closeness, closeness


def test_figures_by_hand() -> None:
    expected = np.array([[1.0, 0.0], [2.0, 0.1], [0.0, 1.0], [0.1, 3.0]], np.float32)
    assert closeness(expected * 5.0, expected) == Closeness(pytest.approx(1.0), pytest.approx(1.0), 1.0, 1.0)  # type: ignore[arg-type]
    found = expected.copy()
    found[0] = [0.0, -1.0]  # a right angle to what it was
    told = closeness(found, expected)
    assert told.cosine_mean == pytest.approx(0.75)
    assert told.cosine_p1 == pytest.approx(0.03)
    assert told.same_neighbour == 0.75  # all but that of the second one, which was the first
    assert str(told) == "cosine 0.75000 (1st percentile 0.03000), same nearest neighbour 75.0% (75.0% without ties)"
    assert NEAR_ENOUGH.as_limit() == "cosine 0.998 (1st percentile 0.995), same nearest neighbour 97%"


@pytest.mark.parametrize(("third", "near"), [(-0.201, 1.0), (-0.3, 0.75)])
def test_neighbours_that_tie(third: float, near: float) -> None:
    """The first vector's neighbour was the second and is the third, which was nearly as near, or (control) was not."""

    def at(angles: Sequence[float]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    told = closeness(at([-0.06, 0.2, third, 2.0]), at([0.0, 0.2, third, 2.0]))
    assert (told.near_neighbour, told.same_neighbour) == (near, 0.75)


def test_one_vector_and_a_vector_of_zeros() -> None:
    one = np.ones((1, 3), np.float32)
    assert closeness(one, one).within(Closeness(0.999999, 0.999999, 1.0))
    assert closeness(one * 0.0, one).cosine_mean == 0.0


@pytest.mark.parametrize("worse", [(0.99, 1.0, 1.0), (1.0, 0.9, 1.0), (1.0, 1.0, 0.9)])
def test_each_figure_must_reach_the_least(worse: tuple[float, float, float]) -> None:
    assert NEAR_ENOUGH.within(NEAR_ENOUGH)
    assert Closeness(1.0, 1.0, 1.0).within(NEAR_ENOUGH)
    assert not Closeness(*worse).within(NEAR_ENOUGH)
