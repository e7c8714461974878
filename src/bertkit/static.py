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

from bertkit.system.lazy_names import lazy_names

#: Module to the public names in it.
_NAMES = {
    "bertkit.engine.static.word_vectors": "Coverage Neighbor WordVectors",
    "bertkit.training.word_vectors.distilled_words": "DistilledWords distill_words",
    "bertkit.training.word_vectors.learn_words": "learn_words",
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
