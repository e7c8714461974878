"""``bertkit.visualize.embeddings``: a map of texts.

Letters of the array shapes: N texts, D width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from bertkit.engine.backend import Network
from bertkit.errors import InputError, counted
from bertkit.insight.layer_vectors import ReadOptions, cut_notes, several, vectors_of
from bertkit.insight.projection import Method, Projection, check_count, check_method, project
from bertkit.metrics.map_quality import neighbour_accuracy
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats, Ints
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.point_map import PointMap, groups_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Most texts that are drawn, and neighbours that vote on a label.
POINTS, VOTERS = 5000, 10


@dataclass(frozen=True, slots=True)
class LabelScores:
    """How well the labels of other texts nearby tell a text's own: leaving one out, the most frequent of ten.

    accuracy, accuracy_on_map: share of texts with the right label by neighbours among the vectors, and on the map.
    majority: by always saying the most frequent label.
    """

    neighbours: int
    accuracy: float
    accuracy_on_map: float
    majority: float

    def render(self) -> str:
        """For people."""
        return (
            f"label by the {self.neighbours} nearest texts: right for {100 * self.accuracy:.1f} % in the full space, "
            f"{100 * self.accuracy_on_map:.1f} % on the map (most frequent label: {100 * self.majority:.1f} %)"
        )


@dataclass(frozen=True)
class EmbeddingMap(Drawn):
    """N texts in a plane.

    labels: of each text, if they have any. of: how many texts there were before some were sampled.
    """

    title: ClassVar[str] = "A map of texts"
    texts: list[str]
    labels: list[str | None] | None
    of: int
    source: str
    projection: Projection
    scores: LabelScores | None
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Everything; a point has its place, its text, and its label if there are labels."""
        points = [
            {"x": x, "y": y, "text": text} | ({} if self.labels is None else {"label": self.labels[row]})
            for row, ((x, y), text) in enumerate(zip(self.projection.places.tolist(), self.texts, strict=True))
        ]
        scores = {} if self.scores is None else {f"label_{name}": value for name, value in asdict(self.scores).items()}
        sizes = Counter(label for label in self.labels or () if label is not None)
        return {
            "texts": len(self.texts),
            "of": self.of,
            "vectors": self.source,
            **self.projection.to_dict(),
            "labels": dict(sizes.most_common()),
            **scores,
            "notes": self.notes,
            "points": points,
        }

    def render(self) -> str:
        lines = [f"{self._amount()}: {self.source}", self.projection.render()]
        if self.scores is not None:
            lines.append(self.scores.render())
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def figure(self) -> Figure:
        return self._map().figure()

    def page(self) -> str:
        return self._map().page(self.title, "texts")

    def _map(self) -> PointMap:
        labels = self.labels or [None] * len(self.texts)
        trusted = f"trustworthiness {self.projection.trustworthiness:.3f}"
        remarks = [f"{self._amount()}: {self.source}; {trusted}"]
        if self.scores is not None:
            remarks.append(self.scores.render())
        return PointMap(self.projection.places, self.texts, groups_of(labels), self.projection.axes, remarks)

    def _amount(self) -> str:
        drawn = counted(len(self.texts), "text")
        return drawn if self.of == len(self.texts) else f"{drawn} of {self.of:,}"


def embeddings(
    texts: Sequence[str],
    labels: Sequence[str | None] | None = None,
    model: str | Path | Network | None = None,
    *,
    vectors: npt.ArrayLike | None = None,
    method: Method = "pca",
    perplexity: float | None = None,
    points: int = POINTS,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> EmbeddingMap:
    """A map of texts, in which similar texts are near each other, colored by label.

    Args:
        texts: three at least.
        labels: one a text; None for a text without.
        model: folder, name on the Hub, run folder, exported model, or a model object.
        vectors: of the texts ``(N, D)``, made earlier, in place of a model.
        method: see :func:`bertkit.insight.projection.project`.
        perplexity: of t-SNE, see there.
        seed: of the sample and of the method.
        points: of more texts so many are sampled, each label by its share.
        **reading: see :class:`bertkit.insight.layer_vectors.ReadOptions`.

    Raises:
        InputError: too few texts, a single one in place of several, vectors or labels that do not belong to them, or
            texts that all have the same vector.
        ConfigError: an unknown method, or a perplexity that makes no sense.
        MissingExtraError: ``method="umap"`` without the extra ``umap``.
    """
    check_method(method, perplexity)
    texts = several(texts)
    of = len(texts)
    labels = None if labels is None else list(labels)
    if labels is not None and len(labels) != of:
        raise InputError(f"got {counted(len(labels), 'label')} for {counted(of, 'text')}; give one a text, or None")
    if (model is None) == (vectors is None):
        raise InputError("give a model, or the vectors of the texts, and not both")
    given = None if vectors is None else _checked(vectors, of, reading)
    rows = _sampled(labels or [None] * of, points, seed)
    check_count(len(rows), method, perplexity, "text")
    texts = [texts[row] for row in rows]
    labels = None if labels is None else [labels[row] for row in rows]
    notes = [] if len(texts) == of else [f"{len(texts):,} of {of:,} texts were sampled (seed {seed})"]
    if given is not None:
        found, source = given[rows], f"given vectors of {given.shape[1]} numbers"
    else:
        assert model is not None
        encoded = vectors_of(texts, model, **reading)
        found, source = encoded.vectors, encoded.source
        notes += cut_notes(encoded.truncated)
    projection = project(found, method, perplexity=perplexity, seed=seed)
    scores = None if labels is None else _scores(unit_vectors(found), projection, labels)
    return EmbeddingMap(texts, labels, of, source, projection, scores, [*notes, *projection.notes])


def _checked(vectors: npt.ArrayLike, count: int, reading: ReadOptions) -> Floats:
    found = np.asarray(vectors)
    if reading:
        raise InputError(f"vectors are given, so {', '.join(sorted(reading))} would have no effect; leave it out")
    if found.ndim != 2 or len(found) != count or not np.issubdtype(found.dtype, np.number):
        raise InputError(
            f"expected a vector of numbers for each of {counted(count, 'text')}, got {found.dtype} {found.shape}"
        )
    found = found.astype(np.float32)
    if not np.isfinite(found).all():
        row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
        raise InputError(f"vector {row} (counted from 0) has values that are not finite")
    return found


def _sampled(labels: Sequence[str | None], points: int, seed: int) -> Ints:
    """The numbers of at most so many texts, in order, of each label its share."""
    if points < 1:
        raise InputError(f"points must be from 1, got {points}")
    count = len(labels)
    if count <= points:
        return np.arange(count)
    drawn = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
    by_label = drawn[np.argsort([number[labels[row]] for row in drawn], kind="stable")]
    return np.sort(by_label[np.arange(points) * count // points])


def _scores(
    vectors: npt.NDArray[np.float32], projection: Projection, labels: Sequence[str | None]
) -> LabelScores | None:
    """None where fewer than three texts have a label, or all the same."""
    known = np.array([row for row, label in enumerate(labels) if label is not None], np.int64)
    names = sorted({label for label in labels if label is not None})
    if len(known) < 3 or len(names) < 2:
        return None
    number = {name: place for place, name in enumerate(names)}
    right = np.array([number[labels[row] or ""] for row in known])
    voters = min(VOTERS, (len(known) - 1) // 2)  # if all others voted, those of other labels would win
    by_vectors, by_places = (neighbour_accuracy(x[known], right, voters) for x in (vectors, projection.places))
    return LabelScores(voters, by_vectors, by_places, float(np.bincount(right).max() / len(right)))
