"""``losses`` of sentence-transformers: see :mod:`bertkit.habits.sentences.comparison_losses`."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

_NAMES = {
    "bertkit.habits.sentences.comparison_losses": """
        AnglELoss CachedMultipleNegativesRankingLoss CoSENTLoss ContrastiveLoss CosineSimilarityLoss MatryoshkaLoss
        MultipleNegativesRankingLoss MultipleNegativesSymmetricRankingLoss OnlineContrastiveLoss SiameseDistanceMetric
        TripletDistanceMetric TripletLoss
    """,
}
__getattr__, __all__ = lazy_names(__name__, _NAMES, entry="losses")
