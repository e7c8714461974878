"""Weights of the words of many texts: computed by a masked LM, kept as a sparse matrix, compared by their products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertkit.checkpoints.sparse_folder import SparseSettings
from bertkit.engine.backend import Check, Pack, Values, Wanted, WordPooling
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.ragged import Floats, Ints, Ragged, boundaries_of
from bertkit.system.console import Progress
from bertkit.tasks.embeddings.features import NONE

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: Queries that are compared with all documents at once.
QUERIES = 256


@dataclass(frozen=True, slots=True)
class SparseVectors:
    """Weights of U texts: a matrix ``(U, V)`` in rows."""

    matrix: csr_matrix

    def nearest(self, queries: Ints, documents: Ints, depth: int) -> Ints:
        """The documents with the largest products, as places among ``documents``, the largest first; ties by place."""
        searched, found = self.matrix[documents].T.tocsc(), []
        for first in range(0, len(queries), QUERIES):
            products = np.asarray((self.matrix[queries[first : first + QUERIES]] @ searched).todense())
            found.append(np.argsort(-products, axis=1, kind="stable")[:, :depth])
        best: Ints = np.concatenate(found)
        return best

    def column_products(self, columns: Ints) -> Floats:
        """Product of each row's anchor with its other texts, ``(R, C - 1)``; NaN where a row has no such text."""
        found = np.full((len(columns), columns.shape[1] - 1), np.nan, np.float32)
        for place, column in enumerate(columns[:, 1:].T):
            there = column != NONE
            products = self.matrix[columns[there, 0]].multiply(self.matrix[column[there]])
            found[there, place] = np.asarray(products.sum(axis=1)).ravel()
        return found

    def words(self, texts: Ints) -> float:
        """Mean number of words of some texts that weigh more than 0."""
        return float(np.diff(self.matrix.indptr)[texts].mean())


@dataclass(frozen=True, slots=True)
class SparseEngine:
    """Computes the weights of texts by a masked LM; ``num_words`` of its tokenizer get weights; None: all its rows."""

    engine: InferenceEngine
    settings: SparseSettings
    num_words: int | None

    @property
    def model(self) -> Any:
        """The model object."""
        return self.engine.model

    @property
    def device(self) -> str:
        """Where it computes."""
        return self.engine.device

    def vectors(self, rows: Ragged, *, check: Check, label: str) -> SparseVectors:
        """The weights of each row; ``check`` is called between packs, and a progress bar says ``label``."""
        from scipy.sparse import csr_matrix

        words = WordPooling(self.settings.pooling, self.settings.logs)
        wanted = Wanted(("word_weights",), words=words, num_words=self.num_words)
        check()
        with Progress(len(rows), label=label, unit="texts", check=check) as bar:
            found = self.engine.run(rows, wanted, _above_zero, bar.advance)
        ids, weights = (np.concatenate(part) for part in zip(*found, strict=True))
        bounds = boundaries_of([len(own) for own, _ in found])
        return SparseVectors(csr_matrix((weights, ids, bounds), shape=(len(rows), self.engine.config.vocab_size)))


def _above_zero(pack: Pack, values: Values) -> Sequence[tuple[Ints, Floats]]:
    rows = values["word_weights"]
    return [(ids := np.flatnonzero(row), row[ids]) for row in rows]
