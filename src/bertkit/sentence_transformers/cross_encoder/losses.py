"""``cross_encoder.losses`` of sentence-transformers."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {"bertkit.habits.sentences.ranking_losses": "BinaryCrossEntropyLoss LambdaLoss ListNetLoss"}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="cross_encoder.losses")
