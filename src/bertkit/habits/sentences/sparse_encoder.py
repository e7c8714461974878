"""``SparseEncoder``: ``pipeline("sparse-encoding")`` with the names of sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypedDict, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoints.sparse_folder import sparse_files
from bertkit.errors import InputError
from bertkit.habit_table import no_attribute
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.compared_vectors import (
    Vectors,
    as_matrix,
    dot_score,
    normalize_embeddings,
    pairwise_dot_score,
)
from bertkit.inference.pipeline_inputs import items_of
from bertkit.inference.pipelines import pipeline
from bertkit.inference.sparse_encoding import SparseEmbedding, SparseEncodingPipeline
from bertkit.system.json_files import write_json
from bertkit.system.paths import user_path
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.model.sparse_comparison import SparseComparison

Words = list[tuple[str, float]]


class ModelOptions(TypedDict, total=False):
    """Keywords of :class:`SparseEncoder`."""

    device: str | torch.device | None
    revision: str | None
    similarity_fn_name: str | None
    max_active_dims: int | None


class EncodeOptions(TypedDict, total=False):
    """Keywords of :meth:`SparseEncoder.encode`; see there."""

    sentences: str | Iterable[str]
    batch_size: int
    show_progress_bar: bool | None
    convert_to_tensor: bool
    convert_to_sparse_tensor: bool
    save_to_cpu: bool
    max_active_dims: int | None


class SparseEncoder:
    """A masked-LM head that gives texts weights of words (SPLADE), with the calls of sentence-transformers 6.

    Args:
        model_name_or_path: as for ``pipeline("sparse-encoding")``, which does the work.
        **options: ``device``, ``revision``, ``similarity_fn_name`` (``"dot"`` or ``"cosine"``), ``max_active_dims``:
            words of a text that are kept, the heaviest.

    Letters of the array shapes: N texts, V words of the vocabulary.
    """

    def __init__(self, model_name_or_path: str | Path, **options: Unpack[ModelOptions]) -> None:
        known_keywords("SparseEncoder", options, ModelOptions.__annotations__)
        self.pipe: SparseEncodingPipeline = pipeline(
            "sparse-encoding", model_name_or_path, device=options.get("device"), revision=options.get("revision")
        )
        self.similarity_fn_name = str(options.get("similarity_fn_name") or "dot")
        if self.similarity_fn_name not in ("dot", "cosine"):
            raise InputError(f"sparse vectors are compared by 'dot' or 'cosine', not {self.similarity_fn_name!r}")
        self.max_active_dims = options.get("max_active_dims")

    @property
    def tokenizer(self) -> PreTrainedTokenizer:
        """That of the model."""
        return self.pipe.tokenizer

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return torch.device(str(self.pipe.device))

    @property
    def max_seq_length(self) -> int:
        """Most tokens that are read of a text, as far as the model has positions for them."""
        return self.pipe.settings.max_length or self.pipe.max_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        self.pipe.settings = replace(self.pipe.settings, max_length=length)

    @property
    def longest(self) -> int:
        """Most tokens that are read of a text."""
        return self.pipe.max_length

    def get_sentence_embedding_dimension(self) -> int:
        """V."""
        return self.pipe.config.vocab_size

    get_embedding_dimension = get_sentence_embedding_dimension

    def encode(
        self, inputs: str | Iterable[str] | None = None, **options: Unpack[EncodeOptions]
    ) -> Tensor | list[Tensor]:
        """Weights of words: a sparse tensor ``(N, V)``, or ``(V,)`` for one text.

        ``convert_to_sparse_tensor=False``: a dense one. ``convert_to_tensor=False``: a list of tensors ``(V,)``.
        ``max_active_dims``: keep so many words of each text.
        """
        known_keywords("encode", options, EncodeOptions.__annotations__)
        texts = options.get("sentences") if inputs is None else inputs
        if texts is None:
            raise InputError("encode needs a text or texts")
        listed = [texts] if isinstance(texts, str) else list(items_of(texts, "text"))
        most, progress = options.get("max_active_dims") or self.max_active_dims, options.get("show_progress_bar")
        found = cast("list[SparseEmbedding]", self.pipe(listed, top_k=most, truncation=True, progress=progress))
        rows = self._tensor(found)
        rows = rows if options.get("convert_to_sparse_tensor", True) else rows.to_dense()
        if isinstance(texts, str):
            return rows[0]
        return rows if options.get("convert_to_tensor", True) else list(rows)

    encode_query = encode_document = encode

    def _tensor(self, found: list[SparseEmbedding]) -> Tensor:
        counts = [len(each.ids) for each in found]
        places = np.stack(
            [np.repeat(np.arange(len(found)), counts), np.concatenate([np.zeros(0, np.int64), *(e.ids for e in found)])]
        )
        weights = np.concatenate([np.zeros(0, np.float32), *(each.weights for each in found)])
        shape = (len(found), self.get_sentence_embedding_dimension())
        made = torch.sparse_coo_tensor(torch.from_numpy(places), torch.from_numpy(weights), shape, is_coalesced=True)
        return made.to(self.device)

    def similarity(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """How near each text is to each of others, ``(A, B)``."""
        return dot_score(*map(self._compared, (embeddings1, embeddings2)))

    def similarity_pairwise(self, embeddings1: Vectors, embeddings2: Vectors) -> Tensor:
        """How near each text is to the one at the same place, ``(A,)``."""
        return pairwise_dot_score(*map(self._compared, (embeddings1, embeddings2)))

    def _compared(self, embeddings: Vectors) -> Tensor:
        rows = as_matrix(embeddings)
        return normalize_embeddings(rows) if self.similarity_fn_name == "cosine" else rows

    def decode(self, embeddings: Tensor, top_k: int | None = None) -> Words | list[Words]:
        """The words of a text ``(V,)`` with their weights, the heaviest first; a list of them for ``(N, V)``."""
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k must be a whole number from 1, or None for all words, got {top_k!r}")
        found = []
        for row in as_matrix(embeddings):
            words = row.coalesce() if row.is_sparse else row.to_sparse()
            order = torch.argsort(words.values(), descending=True, stable=True)[:top_k]
            names = self.tokenizer.convert_ids_to_tokens(words.indices()[0][order].tolist())
            found.append(list(zip(names, words.values()[order].tolist(), strict=True)))
        return found[0] if embeddings.ndim == 1 else found

    @staticmethod
    def intersection(embeddings_1: Tensor, embeddings_2: Tensor) -> Tensor:
        """Products of the weights of words that a text ``(V,)`` has in common with ``(V,)`` or ``(N, V)``, sparse."""
        first, second = (each.to_dense() for each in (embeddings_1, embeddings_2))
        if first.ndim != 1 or first.shape[-1] != second.shape[-1]:
            raise InputError(f"expected the shapes (V,) and (V,) or (N, V), got {first.shape} and {second.shape}")
        return (first * second).clamp_min(0).to_sparse()

    @staticmethod
    def sparsity(embeddings: Tensor) -> dict[str, float]:
        """Mean number of words of a text with a weight, and the share of those without."""
        rows = as_matrix(embeddings)
        words = rows.coalesce().values().count_nonzero() if rows.is_sparse else rows.count_nonzero()
        active = float(words) / max(1, len(rows))
        return {"active_dims": active, "sparsity_ratio": 1.0 - active / max(1, rows.shape[1])}

    def save_pretrained(self, path: str | Path, **options: object) -> None:
        """Write a folder that bertkit and sentence-transformers load."""
        known_keywords("save_pretrained", options, ())
        folder = user_path(path)
        self.pipe.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        for name, content in sparse_files(self.pipe.settings, self.get_sentence_embedding_dimension()).items():
            write_json(folder / name, content)

    save = save_pretrained

    def take_over(self, network: SparseComparison) -> None:
        """Go on with the weights of a trained network."""
        settings = self.pipe.settings
        self.pipe = pipeline("sparse-encoding", network.network.eval(), self.tokenizer)
        self.pipe.settings = settings

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, "SparseEncoder.", name)
