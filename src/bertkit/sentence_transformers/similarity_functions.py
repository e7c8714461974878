"""``similarity_functions`` of sentence-transformers."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(
    __name__, {"bertkit.habits.sentences.sentence_options": "SimilarityFunction"}, entry="import"
)
