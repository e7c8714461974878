"""Search in an index on disk: every vector is compared, block by block.

Letters of the array shapes: Q queries, K hits, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertkit.errors import CheckpointError, ConfigError, DataError, InputError, counted
from bertkit.inference.pipeline_inputs import is_whole
from bertkit.inference.retrieval.index_files import (
    AGAIN,
    MANIFEST,
    Block,
    Manifest,
    Row,
    Stored,
    check_sizes,
    directions_of,
    read_manifest,
    read_rows,
    read_vectors,
)
from bertkit.inference.retrieval.text_vectors import TextEncoder, refuse_truncated
from bertkit.metrics.bm25 import BM25
from bertkit.metrics.fusion import fused
from bertkit.metrics.nearest import nearest
from bertkit.ragged import Floats, Ints
from bertkit.system.paths import user_path

#: Hits of each of two searches that are fused: at least so many, and so many times what is asked for.
FUSED, FUSED_TIMES = 100, 5


class Hits(list["Hit"]):
    """The texts that were found for a query, the nearest first; a notebook shows a table."""

    def _repr_html_(self) -> str:
        from bertkit.visualize.html_text import table

        return table(("score", "id", "text", "source"), [(hit.score, hit.id, hit.text, hit.source) for hit in self])


class Hit(NamedTuple):
    """A text that was found. score: a cosine or dot product; of two searches the sum of ``1 / (60 + rank)``."""

    id: str
    text: str
    source: str
    score: float


class SearchIndex:
    """A finished index, read-only; see :mod:`bertkit.inference.retrieval.index_files`.

    The vectors are mapped into memory; the checksum of each block is compared when it is first read. What another
    process changes is seen by an index that is opened afterwards.

    Args:
        folder: made by ``bertkit search build`` or :class:`~bertkit.inference.retrieval.index_writer.IndexWriter`.
        model: the model that it was built with, if it is no longer where it was.
        computing: ``device``, ``precision``, ``threads`` for the model.

    Raises:
        DataError: no index, an unfinished one, or files that are missing or of another size.
        CheckpointError: another model than that of the index.
    """

    def __init__(self, folder: str | Path, model: str | Path | None = None, **computing: Any) -> None:
        self.path = user_path(folder)
        self.manifest = read_manifest(self.path)
        if not self.manifest.finished:
            raise ConfigError(f"{self.path} is an unfinished index; run the same 'bertkit search build' to complete it")
        for block in self.manifest.blocks:
            check_sizes(self.path, block)
        self._model, self._computing = model, computing
        self._vectors: dict[int, Stored] = {}

    def __len__(self) -> int:
        """Number of texts."""
        return self.manifest.num_texts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}, {counted(len(self), 'text')})"

    @cached_property
    def encoder(self) -> TextEncoder:
        """What makes vectors of queries."""
        return open_encoder(self.path, self.manifest, self._model, **self._computing)

    def search(
        self, queries: str | Sequence[str], top_k: int = 10, *, hybrid: bool = False, truncate: bool = False
    ) -> list[Hits]:
        """The nearest texts of each query, the nearest first.

        Args:
            queries: one text or several.
            top_k: so many hits of each, or all texts if there are fewer.
            hybrid: also search by words (BM25), and order by the sum of ``1 / (60 + rank)`` in both; reads all texts
                once.
            truncate: read only the beginning of a query that is too long.

        Raises:
            InputError: no query, an empty one, one that is too long, ``top_k`` below 1.
            DataError: a damaged file, or an index that was changed since it was opened.
        """
        asked = [queries] if isinstance(queries, str) else list(queries)
        for number, query in enumerate(asked):
            if not isinstance(query, str) or not query.strip():
                raise InputError(f"query {number} (counted from 0) must be a text that is not empty, got {query!r:.40}")
        encoded = self.encoder.encode(asked, query=True)
        if not truncate:
            refuse_truncated(encoded, lambda number: f"query {number} (counted from 0)", self.encoder.longest)
        depth = max(FUSED, FUSED_TIMES * top_k) if hybrid else top_k
        with self._as_opened():
            numbers_QK, scores_QK = self.nearest(encoded.vectors, depth)
            found = list(zip(numbers_QK, scores_QK, strict=True))
            if hybrid:
                found = [self._fused(query, numbers, top_k) for query, (numbers, _) in zip(asked, found, strict=True)]
            texts = self.rows(np.concatenate([numbers for numbers, _ in found]) if found else np.zeros(0, np.int64))
        return [
            Hits(Hit(*texts[number], score) for number, score in zip(numbers.tolist(), scores.tolist(), strict=True))
            for numbers, scores in found
        ]

    @contextmanager
    def _as_opened(self) -> Iterator[None]:
        """Report files that a writer has replaced since as a changed index, not as damage."""
        try:
            yield
        except DataError as error:
            if read_manifest(self.path) == self.manifest:
                raise
            raise DataError(f"{self.path} was changed after it was opened; open it again") from error

    def nearest(
        self, queries_QD: Floats, top_k: int, advance: Callable[[int], None] = lambda count: None
    ) -> tuple[Ints, Floats]:
        """Numbers of the ``min(top_k, texts)`` nearest texts and their products with each query ``(Q, K)``.

        The vectors of queries are as :attr:`encoder` makes them. ``advance`` is called with the number of texts after
        each block.
        """
        if queries_QD.ndim != 2 or queries_QD.shape[1] != self.manifest.width:
            raise InputError(f"queries must be of shape (Q, {self.manifest.width}), got {queries_QD.shape}")
        if top_k < 1:
            raise InputError(f"top_k must be a whole number from 1, got {top_k}")
        numbers_QK: Ints = np.zeros((len(queries_QD), 0), np.int64)
        scores_QK: Floats = np.zeros((len(queries_QD), 0), np.float32)
        for first, block, vectors in self.blocks():
            live = block.live
            if not len(live):
                continue
            found, products = nearest(queries_QD, directions_of(vectors[live] if block.removed else vectors), top_k)
            numbers_QK = np.concatenate([numbers_QK, first + live[found]], axis=1)
            scores_QK = np.concatenate([scores_QK, products], axis=1)
            order = np.argsort(-scores_QK, axis=1, kind="stable")[:, :top_k]
            numbers_QK = np.take_along_axis(numbers_QK, order, axis=1)
            scores_QK = np.take_along_axis(scores_QK, order, axis=1)
            advance(len(live))
        return numbers_QK, scores_QK

    def blocks(self) -> Iterator[tuple[int, Block, Stored]]:
        """The number of the first text of each block, the block, and its vectors, also those of removed texts."""
        first = 0
        for block in self.manifest.blocks:
            if block.number not in self._vectors:
                self._vectors[block.number] = read_vectors(self.path, block, self.manifest)
            yield first, block, self._vectors[block.number]
            first += block.rows

    def rows(self, numbers: Ints) -> dict[int, Row]:
        """The texts with these numbers."""
        found, first = {}, 0
        for block in self.manifest.blocks:
            wanted = numbers[(numbers >= first) & (numbers < first + block.rows)]
            if len(wanted):
                texts = read_rows(self.path, block, wanted - first)
                found.update({first + number: row for number, row in texts.items()})
            first += block.rows
        return found

    def check(self) -> dict[str, str | int | None]:
        """Read everything and compare it with its checksums; what the index holds, for people. DataError for damage."""
        for _, block, _ in self.blocks():
            read_rows(self.path, block)
        blocks = self.manifest.blocks
        return {
            "texts": len(self),
            "removed_but_stored": sum(len(block.removed) for block in blocks),
            "width": self.manifest.width,
            "numbers": self.manifest.number_type,
            "bytes": sum(block.vectors_bytes + block.texts_bytes for block in blocks),
            "model": self.manifest.model,
            **self.manifest.facts,
        }

    @cached_property
    def _words(self) -> tuple[BM25, Ints]:
        """Search by words, and the number of each of its documents."""
        texts, numbers, first = [], [], 0
        for block in self.manifest.blocks:
            texts += [row.text for row in read_rows(self.path, block).values()]
            numbers.append(first + block.live)
            first += block.rows
        return BM25(texts), np.concatenate([*numbers, np.zeros(0, np.int64)])

    def _fused(self, query: str, by_vectors: Ints, top_k: int) -> tuple[Ints, Floats]:
        words, numbers = self._words
        by_words = numbers[words.search(query, max(FUSED, FUSED_TIMES * top_k))[0]]
        return fused([by_vectors.tolist(), by_words.tolist()], top_k)


def open_encoder(path: Path, manifest: Manifest, model: str | Path | None, **computing: Any) -> TextEncoder:
    """The encoder that an index was built with; ``model`` None: where it was then."""
    facts = manifest.facts
    settings = {name: facts.get(name) for name in ("pooling", "prompt", "query_prompt", "max_length")}
    try:
        encoder = TextEncoder(
            manifest.model if model is None else model,
            by_products=True,
            **settings,  # type: ignore[arg-type]
            **computing,
        )
        longest = settings["max_length"]
        if longest is not None and not is_whole(longest, 3, encoder.pipe.max_length):
            raise InputError(f"max_length is {longest}, expected 3 to {encoder.pipe.max_length}")
    except InputError as error:
        raise DataError(f"{path / MANIFEST} is damaged: {error}; {AGAIN}") from None
    except CheckpointError as error:
        if model is not None:
            raise
        raise CheckpointError(f"{error}. {path} was built with it; if it has moved, say where (--model)") from None
    if encoder.width != manifest.width:
        raise CheckpointError(
            f"{encoder.path} makes vectors of {encoder.width} numbers, those in {path} have {manifest.width}: it was "
            f"built with another model ({manifest.model})"
        )
    for name, value in encoder.facts.items():
        if facts.get(name) != value:
            what = {"sentence": "way of making vectors of texts (its modules)"}.get(name, name.removesuffix("_sha256"))
            raise CheckpointError(
                f"{encoder.path} is not the model that {path} was built with ({manifest.model}): another {what}. Give "
                "that one (--model), or build the index again"
            )
    return encoder
