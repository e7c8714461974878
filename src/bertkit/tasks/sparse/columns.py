"""How tables of one's own hold texts that are compared: as for dense vectors."""

from __future__ import annotations

from dataclasses import dataclass

from bertkit.tasks.embeddings.columns import EmbeddingFiles


@dataclass(frozen=True)
class SparseFiles(EmbeddingFiles):
    """Tables of two texts a row or more."""

    remarks = "The model is a masked LM, which is trained as SPLADE; sentence-transformers loads the run as well."
