"""``util`` of sentence-transformers: how near vectors are, and what is found by comparing all of them.

Letters of the array shapes: A, B, N vectors, Q queries, K hits, D numbers of a vector. Vectors may be a tensor (also a
sparse one, and one with gradients), an array, or a list; the result is on the device of the first. The calls have the
names, arguments and results of sentence-transformers 6.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from bertkit.errors import InputError
from bertkit.metrics.nearest import nearest
from bertkit.metrics.vector_precision import VectorPrecision, quantized
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.model.vector_losses import angle_similarities, cosines
from bertkit.ragged import Floats

Vectors: TypeAlias = "Tensor | npt.ArrayLike | Sequence[Tensor]"
ScoreFunction = Callable[[Tensor, Tensor], Tensor]
#: Queries whose scores by a function of the caller are held at once.
_ROWS = 100


def as_tensor(vectors: Vectors) -> Tensor:
    """Floats in a tensor: ``(D,)`` or ``(N, D)``."""
    if isinstance(vectors, Tensor):
        found = vectors
    elif isinstance(vectors, Sequence) and vectors and isinstance(vectors[0], Tensor):
        found = torch.stack([each for each in vectors if isinstance(each, Tensor)])
    else:
        found = torch.as_tensor(np.asarray(vectors))
    return found if found.is_floating_point() else found.float()


def as_matrix(vectors: Vectors) -> Tensor:
    """Floats in a tensor ``(N, D)``; one vector is one row."""
    found = as_tensor(vectors)
    return found.unsqueeze(0) if found.ndim == 1 else found


def as_floats(vectors: Vectors) -> Floats:
    """The same as a float32 array ``(N, D)``."""
    found: Floats = as_matrix(vectors).detach().float().cpu().numpy()
    return found


def normalize_embeddings(embeddings: Tensor) -> Tensor:
    """The vectors ``(N, D)`` with length 1."""
    if not embeddings.is_sparse:
        return functional.normalize(embeddings, dim=-1)
    rows = embeddings.coalesce()
    squares = torch.zeros(len(rows), dtype=rows.dtype, device=rows.device)
    lengths = squares.index_add(0, rows.indices()[0], rows.values() ** 2).sqrt().clamp_min(1e-12)
    values = rows.values() / lengths[rows.indices()[0]]
    return torch.sparse_coo_tensor(rows.indices(), values, rows.shape, is_coalesced=True)


def cos_sim(a: Vectors, b: Vectors) -> Tensor:
    """Cosine of each vector with each of others, ``(A, B)``."""
    return dot_score(normalize_embeddings(as_matrix(a)), normalize_embeddings(as_matrix(b)))


pytorch_cos_sim = cos_sim


def dot_score(a: Vectors, b: Vectors) -> Tensor:
    """Product of each vector with each of others, ``(A, B)``."""
    first = as_matrix(a)
    second = as_matrix(b).to(first.device)
    if not first.is_sparse:
        found: Tensor = torch.sparse.mm(second, first.t()).t() if second.is_sparse else first @ second.t()
        return found
    found = torch.sparse.mm(first, second.t())
    return found.to_dense() if found.is_sparse else found


def euclidean_sim(a: Vectors, b: Vectors) -> Tensor:
    """Minus the distance of each vector to each of others, ``(A, B)``."""
    return -torch.cdist(_dense(a), _dense(b))


def manhattan_sim(a: Vectors, b: Vectors) -> Tensor:
    """Minus the sum of the absolute differences, ``(A, B)``."""
    return -torch.cdist(_dense(a), _dense(b), p=1.0)


def pairwise_cos_sim(a: Vectors, b: Vectors) -> Tensor:
    """Cosine of each vector with the one at the same place, ``(A,)``."""
    return cosines(_dense(a), _dense(b))


def pairwise_dot_score(a: Vectors, b: Vectors) -> Tensor:
    """Product of each vector with the one at the same place, ``(A,)``."""
    return (_dense(a) * _dense(b)).sum(dim=-1)


def pairwise_euclidean_sim(a: Vectors, b: Vectors) -> Tensor:
    """Minus the distance of each vector to the one at the same place, ``(A,)``."""
    return -(_dense(a) - _dense(b)).square().sum(dim=-1).sqrt()


def pairwise_manhattan_sim(a: Vectors, b: Vectors) -> Tensor:
    """Minus the sum of the absolute differences to the vector at the same place, ``(A,)``."""
    return -(_dense(a) - _dense(b)).abs().sum(dim=-1)


def pairwise_angle_sim(x: Vectors, y: Vectors) -> Tensor:
    """How near vectors of complex numbers are in angle (Li & Li 2023, "AnglE", section 3.3), ``(A,)``."""
    return angle_similarities(_dense(x), _dense(y))


def _dense(vectors: Vectors) -> Tensor:
    found = as_matrix(vectors)
    return found.to_dense() if found.is_sparse else found


def semantic_search(
    query_embeddings: Vectors,
    corpus_embeddings: Vectors,
    query_chunk_size: int = 100,
    corpus_chunk_size: int = 500_000,
    top_k: int = 10,
    score_function: ScoreFunction = cos_sim,
) -> list[list[dict[str, int | float]]]:
    """The nearest vectors of a corpus for each query: ``[{"corpus_id": number, "score": score}, ...]``, best first.

    ``query_chunk_size`` and ``corpus_chunk_size`` have no effect: all scores are computed in blocks that fit into the
    processor's cache. ``score_function``: any of this module, or your own, ``(Q, D), (N, D) -> (Q, N)``.
    """
    queries, corpus = as_matrix(query_embeddings), as_matrix(corpus_embeddings)
    numbers, scores = nearest_by(score_function, queries.to(corpus.device), corpus, top_k)
    return [
        [{"corpus_id": number, "score": score} for number, score in zip(*row, strict=True)]
        for row in zip(numbers.tolist(), scores.tolist(), strict=True)
    ]


def nearest_by(
    score_function: ScoreFunction, queries: Tensor, corpus: Tensor, top_k: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Numbers and scores of the ``min(top_k, N)`` best of a corpus, ``(Q, K)``, best first."""
    plain = not (queries.is_sparse or corpus.is_sparse)
    if plain and score_function in (cos_sim, dot_score):
        pair = as_floats(queries), as_floats(corpus)
        a, b = map(unit_vectors, pair) if score_function is cos_sim else pair
        return nearest(a, b, top_k)
    numbers, scores = [], []
    for first in range(0, len(queries), _ROWS):
        rows = torch.arange(first, min(first + _ROWS, len(queries)), device=queries.device)
        found = score_function(queries.index_select(0, rows), corpus).detach()
        best = torch.topk(found, min(top_k, found.shape[1]), dim=1)
        numbers.append(best.indices.cpu().numpy())
        scores.append(best.values.float().cpu().numpy())
    return np.concatenate(numbers), np.concatenate(scores)


