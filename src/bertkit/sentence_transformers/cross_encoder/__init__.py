"""``cross_encoder`` of sentence-transformers."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.rerankers": "CrossEncoder",
    "bertkit.habits.sentences.sentence_trainer": "CrossEncoderTrainer CrossEncoderTrainingArguments",
}
_MODULES = ("evaluation", "losses", "trainer", "training_args")
__getattr__, __all__ = lazy_names(__name__, _NAMES, _MODULES)
