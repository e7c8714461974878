"""``sparse_encoder`` of sentence-transformers."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.sparse_encoder": "SparseEncoder",
    "bertkit.habits.sentences.sentence_trainer": "SparseEncoderTrainer SparseEncoderTrainingArguments",
}
_MODULES = ("evaluation", "losses", "trainer", "training_args")
__getattr__, __all__ = lazy_names(__name__, _NAMES, _MODULES)
