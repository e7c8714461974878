"""The settings of embeddings."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import LossName, Use
from bertkit.config.sentence_config import checked_prompt
from bertkit.system.validated_settings import Field, Settings


class EmbeddingTaskSettings(Settings):
    """Beside those that all kinds have."""

    loss: Annotated[LossName | None, Use("embeddings (pairs, triplets, scored-pairs)", everyday=True)] = Field(
        None,
        description="pairs, triplets: in-batch (default: all other texts of a batch are negatives) or triplet; "
        "scored-pairs: cosent (default: the order of the scores), angle (the same by angles), cosine (their values), "
        "contrastive or online-contrastive (the same of hard pairs) for the scores 1 and 0",
    )
    temperature: Annotated[float | None, Use("embeddings with the loss in-batch, cosent or angle")] = Field(
        None, gt=0, le=10, description="in-batch, cosent, angle: cosines are divided by it; default 0.05"
    )
    symmetric: Annotated[bool, Use("embeddings with the loss in-batch")] = Field(
        False, description="in-batch: positives are matched with anchors, too"
    )
    margin: Annotated[float | None, Use("embeddings with the loss triplet or contrastive")] = Field(
        None,
        gt=0,
        le=2,
        description="triplet: margin between the cosines of positive and negative, default 0.1; contrastive, "
        "online-contrastive: 1 - cosine from which pairs of score 0 are apart, default 0.5",
    )
    matryoshka: Annotated[str | None, Use("embeddings (pairs, triplets, scored-pairs)", everyday=True)] = Field(
        None,
        pattern=r"^[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*$",
        description="smaller vector widths that are trained as well, such as 256,128,64",
    )
    mine_negatives: Annotated[int | None, Use("embeddings of pairs", everyday=True)] = Field(
        None,
        ge=1,
        le=100,
        description="pairs: hard negatives per row that the model finds among the texts before training",
    )
    max_negative: Annotated[float | None, Use("embeddings of pairs with mine_negatives")] = Field(
        None,
        gt=0,
        le=1,
        description="of mined negatives: the largest share of the positive's cosine that a negative may have; "
        "default 0.95",
    )
    query_prompt: Annotated[str | None, Use("embeddings of pairs and triplets")] = Field(
        None, description="pairs, triplets: prefix of each anchor; saved with the model. Default: the model's"
    )
    document_prompt: Annotated[str | None, Use("embeddings of pairs and triplets")] = Field(
        None, description="pairs, triplets: prefix of the other texts; likewise"
    )

    def _check(self) -> None:
        super()._check()
        for prompt in (self.query_prompt, self.document_prompt):
            checked_prompt(prompt or "")
