"""``util`` of sentence-transformers: see :mod:`bertkit.habits.sentences.compared_vectors`."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.compared_vectors": """
        batch_to_device community_detection cos_sim dot_score euclidean_sim manhattan_sim normalize_embeddings
        pairwise_angle_sim pairwise_cos_sim pairwise_dot_score pairwise_euclidean_sim pairwise_manhattan_sim
        paraphrase_mining paraphrase_mining_embeddings pytorch_cos_sim quantize_embeddings semantic_search
        truncate_embeddings
    """,
    "bertkit.habits.sentences.sentence_options": "SimilarityFunction",
}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="util")
