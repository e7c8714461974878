"""``sentence_transformers.sentence_transformer``, where release 6 has ``losses``, ``evaluation`` and the like.

Its modules are those of the package around it.
"""

from __future__ import annotations

import bertkit.sentence_transformers as _around
from bertkit.system.lazy_names import lazy_names

__path__ = list(_around.__path__)
_NAMES = {
    "bertkit.habits.sentences.sentence_trainer": "SentenceTransformerTrainer SentenceTransformerTrainingArguments",
    "bertkit.habits.sentences.sentence_transformer": "SentenceTransformer",
}
_MODULES = ("evaluation", "losses", "modules", "readers", "trainer", "training_args")
__getattr__, __all__ = lazy_names(__name__, _NAMES, _MODULES)