class Encodes(Protocol):
    """A model with the ``encode`` of a ``SentenceTransformer``."""

    def encode(self, inputs: list[str], *, convert_to_tensor: bool, **options: Any) -> Any: ...


def paraphrase_mining(model: Encodes, sentences: Sequence[str], **options: Any) -> list[list[float | int]]:
    """The most similar pairs of texts, ``[[score, number, number], ...]``, best first.

    ``options``: those of :func:`paraphrase_mining_embeddings` and of ``model.encode``. ``bertkit.find_duplicates``
    puts all that are alike into groups.
    """
    names = ("query_chunk_size", "corpus_chunk_size", "max_pairs", "top_k", "score_function")
    own = {name: options.pop(name) for name in names if name in options}
    return paraphrase_mining_embeddings(model.encode(list(sentences), convert_to_tensor=True, **options), **own)


def paraphrase_mining_embeddings(
    embeddings: Vectors,
    query_chunk_size: int = 5000,
    corpus_chunk_size: int = 100_000,
    max_pairs: int = 500_000,
    top_k: int = 100,
    score_function: ScoreFunction = cos_sim,
) -> list[list[float | int]]:
    """The same for vectors ``(N, D)``: each with its ``top_k`` nearest others, of all pairs the ``max_pairs`` best."""
    vectors = as_matrix(embeddings)
    numbers, scores = nearest_by(score_function, vectors, vectors, top_k + 1)
    others = numbers != np.arange(len(numbers))[:, None]
    others &= np.cumsum(others, axis=1) <= top_k
    rows, places = np.nonzero(others)
    pairs = np.sort(np.stack([rows, numbers[rows, places]], axis=1), axis=1)
    different, firsts = np.unique(pairs, axis=0, return_index=True)
    found = scores[rows, places][firsts]
    best = np.argsort(-found, kind="stable")[:max_pairs]
    return [[float(found[each]), *different[each].tolist()] for each in best.tolist()]


