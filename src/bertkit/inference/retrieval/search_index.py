"""Search in an index on disk: every vector is compared, block by block.

Letters of the array shapes: Q queries, K hits, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypedDict, Unpack

import numpy as np

from bertkit.engine.backend import Precision
from bertkit.errors import ConfigError, DataError, InputError, counted
from bertkit.habit_table import AnsweringClass, no_attribute, refuse_others, says_what_it_needs
from bertkit.inference.feature_extraction import Pooling
from bertkit.inference.retrieval.document_texts import DocumentTexts, given_documents
from bertkit.inference.retrieval.given_texts import MEMORY, GivenTexts, Listed, listed_texts, located_texts
from bertkit.inference.retrieval.hits import Hit, Hits
from bertkit.inference.retrieval.index_encoder import open_encoder
from bertkit.inference.retrieval.index_files import (
    Block,
    NumberType,
    Row,
    Stored,
    check_sizes,
    directions_of,
    read_manifest,
    read_rows,
    read_vectors,
)
from bertkit.inference.retrieval.index_writer import Changes, IndexWriter, Located, index_rows
from bertkit.inference.retrieval.passages import Cutter
from bertkit.inference.retrieval.text_vectors import TextEncoder, model_name, refuse_truncated
from bertkit.metrics.bm25 import BM25
from bertkit.metrics.fusion import SHARE, best_of, mixed
from bertkit.metrics.nearest import nearest
from bertkit.ragged import Floats, Ints
from bertkit.system.device import Device
from bertkit.system.model_sources import INCLUDED
from bertkit.system.paths import user_path

#: Texts, or the paths of documents.
Given: TypeAlias = "GivenTexts | str | Path | Sequence[Path]"
#: What a search goes by.
By = Literal["vectors", "words", "both"]
#: Scores of two searches that are in memory at once.
_SCORES = 1 << 24


class IndexMaking(TypedDict, total=False):
    """How the vectors of an index are made, see :class:`~bertkit.inference.retrieval.text_vectors.TextEncoder`.

    number_type: how they are stored: float32, or float16 in half the space, or int8 in a quarter.
    truncate: read only the beginning of texts that are too long; otherwise they are a TextError.
    passage_tokens, passage_overlap: of documents, see :class:`~bertkit.inference.retrieval.passages.Cutter`.
    """

    pooling: Pooling
    prompt: str | None
    query_prompt: str | None
    max_length: int | None
    number_type: NumberType
    truncate: bool
    passage_tokens: int | None
    passage_overlap: int | None
    device: Device
    precision: Precision
    threads: int | None


class SearchIndex(metaclass=AnsweringClass):
    """A finished index; see :mod:`bertkit.inference.retrieval.index_files`.

    The vectors are mapped into memory; the checksum of each block is compared when it is first read. What another
    process changes is seen by an index that is opened afterwards. Example::

        index = SearchIndex.build("index", ["a text", "another one"], model="bertkit-tiny-en")
        index.add({"id of a text": "a third text"})
        print(index.search("which text?", top_k=2))

    Args:
        folder: made by :meth:`build` or ``bertkit search build``.
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

    @classmethod
    @says_what_it_needs('SearchIndex.build("index", texts)', "SearchIndex.build")
    def build(
        cls,
        folder: str | Path,
        texts: Given,
        model: str | Path = INCLUDED,
        *,
        text: str | None = None,
        id: str | None = None,
        **making: Unpack[IndexMaking],
    ) -> Self:
        """A new index of texts or documents; called again after a kill, it keeps what is finished and right.

        Args:
            folder: new or empty.
            texts: a list or a column of texts, whose ids are their numbers, ``"0"``, ``"1"`` ...; a mapping of ids to
                texts; a list of dicts, a dict of lists, or a frame (pandas, polars, Arrow, datasets). Or documents,
                which are cut into passages: a folder or a pattern, or a list of :class:`~pathlib.Path`.
            model: an encoder: a folder or a name on the Hub. The index remembers it.
            text: name of the column of texts; None: ``"text"``, ``"sentence"`` or the only column.
            id: name of the column of ids; None: ``"id"``, if it is there.
            **making: see :class:`IndexMaking`.

        Raises:
            TextError: a text that is empty or too long; the message has the number of its row, from 0.
            InputError: no such column, a row without an id.
            DataError: two texts with one id; no documents, or none that can be read.
            MissingExtraError: PDFs without ``pypdf``.
            ConfigError: a finished index in ``folder``, or other files.
        """
        refuse_others("SearchIndex.build", making, ("model", "text", "id", *IndexMaking.__annotations__))
        own: dict[str, Any] = {name: value for name, value in making.items() if name in IndexMaking.__annotations__}
        number_type, truncate = own.pop("number_type", "float32"), own.pop("truncate", False)
        sizes = own.pop("passage_tokens", None), own.pop("passage_overlap", None)
        documents = given_documents(texts)  # wrong ones are told before the model is loaded, and wrong texts, too
        rows: Iterable[Located] = () if documents else located_texts(listed_texts(texts, text, id))
        encoder = TextEncoder(model, by_products=True, **own)
        if documents:
            documents.begin(Cutter(encoder, *sizes))
            rows = index_rows(documents.texts())
        elif sizes != (None, None):
            raise ConfigError("passage_tokens and passage_overlap are for documents; leave them out")
        with IndexWriter(folder, encoder, truncate=truncate, documents=documents) as writer:
            writer.build(rows, model_name(model), number_type)
        opened = cls(folder, **{name: own[name] for name in ("device", "precision", "threads") if name in own})
        opened.encoder = encoder
        return opened

    def add(self, texts: Given, *, text: str | None = None, id: str | None = None, truncate: bool = False) -> Changes:
        """Add texts or documents, given as for :meth:`build`; texts without ids are numbered on.

        A text with an id of the index is left alone if it says the same, and a DataError otherwise.
        """
        if documents := self._documents(texts, adding=True):
            return self._changed(lambda writer: writer.add(index_rows(documents.texts())), truncate, documents)
        located_texts(listed := listed_texts(texts, text, id))  # wrong texts are reported before the model is loaded
        return self._changed(lambda writer: writer.add(located_texts(listed, self._first_number(listed))), truncate)

    def update(
        self, texts: Given, *, text: str | None = None, id: str | None = None, truncate: bool = False
    ) -> Changes:
        """Make the index what these texts say, given as for :meth:`build`; only what has changed is encoded.

        Texts that came from memory and are not among these are removed; those of files stay. Of documents only those
        that have changed are read, and the passages of those that are gone are removed.
        """
        if documents := self._documents(texts):
            passages = index_rows(documents.texts())
            return self._changed(lambda writer: writer.update(passages, documents.touched), truncate, documents)
        rows = located_texts(listed_texts(texts, text, id))
        return self._changed(lambda writer: writer.update(rows, [MEMORY]), truncate)

    def delete(self, ids: str | Iterable[str | int]) -> Changes:
        """Remove texts by their ids; an id that is not there is an InputError, and nothing is removed."""
        names = [ids] if isinstance(ids, str) else [str(each) for each in ids]
        return self._changed(lambda writer: writer.delete(names), truncate=False, encodes=False)

    def _documents(self, texts: Given, *, adding: bool = False) -> DocumentTexts | None:
        if found := given_documents(texts, self.manifest.documents):
            found.begin(Cutter.of(self.manifest, self.encoder), self.manifest.documents, adding=adding)
        return found

    def _changed(
        self,
        change: Callable[[IndexWriter], Changes],
        truncate: bool,
        documents: DocumentTexts | None = None,
        *,
        encodes: bool = True,
    ) -> Changes:
        encoder = self.encoder if encodes else None
        with IndexWriter(self.path, encoder, truncate=truncate, documents=documents) as writer:
            self._vectors.clear()  # a file that is mapped cannot be deleted everywhere
            done = change(writer)
        self.manifest = read_manifest(self.path)
        vars(self).pop("_words", None)
        return done

    def _first_number(self, given: Listed) -> int:
        """Of texts without ids the one above all ids that are numbers, in the index as it is now."""
        blocks = read_manifest(self.path).blocks if given.ids is None else ()
        ids = (row.id for block in blocks for row in read_rows(self.path, block).values())
        return 1 + max((int(name) for name in ids if name.isascii() and name.isdecimal()), default=-1)

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, "SearchIndex.", name)

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
        self,
        queries: str | Sequence[str],
        top_k: int = 10,
        *,
        by: By | None = None,
        hybrid: bool = False,
        truncate: bool = False,
        vectors: Floats | None = None,
        **others: object,
    ) -> list[Hits]:
        """The best texts of each query, the best first.

        Args:
            queries: one text or several.
            top_k: so many hits of each, or all texts if there are fewer; by words only those that share one.
            by: vectors, words (BM25), which reads all texts once, or both; None: what was set in the index, else
                vectors.
            hybrid: the same as ``by="both"``.
            truncate: read only the beginning of a query that is too long.
            vectors: of the queries ``(Q, D)``, as :attr:`encoder` makes them; None: it makes them.
            **others: none; the error says what to write instead of what other libraries have.

        Raises:
            InputError: no query, an empty one, one that is too long, ``top_k`` below 1.
            DataError: a damaged file, or an index that was changed since it was opened.
        """
        refuse_others("SearchIndex.search", others, ("queries", "top_k", "by", "hybrid", "truncate", "vectors"))
        asked = [queries] if isinstance(queries, str) else list(queries)
        for number, query in enumerate(asked):
            if not isinstance(query, str) or not query.strip():
                raise InputError(f"query {number} (counted from 0) must be a text that is not empty, got {query!r:.40}")
        with self._as_opened():
            share = self.share_of("both" if hybrid else by)
            found = self.ranked(asked, top_k, share, truncate=truncate, vectors=vectors)
            texts = self.rows(np.concatenate([numbers for numbers, _ in found]) if found else np.zeros(0, np.int64))
        listed = []
        for numbers, scores in found:
            rows = [texts[number] for number in numbers.tolist()]
            pairs = zip(rows, scores.tolist(), strict=True)
            listed.append(Hits(Hit(row.id, row.text, row.source, score, row.more) for row, score in pairs))
        return listed

    def share_of(self, by: By | None) -> float:
        """How much vectors count, from 0 (words alone) to 1."""
        own = self.manifest.vectors_share
        if by == "both":
            return own if own is not None and 0 < own < 1 else SHARE
        if by not in (None, "vectors", "words"):
            raise InputError(f"a search goes by 'vectors', 'words' or 'both', got {by!r}")
        return 0.0 if by == "words" else 1.0 if by == "vectors" or own is None else own

    def ranked(
        self,
        queries: Sequence[str],
        top_k: int,
        share: float,
        *,
        truncate: bool = False,
        vectors: Floats | None = None,
    ) -> list[tuple[Ints, Floats]]:
        """Numbers and scores of the best texts of each query; ``share`` as of :meth:`share_of`."""
        if top_k < 1:
            raise InputError(f"top_k must be a whole number from 1, got {top_k}")
        if share == 0:
            words, numbers = self._words
            by_words = (words.search(query, top_k) for query in queries)
            return [(numbers[places], scores.astype(np.float32)) for places, scores in by_words]
        if vectors is None:
            encoded = self.encoder.encode(queries, query=True)
            if not truncate:
                refuse_truncated(encoded, lambda number: f"query {number} (counted from 0)", self.encoder.longest)
            vectors = encoded.vectors
        if vectors.shape != (len(queries), self.manifest.width):
            raise InputError(f"vectors must be of shape {(len(queries), self.manifest.width)}, got {vectors.shape}")
        if share == 1:
            return list(zip(*self.nearest(vectors, top_k), strict=True))
        words, numbers = self._words
        found: list[tuple[Ints, Floats]] = []
        at_once = max(1, _SCORES // max(1, len(numbers)))
        for first in range(0, len(queries), at_once):
            products = self._products(vectors[first : first + at_once])
            of_words = np.stack([words.scores(query) for query in queries[first : first + at_once]])
            for scores in mixed(products, of_words, share):
                places, best = best_of(scores, top_k)
                found.append((numbers[places], best))
        return found

    def _products(self, queries_QD: Floats) -> Floats:
        """Of each query with every text that counts ``(Q, texts)``."""
        parts = [queries_QD @ directions_of(vectors[block.live]).T for _, block, vectors in self.blocks()]
        found: Floats = np.concatenate([np.zeros((len(queries_QD), 0), np.float32), *parts], axis=1)
        return found

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
            if len(wanted := numbers[(numbers >= first) & (numbers < first + block.rows)]):
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
            **({"documents": len(self.manifest.documents)} if self.manifest.documents else {}),
            **({} if self.manifest.vectors_share is None else {"vectors_share": str(self.manifest.vectors_share)}),
            **self.manifest.facts,
        }

    @cached_property
    def _words(self) -> tuple[BM25, Ints]:
        """Search by words, and the number of each of its documents."""
        texts, numbers, first = [], [], 0
        for block in self.manifest.blocks:
            texts += [row.searched for row in read_rows(self.path, block).values()]
            numbers.append(first + block.live)
            first += block.rows
        return BM25(texts), np.concatenate([*numbers, np.zeros(0, np.int64)])
