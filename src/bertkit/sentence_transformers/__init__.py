"""``import bertkit.sentence_transformers as st``: the names of sentence-transformers, loaded when first used."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit": "__version__",
    "bertkit.habits.sentences.input_example": "InputExample",
    "bertkit.habits.sentences.compared_vectors": "quantize_embeddings",
    "bertkit.habits.sentences.rerankers": "CrossEncoder",
    "bertkit.habits.sentences.sentence_trainer": """
        CrossEncoderTrainer CrossEncoderTrainingArguments SentenceTransformerTrainer
        SentenceTransformerTrainingArguments SparseEncoderTrainer SparseEncoderTrainingArguments
    """,
    "bertkit.habits.sentences.sentence_options": """
        CrossEncoderModelCardData SentenceTransformerModelCardData SimilarityFunction SparseEncoderModelCardData
    """,
    "bertkit.habits.sentences.sentence_transformer": "SentenceTransformer",
    "bertkit.habits.sentences.sparse_encoder": "SparseEncoder",
}
_MODULES = tuple(
    """
    cross_encoder datasets evaluation losses models modules quantization readers sentence_transformer
    similarity_functions sparse_encoder trainer training_args util
    """.split()
)
__getattr__, __all__ = lazy_names(__name__, _NAMES, _MODULES)
