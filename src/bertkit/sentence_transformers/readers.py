"""``readers`` of sentence-transformers: see :mod:`bertkit.habits.sentences.input_example`."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.input_example": "InputExample",
}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="readers")
