"""Word vectors beside BERT: one vector a word, wherever it stands.

from bertkit.static import WordVectors, distill_words, learn_words

vectors = WordVectors.load("glove.6B.100d.txt")          # word2vec, GloVe, fastText; also .gz; folders of model2vec
vectors.nearest("bank")
vectors.analogy("man", "king", "woman")

learn_words("corpus.txt").save("own.vec")                # from co-occurrence counts, or method="skip-gram"

distill_words("all-MiniLM-L6-v2", "fast")                # out of a BERT; loads wherever a sentence encoder does
bertkit.SentenceEncoder("fast").encode(texts)
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Module to the public names in it.
_NAMES = {
    "bertkit.engine.static.word_vectors": "Coverage Neighbor WordVectors",
    "bertkit.training.word_vectors.distilled_words": "DistilledWords distill_words",
    "bertkit.training.word_vectors.learn_words": "learn_words",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bertkit.static' has no attribute {name!r}")
    from bertkit.errors import needs_bertkit

    with needs_bertkit(f"bertkit.static.{name}"):
        value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
