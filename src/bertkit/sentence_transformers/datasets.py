"""``datasets`` of sentence-transformers: answered by what is used in their place."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES: dict[str, str] = {}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="datasets")
