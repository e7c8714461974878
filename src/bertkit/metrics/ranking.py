"""Recall, MRR, nDCG and MAP of ranked documents, one value per query: numpy only.

Values equal trec_eval's (``recall_k``, ``recip_rank`` of the first k, ``ndcg_cut_k``, ``map_cut_k``), which BEIR
reports: a gain counts in nDCG as it is (not ``2 ** gain - 1``), and MAP at k divides by all relevant documents (not by
at most k).

Letters of the array shapes: Q queries, K ranks, N documents in all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

Values = npt.NDArray[np.float64]
#: What is reported where nothing else was asked for.
USUAL = ("mrr@10", "ndcg@10", "recall@10")


class Judged(NamedTuple):
    """The first K documents of each query, judged.

    gains: ``(Q, K)``, of the document at each rank, best rank first; 0 where it is not relevant or there is none.
    ideal: ``(Q, K)``, the same in the best possible order.
    num_relevant: int64 ``(Q,)``, how many relevant documents each query has, found or not.
    """

    gains: Values
    ideal: Values
    num_relevant: npt.NDArray[np.int64]


def judge_documents(
    ranked: Sequence[Sequence[Hashable]], relevant: Sequence[Mapping[Hashable, float]], k: int
) -> Judged:
    """Of documents found by a search: best first, more than ``k`` are cut; the gains of relevant ones are above 0."""
    if len(ranked) != len(relevant):
        raise InputError(f"{len(ranked)} queries with documents found, but {len(relevant)} with relevant documents")
    gains_QK, ideal_QK = np.zeros((len(ranked), k)), np.zeros((len(ranked), k))
    for query, (found, wanted) in enumerate(zip(ranked, relevant, strict=True)):
        first = list(found[:k])
        if len(set(first)) < len(first):
            raise InputError(f"query {query}: a document was found twice among the first {k}")
        if any(not gain > 0 for gain in wanted.values()):
            raise InputError(f"query {query}: the gain of a relevant document must be above 0")
        gains_QK[query, : len(first)] = [wanted.get(document, 0.0) for document in first]
        best = sorted(wanted.values(), reverse=True)[:k]
        ideal_QK[query, : len(best)] = best
    return _checked(Judged(gains_QK, ideal_QK, np.array([len(wanted) for wanted in relevant], np.int64)))


def judge_groups(
    scores: npt.ArrayLike, gains: npt.ArrayLike, groups: npt.NDArray[np.int64], k: int, seed: int = 0
) -> Judged:
    """Of candidates with scores ``(N,)``: query q has the documents ``groups[q] : groups[q + 1]``; gains may be 0.

    Equal scores are ordered by chance, always the same for a ``seed``: in the order of the data a model that gives
    every document the same score would do well wherever relevant documents stand first.
    """
    score_N, gain_N = np.asarray(scores, np.float64), np.asarray(gains, np.float64)
    if not len(score_N) == len(gain_N) == groups[-1]:
        raise InputError(f"{len(score_N)} scores and {len(gain_N)} gains for groups of {groups[-1]} documents")
    if np.isnan(score_N).any() or not (gain_N >= 0).all():
        raise InputError("scores must be numbers, and gains must not be below 0")
    sizes = np.diff(groups)
    query_N = np.arange(len(sizes)).repeat(sizes)
    rank_N = np.arange(len(score_N)) - groups[:-1].repeat(sizes)
    inside = rank_N < k

    def ordered(keys: Values) -> Values:
        chance_N = np.random.default_rng(seed).random(len(keys))
        found = np.zeros((len(sizes), k))
        found[query_N[inside], rank_N[inside]] = gain_N[np.lexsort((chance_N, -keys, query_N))][inside]
        return found

    num_relevant_Q = np.bincount(query_N[gain_N > 0], minlength=len(sizes)).astype(np.int64)
    return _checked(Judged(ordered(score_N), ordered(gain_N), num_relevant_Q))


def recall(judged: Judged, k: int) -> Values:
    """Share of the relevant documents among the first k, ``(Q,)``."""
    found: Values = np.count_nonzero(judged.gains[:, :k], axis=1) / judged.num_relevant
    return found


def reciprocal_rank(judged: Judged, k: int) -> Values:
    """1 / rank of the first relevant document, 0 where none is among the first k: ``(Q,)``; its mean is MRR at k."""
    hits = judged.gains[:, :k] > 0
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


def ndcg(judged: Judged, k: int) -> Values:
    """``sum(gain / log2(rank + 1))`` over the first k, as a share of the best possible (Järvelin, Kekäläinen 2002)."""
    discounts = 1.0 / np.log2(np.arange(2, judged.gains[:, :k].shape[1] + 2))
    found: Values = (judged.gains[:, :k] @ discounts) / (judged.ideal[:, :k] @ discounts)
    return found


def average_precision(judged: Judged, k: int) -> Values:
    """Sum of the precision at each relevant document among the first k, over the number of all relevant ones."""
    hits = judged.gains[:, :k] > 0
    precision = hits.cumsum(axis=1) / np.arange(1, hits.shape[1] + 1)
    found: Values = (precision * hits).sum(axis=1) / judged.num_relevant
    return found


#: Name, as before the ``@`` in ``ndcg@10`` -> function. In all of them higher is better.
RANKING: Mapping[str, Callable[[Judged, int], Values]] = {
    "recall": recall,
    "mrr": reciprocal_rank,
    "ndcg": ndcg,
    "map": average_precision,
}


def ranking_values(judged: Judged, names: Sequence[str] = USUAL) -> dict[str, Values]:
    """Values of each query, ``(Q,)``, by metrics such as ``ndcg@10``; their means are what is reported."""
    ranks = judged.gains.shape[1]
    found = {}
    for name in names:
        metric, _, k = name.partition("@")
        if metric not in RANKING or not (k.isascii() and k.isdigit() and 1 <= int(k) <= ranks):
            raise InputError(f"unknown metric {name!r}; expected one of {', '.join(RANKING)} at 1 ... {ranks}: ndcg@10")
        found[name] = RANKING[metric](judged, int(k))
    return found


def _checked(judged: Judged) -> Judged:
    if not len(judged.num_relevant):
        raise InputError("nothing to score: no queries")
    if not judged.num_relevant.all():
        empty = int(np.flatnonzero(judged.num_relevant == 0)[0])
        raise InputError(f"query {empty} has no relevant document, so no ranking of it is better than another; drop it")
    return judged
