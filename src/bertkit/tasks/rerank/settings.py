"""The settings of rerankers."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import RankLoss, Use
from bertkit.system.validated_settings import Field, Settings


class RerankTaskSettings(Settings):
    """Beside those that all kinds have."""

    rank_loss: Annotated[RankLoss, Use("rerankers (rerank)")] = Field(
        "listwise",
        description="rerank: listwise: softmax over a query's documents; pointwise: each document by itself, labels "
        "from 0 to 1, so that a score is a probability; lambda: NDCG-Loss2++, for grades",
    )
