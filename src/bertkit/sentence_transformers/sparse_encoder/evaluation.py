"""``sparse_encoder.evaluation`` of sentence-transformers: answered by what evaluates here."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES: dict[str, str] = {}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="sparse_encoder.evaluation")