def community_detection(
    embeddings: Vectors,
    threshold: float = 0.75,
    min_community_size: int = 10,
    batch_size: int = 1024,
    show_progress_bar: bool = False,
) -> list[list[int]]:
    """Groups of vectors ``(N, D)`` with a cosine of ``threshold`` or more to a centre, which is first; largest first.

    A vector is in one group at most, the largest that has it; groups of less than ``min_community_size`` are left out.
    ``bertkit.cluster_texts`` gives every text a group.
    """
    if len(as_tensor(embeddings)) == 0:
        return []
    vectors = unit_vectors(as_floats(embeddings))
    found: list[tuple[int, npt.NDArray[np.int64]]] = []
    for first in range(0, len(vectors), batch_size):
        cosines_BN = vectors[first : first + batch_size] @ vectors.T
        near = cosines_BN >= threshold
        for row in np.flatnonzero(near.sum(axis=1) >= min_community_size).tolist():
            members = np.flatnonzero(near[row])
            found.append((first + row, members[np.argsort(-cosines_BN[row, members], kind="stable")]))
    taken, groups = np.zeros(len(vectors), np.bool_), []
    for centre, members in sorted(found, key=lambda each: len(each[1]), reverse=True):
        free = members[~taken[members]]
        if not taken[centre] and len(free) >= min_community_size:
            groups.append([centre, *free[free != centre].tolist()])
            taken[groups[-1]] = True
    return sorted(groups, key=len, reverse=True)


def quantize_embeddings(
    embeddings: Vectors,
    precision: VectorPrecision,
    ranges: npt.ArrayLike | None = None,
    calibration_embeddings: Vectors | None = None,
) -> npt.NDArray[Any]:
    """Vectors ``(N, D)`` in fewer bits; int8 and uint8 by ``ranges`` ``(2, D)``, else those of typical vectors.

    See :func:`bertkit.metrics.vector_precision.quantized`. Without either, the vectors themselves are the typical ones.
    """
    vectors = as_floats(embeddings)
    if ranges is not None:
        return quantized(vectors, precision, np.asarray(ranges, np.float32))
    return quantized(
        vectors, precision, vectors if calibration_embeddings is None else as_floats(calibration_embeddings)
    )


def truncate_embeddings(embeddings: Tensor, truncate_dim: int | None) -> Tensor:
    """The first numbers of each vector; None: all."""
    return embeddings[..., :truncate_dim]


def batch_to_device(batch: Mapping[str, Any], target_device: str | torch.device) -> dict[str, Any]:
    """The same mapping, with its tensors on a device."""
    return {name: value.to(target_device) if isinstance(value, Tensor) else value for name, value in batch.items()}


def similarity_function(name: str) -> tuple[ScoreFunction, ScoreFunction]:
    """Of ``cosine``, ``dot``, ``euclidean`` or ``manhattan`` the function of all pairs, and that of the same places."""
    if name not in _MEASURES:
        raise InputError(f"vectors are compared by {', '.join(_MEASURES)}, not by {name!r}")
    return _MEASURES[name]


_MEASURES: dict[str, tuple[ScoreFunction, ScoreFunction]] = {
    "cosine": (cos_sim, pairwise_cos_sim),
    "dot": (dot_score, pairwise_dot_score),
    "euclidean": (euclidean_sim, pairwise_euclidean_sim),
    "manhattan": (manhattan_sim, pairwise_manhattan_sim),
}
