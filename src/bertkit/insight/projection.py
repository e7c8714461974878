"""Vectors as points of a plane: PCA, t-SNE, UMAP; and how much of the vectors is left there.

Letters of the array shapes: N vectors, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from bertkit.errors import ConfigError, InputError, did_you_mean, require
from bertkit.metrics.map_quality import trustworthiness
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats

Doubles = npt.NDArray[np.float64]
Method = Literal["pca", "tsne", "umap"]
#: The methods' names in pictures.
NAMES: dict[Method, str] = {"pca": "PC", "tsne": "t-SNE", "umap": "UMAP"}
#: The fewest points that a method can place.
FEWEST: dict[Method, int] = {"pca": 3, "tsne": 4, "umap": 4}
#: What t-SNE and UMAP take if nothing is said, of many points.
PERPLEXITY, UMAP_NEIGHBOURS = 30.0, 15
#: Principal components whose share of the variance is told; neighbours of trustworthiness, as in scikit-learn.
COMPONENTS, TRUSTED = 10, 5


@dataclass(frozen=True, slots=True)
class Projection:
    """N vectors in a plane.

    places: ``(N, 2)``. variance: the shares of the first principal components of the vectors.
    trustworthiness: with that number of neighbours, see :func:`bertkit.metrics.map_quality.trustworthiness`.
    settings: of the method. notes: what was done otherwise than usual.
    """

    method: Method
    places: npt.NDArray[np.float64]
    variance: list[float]
    trustworthiness: float
    trusted_neighbours: int
    settings: dict[str, float]
    notes: list[str]

    @property
    def axes(self) -> tuple[str, str]:
        """The names of both axes."""
        if self.method != "pca":
            return f"{NAMES[self.method]} 1", f"{NAMES[self.method]} 2"
        one, two = (f"PC {number} ({100 * self.variance[number - 1]:.1f} % of variance)" for number in (1, 2))
        return one, two

    def to_dict(self) -> dict[str, object]:
        """Without the places."""
        return {
            "method": self.method,
            **self.settings,
            "variance": self.variance,
            "trustworthiness": self.trustworthiness,
            "trustworthiness_neighbours": self.trusted_neighbours,
        }

    def render(self) -> str:
        """For people, a line or two."""
        shares = " ".join(f"{100 * share:.1f}" for share in self.variance)
        how = "".join(f", {name} {value:g}" for name, value in self.settings.items())
        return (
            f"{self.method}{how}: trustworthiness {self.trustworthiness:.3f} ({self.trusted_neighbours} neighbours)\n"
            f"variance of the first principal components: {shares} %"
        )


def check_method(method: str, perplexity: float | None) -> None:
    """ConfigError for a method that there is not, MissingExtraError for one whose package is missing."""
    if method not in get_args(Method):
        near = did_you_mean(method, get_args(Method))
        raise ConfigError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}{near}")
    if perplexity is not None and method != "tsne":
        raise ConfigError(f"perplexity={perplexity:g} is for method='tsne' only; leave it out")
    if perplexity is not None and not 1 <= perplexity < float("inf"):
        raise ConfigError(f"perplexity={perplexity:g}: expected a number from 1")
    if method == "umap":
        require("umap", extra="umap", needed_for="method 'umap'")


def check_count(count: int, method: Method, perplexity: float | None, what: str) -> None:
    """InputError for too few points for a method, or for a perplexity that was asked for."""
    if count < FEWEST[method]:
        raise InputError(f"a map by {method} needs {FEWEST[method]} {what}s at least, got {count}")
    if perplexity is not None and perplexity >= count:
        raise InputError(
            f"perplexity={perplexity:g} must be less than the number of {what}s, {count:,}; or leave it out"
        )


def project(
    vectors_ND: Floats, method: Method = "pca", *, perplexity: float | None = None, seed: int = 0, what: str = "text"
) -> Projection:
    """Places in a plane for the directions of vectors, which is what cosines compare.

    Args:
        vectors_ND: of any length.
        method: ``"pca"``, ``"tsne"`` (van der Maaten and Hinton 2008, begun at the principal components) or ``"umap"``
            (McInnes et al. 2018; needs the extra ``umap``).
        perplexity: of t-SNE, about how many neighbours a point has; None: 30, or a third of the points where these are
            fewer.
        seed: of UMAP; the other methods draw nothing. The same seed gives the same places on one machine.
        what: a point, for messages.

    Raises:
        ConfigError: see :func:`check_method`.
        InputError: too few vectors for the method or the perplexity, or vectors that are all the same.
    """
    check_method(method, perplexity)
    count = len(vectors_ND)
    check_count(count, method, perplexity, what)
    x: Doubles = np.asarray(unit_vectors(np.asarray(vectors_ND, np.float64)), np.float64)
    if np.ptp(x, axis=0).max() < 1e-6:
        raise InputError(f"the vectors of all {count:,} {what}s are the same, so there is nothing to draw")
    components, variance = _principal(x)
    notes: list[str] = []
    settings: dict[str, float] = {}
    if method == "pca":
        places: npt.NDArray[Any] = components
    elif method == "tsne":
        settings["perplexity"] = _perplexity(perplexity, count, what, notes)
        places = _tsne(x, components, settings["perplexity"], seed)
    else:
        settings["neighbours"] = min(UMAP_NEIGHBOURS, count - 1)
        places = _umap(x, int(settings["neighbours"]), seed)
    trusted = min(TRUSTED, (count - 1) // 2)
    return Projection(
        method,
        np.asarray(places, np.float64),
        variance,
        trustworthiness(x, places, trusted),
        trusted,
        settings,
        notes,
    )


def _principal(x_ND: Doubles) -> tuple[Doubles, list[float]]:
    """Places along the first two principal components, and the shares of the first :data:`COMPONENTS` in the variance.

    As ``PCA`` of scikit-learn gives them: the largest entry of each component is positive.
    """
    left, sizes, axes = np.linalg.svd(x_ND - x_ND.mean(axis=0), full_matrices=False)
    rows = np.arange(len(axes))
    places = left * sizes * np.sign(axes[rows, np.abs(axes).argmax(axis=1)])
    return places[:, :2], (sizes**2 / (sizes**2).sum())[:COMPONENTS].tolist()


def _perplexity(given: float | None, count: int, what: str, notes: list[str]) -> float:
    if given is not None:
        return given
    if count - 1 >= 3 * PERPLEXITY:
        return PERPLEXITY
    lowered = round(max(1.0, (count - 1) / 3), 2)
    notes.append(f"perplexity {lowered:g} in place of {PERPLEXITY:g}, because there are only {count} {what}s")
    return lowered


def _tsne(x: Doubles, components: Doubles, perplexity: float, seed: int) -> Floats:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # As scikit-learn's init="pca" does, without a second decomposition.
    start = (components / components[:, 0].std() * 1e-4).astype(np.float32)
    model = TSNE(2, perplexity=perplexity, init=start, learning_rate="auto", random_state=seed)
    with threadpool_limits(1, user_api="openmp"):  # several threads add up in another order each time
        found: Floats = model.fit_transform(x.astype(np.float32))
    return found


def _umap(x: Doubles, neighbours: int, seed: int) -> Floats:
    module = require("umap", extra="umap", needed_for="method 'umap'")
    few = len(x) < 10  # of so few points no eigenvectors can be found to begin with
    model = module.UMAP(n_neighbors=neighbours, random_state=seed, n_jobs=1, init="random" if few else "spectral")
    found: Floats = model.fit_transform(x.astype(np.float32))
    return found
