"""How tables of one's own hold texts that are compared: as for dense vectors."""

from bertkit.tasks.embeddings.columns import EmbeddingFiles as SparseFiles

__all__ = ["SparseFiles"]
