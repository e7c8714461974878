"""The checks of sparse vectors for :func:`bertkit.tasks.check_task`: those of other texts that are compared."""

from __future__ import annotations

from bertkit.tasks.embeddings.battery import EmbeddingBattery


class SparseBattery(EmbeddingBattery):
    """Texts that are compared."""
