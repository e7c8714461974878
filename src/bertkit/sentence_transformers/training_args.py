"""``training_args`` of sentence-transformers: see :mod:`bertkit.habits.sentences.sentence_trainer`."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.sentence_trainer": """
        BatchSamplers MultiDatasetBatchSamplers SentenceTransformerTrainingArguments
    """,
}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="training_args")
