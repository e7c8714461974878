"""What trains a sentence encoder: the vectors of a batch of texts, and a loss that compares them.

Letters of the array shapes: B rows, C texts of a row, A different anchors, U texts in all, D width of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.reading_settings import LossName
from bertkit.model.cached_vectors import vectors_in_parts
from bertkit.model.losses import LossOutput, LossTerm
from bertkit.model.sentence_model import SentenceModel
from bertkit.model.vector_losses import (
    TEMPERATURE,
    Distance,
    angle_similarities,
    at_widths,
    contrastive_loss,
    cosent_loss,
    cosine_loss,
    cosines,
    in_batch_loss,
    online_contrastive_loss,
    triplet_loss,
)


@dataclass(frozen=True, slots=True)
class ComparedTexts:
    """A batch of rows of texts that are compared.

    texts: U texts, packed: first the A different anchors, then the different texts that they are compared with.
    columns: int64 ``(B, C)``, number of each row's anchor, positive and negatives; -1 where a row has fewer.
    scores: float ``(B,)``, how alike the two texts of a row are.
    """

    texts: Batch
    columns: Tensor
    num_anchors: int
    scores: Tensor | None = None

    def to(self, device: torch.device | str) -> ComparedTexts:
        """The same batch on ``device``."""
        scores = None if self.scores is None else self.scores.to(device)
        return ComparedTexts(self.texts.to(device), self.columns.to(device), self.num_anchors, scores)


@dataclass(frozen=True, slots=True)
class Objective:
    """Which loss, and its settings; see :mod:`bertkit.model.vector_losses`.

    widths: the loss is the sum over vectors shortened to each of these widths; empty: that of whole vectors.
    scores: lowest and highest, for which the loss "cosine" wants cosines of 0 and 1; the labels 0 and 1 of
        "contrastive" and "online-contrastive".
    """

    loss: LossName
    temperature: float = TEMPERATURE
    symmetric: bool = False
    margin: float = 0.1
    distance: Distance = "cosine"
    widths: tuple[int, ...] = ()
    scores: tuple[float, float] = (0.0, 1.0)

    def num_targets(self, batch: ComparedTexts) -> float:
        """What the sum of a batch's loss is divided by."""
        if self.loss in ("cosent", "angle", "online-contrastive"):
            return 1.0
        return float((batch.columns[:, 2:] >= 0).sum() if self.loss == "triplet" else len(batch.columns))

    def term(self, vectors_UD: Tensor, batch: ComparedTexts) -> LossTerm:
        """The loss of a batch whose texts have these vectors."""
        widths = self.widths or vectors_UD.shape[-1:]
        return at_widths(lambda vectors: self._term(vectors[0], batch), [vectors_UD], widths)

    def _term(self, vectors_UD: Tensor, batch: ComparedTexts) -> LossTerm:
        anchors_BD, positives_BD = vectors_UD[batch.columns[:, 0]], vectors_UD[batch.columns[:, 1]]
        if self.loss == "in-batch":
            places_B = batch.columns[:, 1] - batch.num_anchors
            return in_batch_loss(
                anchors_BD,
                vectors_UD[batch.num_anchors :],
                places_B,
                temperature=self.temperature,
                symmetric=self.symmetric,
            )
        if self.loss == "triplet":
            negatives = batch.columns[:, 2:]
            rows = (negatives >= 0).nonzero()[:, 0]
            negatives_ND = vectors_UD[negatives[negatives >= 0]]
            texts = anchors_BD[rows], positives_BD[rows], negatives_ND
            return triplet_loss(*texts, margin=self.margin, distance=self.distance)
        assert batch.scores is not None, "rows without a score were refused"
        if self.loss in ("cosent", "angle"):
            similarities = angle_similarities if self.loss == "angle" else cosines
            return cosent_loss(
                anchors_BD, positives_BD, batch.scores, temperature=self.temperature, similarities=similarities
            )
        lowest, highest = self.scores
        scores_B = (batch.scores - lowest) / (highest - lowest)
        if self.loss == "cosine":
            return cosine_loss(anchors_BD, positives_BD, scores_B)
        contrast = contrastive_loss if self.loss == "contrastive" else online_contrastive_loss
        return contrast(anchors_BD, positives_BD, scores_B, margin=self.margin, distance=self.distance)


class TextComparison(nn.Module):
    """A sentence encoder in training; at most ``max_tokens`` tokens are computed at once, with the same result."""

    #: The name by which settings refer to this kind of model.
    kind: ClassVar[str] = "embedding"

    def __init__(self, sentences: SentenceModel, objective: Objective, max_tokens: int = 4096) -> None:
        super().__init__()
        self.sentences, self.objective, self.max_tokens = sentences, objective, max_tokens

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the sentence model; the tokenizer is saved by itself."""
        self.sentences.save_pretrained(folder)

    def forward_packed(self, batch: ComparedTexts) -> LossOutput:
        """The loss of a batch."""
        vectors_UD = vectors_in_parts(self.sentences, batch.texts, self.max_tokens)
        with torch.autocast(vectors_UD.device.type, enabled=False):
            return LossOutput({"loss": self.objective.term(vectors_UD, batch)})

    def num_targets(self, batch: ComparedTexts) -> dict[str, float]:
        """What the loss is divided by."""
        return {"loss": self.objective.num_targets(batch)}
