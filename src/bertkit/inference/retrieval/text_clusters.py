"""Texts in groups of similar ones: k-means or agglomerative clustering of their vectors (scikit-learn).

Letters of the array shapes: N texts, D width, K clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bertkit.errors import InputError, counted
from bertkit.metrics.nearest import directions
from bertkit.ragged import Floats, Ints
from bertkit.system.console import aligned, one_line
from bertkit.system.rendered import Rendered

Method = Literal["kmeans", "agglomerative"]
#: Numbers of clusters that are tried where none is given, at most one cluster for two texts.
TRIED = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
#: Texts on which numbers of clusters are tried and the silhouette is computed, which compares all pairs.
SAMPLED = 2000
#: More texts than this are clustered in small batches: k-means only.
ALL_AT_ONCE = 20_000
#: Texts of which agglomerative clustering holds all distances: 0.8 GB.
MOST_DISTANCES = 10_000
#: Texts near the centre that are shown of a cluster, and characters of each.
EXAMPLES, SHOWN = 3, 90


@dataclass(frozen=True, slots=True)
class Cluster:
    """silhouette: mean over its sampled texts. examples: nearest to the centre. words: those that characterize it."""

    number: int
    size: int
    silhouette: float | None
    examples: list[str]
    words: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Clustering(Rendered):
    """K clusters, the largest first.

    assigned: int64 ``(N,)``, the cluster of each text. nearness: cosine of each text and its centre ``(N,)``.
    silhouette: mean over the sampled texts, from -1 to 1: how much nearer texts are to their own cluster than to the
    next. chosen: the number of clusters was chosen by it.
    """

    clusters: list[Cluster]
    assigned: Ints
    nearness: Floats
    silhouette: float | None
    chosen: bool
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Without what is said of each text."""
        clusters = [
            {"number": each.number, "size": each.size, "silhouette": each.silhouette, "examples": each.examples}
            | ({} if each.words is None else {"words": each.words})
            for each in self.clusters
        ]
        facts = {"texts": len(self.assigned), "chosen": self.chosen, "silhouette": self.silhouette}
        return {**facts, "clusters": clusters, "notes": self.notes}

    def render(self) -> str:
        """A table and examples for people."""
        quality = "" if self.silhouette is None else f", silhouette {self.silhouette:.3f}"
        how = " (their number was chosen by the silhouette)" if self.chosen else ""
        lines = [f"{counted(len(self.assigned), 'text')} in {counted(len(self.clusters), 'cluster')}{how}{quality}"]
        head = ["cluster", "texts", "share", "silhouette"]
        table = [head] + [
            [
                str(each.number),
                f"{each.size:,}",
                f"{100 * each.size / len(self.assigned):.1f} %",
                "" if each.silhouette is None else f"{each.silhouette:.3f}",
            ]
            for each in self.clusters
        ]
        first, *rows = aligned(table)
        lines.append(f"  {first}")
        for row, each in zip(rows, self.clusters, strict=True):
            lines.append(f"  {row}" + (f"  {', '.join(each.words)}" if each.words else ""))
            lines += [f"      {one_line(text)[:SHOWN]}" for text in each.examples]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def cluster_texts(
    texts: Sequence[str],
    vectors_ND: Floats,
    k: int | None = None,
    *,
    method: Method = "kmeans",
    threshold: float | None = None,
    seed: int = 0,
) -> Clustering:
    """Group texts, two or more, by their vectors of length 1.

    k: number of clusters; None: the one of :data:`TRIED` with the best silhouette, on a sample of :data:`SAMPLED`
        texts.
    method: ``"kmeans"``, of more than :data:`ALL_AT_ONCE` texts in small batches; ``"agglomerative"``: average linkage
        of cosines, for up to :data:`MOST_DISTANCES` texts.
    threshold: agglomerative only, in place of ``k``: clusters are joined while their mean cosine is at least this.
    """
    distinct = min(len(set(texts)), _num_different(vectors_ND, enough=max(2, k or 2)))
    if distinct < 2 or (k is not None and not 1 <= k <= distinct):
        number = "two or more" if k is None else k
        raise InputError(f"{counted(distinct, 'text')} that the model tells apart cannot be put into {number} clusters")
    if threshold is not None and (method != "agglomerative" or k is not None or not -1 <= threshold <= 1):
        raise InputError(f"threshold={threshold}: a cosine from -1 to 1, for method='agglomerative', in place of k")
    if method == "agglomerative" and len(texts) > MOST_DISTANCES:
        raise InputError(
            f"agglomerative clustering holds the distances of all pairs: at most {MOST_DISTANCES:,} texts, got "
            f"{len(texts):,}; use method='kmeans'"
        )
    chosen = k is None and threshold is None
    sample = np.sort(np.random.Generator(np.random.PCG64(seed)).permutation(len(texts))[:SAMPLED])
    if chosen:
        k = _best_number(vectors_ND[sample], method, seed)
    assigned = _assign(vectors_ND, k, method, threshold, seed)
    sizes = np.bincount(assigned)
    order = np.argsort(-sizes, kind="stable")
    assigned = np.argsort(order)[assigned]
    centres_KD = directions(np.stack([vectors_ND[assigned == number].mean(axis=0) for number in range(len(order))]))
    nearness = np.einsum("nd,nd->n", vectors_ND, centres_KD[assigned])
    silhouettes = _silhouettes(_distances(vectors_ND[sample]), assigned[sample])
    clusters = []
    for number in range(len(order)):
        mine = np.flatnonzero(assigned == number)
        nearest = mine[np.argsort(-nearness[mine], kind="stable")]
        sampled = None if silhouettes is None else silhouettes[assigned[sample] == number]
        clusters.append(
            Cluster(
                number=number,
                size=len(mine),
                silhouette=None if sampled is None or not len(sampled) else round(float(sampled.mean()), 4),
                examples=list(dict.fromkeys(texts[row] for row in nearest[: 20 * EXAMPLES].tolist()))[:EXAMPLES],
            )
        )
    overall = None if silhouettes is None else round(float(silhouettes.mean()), 4)
    notes = [f"the silhouette is of {SAMPLED:,} texts"] if len(texts) > SAMPLED else []
    if method == "kmeans" and len(texts) > ALL_AT_ONCE:
        notes.append(f"more than {ALL_AT_ONCE:,} texts: k-means in small batches")
    return Clustering(clusters, assigned, nearness.astype(np.float32), overall, chosen, notes)


