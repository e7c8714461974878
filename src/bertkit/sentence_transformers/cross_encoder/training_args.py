"""``cross_encoder.training_args`` of sentence-transformers."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {"bertkit.habits.sentences.sentence_trainer": "CrossEncoderTrainingArguments"}
__getattr__, __all__ = lazy_names(__name__, _NAMES)
