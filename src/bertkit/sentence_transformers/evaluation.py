"""``evaluation`` of sentence-transformers: see :mod:`bertkit.habits.sentences.vector_evaluators`."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.sentence_options": "SimilarityFunction",
    "bertkit.habits.sentences.vector_evaluators": """
        BinaryClassificationEvaluator EmbeddingSimilarityEvaluator InformationRetrievalEvaluator SentenceEvaluator
        SequentialEvaluator TripletEvaluator
    """,
}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="evaluation")
