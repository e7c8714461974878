"""Clusters, topics and duplicates of a list of texts: what ``bertkit cluster``, ``topics`` and ``duplicates`` do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from bertkit.engine.backend import Precision
from bertkit.habit_table import refuse_others
from bertkit.inference.feature_extraction import Pooling
from bertkit.inference.retrieval.given_texts import checked_texts
from bertkit.inference.retrieval.near_texts import NearGroups, find_groups
from bertkit.inference.retrieval.text_clusters import Clustering, Method, cluster_texts
from bertkit.inference.retrieval.text_vectors import TextEncoder, refuse_truncated
from bertkit.inference.retrieval.topic_words import words_of_classes
from bertkit.ragged import Floats
from bertkit.system.device import Device
from bertkit.system.model_sources import INCLUDED


class EncodingOptions(TypedDict, total=False):
    """How texts become vectors.

    pooling, prompt: see :class:`~bertkit.inference.retrieval.text_vectors.TextEncoder`.
    truncate: read only the beginning of texts that are too long; otherwise they are a TextError.
    max_length: most tokens of a text.
    device, precision, threads: see :func:`bertkit.pipeline`.
    """

    pooling: Pooling
    prompt: str | None
    truncate: bool
    max_length: int | None
    device: Device
    precision: Precision
    threads: int | None


class ClusterOptions(EncodingOptions, total=False):
    """Also how texts are grouped.

    k: number of clusters; None: the one with the best silhouette.
    method: ``"kmeans"``, or ``"agglomerative"`` for up to 10,000 texts.
    threshold: in place of ``k`` for the latter: merge clusters while their mean cosine is at least this.
    seed: the same seed gives the same clusters.
    """

    k: int | None
    method: Method
    threshold: float | None
    seed: int


def find_clusters(texts: Any, model: str | Path = INCLUDED, **options: Unpack[ClusterOptions]) -> Clustering:
    """Texts in groups of similar ones.

    Args:
        texts: a list, an array, a column of a frame.
        model: an encoder: a folder or a name on the Hub.
        **options: see :class:`ClusterOptions`.

    Returns:
        ``found.assigned`` is the cluster of each text, int64 ``(N,)``, the largest cluster 0; ``found.clusters`` says
        sizes, silhouettes and examples; ``print(found.render())`` shows them.

    Raises:
        TextError: an empty text, or one that is too long; the message has its number, from 0.
        InputError: a number of clusters or a threshold that makes no sense; an option that there is not.
    """
    return find_topics(texts, model, 0, **options)


def find_topics(
    texts: Any, model: str | Path = INCLUDED, words: int = 8, **options: Unpack[ClusterOptions]
) -> Clustering:
    """What texts are about: :func:`find_clusters`, each with the ``words`` that set it apart from the others.

    ``found.clusters[0].words`` are those of the largest topic; see :mod:`bertkit.inference.retrieval.topic_words`.
    """
    refuse_others("find_clusters", options, ("texts", "model", "words", *ClusterOptions.__annotations__))
    names = ("k", "method", "threshold", "seed")
    how: dict[str, Any] = {name: options.get(name) for name in names if name in options}
    listed, encoding = (
        checked_texts(texts),
        EncodingOptions(
            **{name: value for name, value in options.items() if name not in names}  # type: ignore[typeddict-item]
        ),
    )
    encoder = _encoder(model, encoding)
    vectors = _vectors(encoder, listed, encoding)
    found = cluster_texts(listed, vectors, **how)
    return with_words(found, listed, vectors, encoder, words) if words else found


def with_words(found: Clustering, texts: list[str], vectors: Floats, encoder: TextEncoder, count: int) -> Clustering:
    """Clusters with the ``count`` words that set each apart from the others."""
    of_each = words_of_classes(texts, vectors, found.assigned, lambda some: encoder.encode(some).vectors, count)
    named = [replace(each, words=own) for each, own in zip(found.clusters, of_each, strict=True)]
    return replace(found, clusters=named)


def find_duplicates(
    texts: Any,
    model: str | Path = INCLUDED,
    threshold: float | Literal["auto"] = 0.9,
    **options: Unpack[EncodingOptions],
) -> NearGroups:
    """Duplicate and near-duplicate texts.

    Args:
        texts: a list, an array, a column of a frame.
        model: an encoder: a folder or a name on the Hub.
        threshold: lowest cosine of duplicates; ``"auto"``: from how alike the texts are, of which 20 are needed.
        **options: see :class:`EncodingOptions`.

    Returns:
        ``found.groups``, the surest first: ``group.rows`` are the numbers of the texts, from 0, and ``group.cosines``
        how near each is to the first, which can stand for the others.

    Raises:
        TextError: an empty text, or one that is too long; the message has its number, from 0.
        InputError: a threshold that is no cosine.
    """
    refuse_others("find_duplicates", options, ("texts", "model", "threshold", *EncodingOptions.__annotations__))
    listed, encoder = checked_texts(texts), _encoder(model, options)

    def encode(numbers: list[int]) -> Floats:
        return _vectors(encoder, [listed[number] for number in numbers], options, numbers)

    return find_groups(listed, encode, None if threshold == "auto" else threshold)


def _encoder(model: str | Path, options: EncodingOptions) -> TextEncoder:
    return TextEncoder(model, **{name: value for name, value in options.items() if name != "truncate"})  # type: ignore[arg-type]


def _vectors(
    encoder: TextEncoder, texts: list[str], options: EncodingOptions, numbers: list[int] | None = None
) -> Floats:
    encoded = encoder.encode(texts)
    if not options.get("truncate", False):

        def place(number: int) -> str:
            return f"text {number if numbers is None else numbers[number]} (counted from 0)"

        refuse_truncated(encoded, place, encoder.longest)
    return encoded.vectors