def _assign(
    vectors_ND: Floats, k: int | None, method: Method, threshold: float | None, seed: int, starts: int = 4
) -> Ints:
    """The cluster of each text; k-means from so many random ``starts``."""
    from sklearn.cluster import AgglomerativeClustering, KMeans, MiniBatchKMeans

    if method == "agglomerative":
        cut = None if threshold is None else 1.0 - threshold
        model = AgglomerativeClustering(n_clusters=k, distance_threshold=cut, metric="cosine", linkage="average")
    elif len(vectors_ND) > ALL_AT_ONCE:
        model = MiniBatchKMeans(k, batch_size=4096, n_init=3, random_state=seed)
    else:
        model = KMeans(k, n_init=starts, random_state=seed)
    found: Ints = np.unique(model.fit_predict(vectors_ND), return_inverse=True)[1].astype(np.int64)
    return found


def _num_different(vectors_ND: Floats, enough: int) -> int:
    """How many different vectors there are, up to ``enough``: texts may differ in what a model does not see."""
    seen: set[bytes] = set()
    for vector in vectors_ND:
        seen.add((np.round(vector, 5) + 0.0).tobytes())
        if len(seen) >= enough:
            break
    return len(seen)


def _best_number(vectors_ND: Floats, method: Method, seed: int) -> int:
    """Of some texts the number of clusters with the best silhouette."""
    best, found = -2.0, 2
    most, distances_NN = max(2, _num_different(vectors_ND, len(vectors_ND)) // 2), _distances(vectors_ND)
    for k in TRIED:
        if k > most:
            break
        silhouettes = _silhouettes(distances_NN, _assign(vectors_ND, k, method, None, seed, starts=1))
        if silhouettes is not None and float(silhouettes.mean()) > best:
            best, found = float(silhouettes.mean()), k
    return found


def _distances(vectors_ND: Floats) -> Floats:
    """One minus the cosine of every pair ``(N, N)``."""
    found: Floats = np.maximum(1.0 - vectors_ND @ vectors_ND.T, 0.0)
    np.fill_diagonal(found, 0.0)
    return found


def _silhouettes(distances_NN: Floats, assigned: Ints) -> Floats | None:
    """Silhouette of each text ``(N,)``; None where it is not defined: one cluster, or as many as texts."""
    from sklearn.metrics import silhouette_samples

    if not 2 <= len(np.unique(assigned)) < len(assigned):
        return None
    found: Floats = silhouette_samples(distances_NN, assigned, metric="precomputed").astype(np.float32)
    return found
