"""A sentence encoder that is trained on the vectors of another.

Letters of the array shapes: N texts, B texts of a batch, D width of the teacher's vectors, W of the student's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from bertkit.batch import Batch
from bertkit.checkpoints.huggingface import checkpoint_folder
from bertkit.config.sentence_config import Dense, Normalize, SentenceConfig
from bertkit.errors import ConfigError
from bertkit.model.losses import LossOutput, LossTerm
from bertkit.model.sentence_model import SentenceModel
from bertkit.model.vector_losses import cosines
from bertkit.ragged import Floats
from bertkit.tasks.embeddings.start_model import said_by
from bertkit.training.distillation.distill_settings import VectorTraining

#: Name of the teacher's vectors among the targets of a batch.
VECTORS = "vectors"


class TaughtVectors(nn.Module):
    """A sentence encoder in training; the loss of a batch is the mean over its texts.

    loss: ``mse``: the squared distance from the teacher's vector, summed over its numbers; ``cosine``: 1 - cosine.
    """

    def __init__(self, sentences: SentenceModel, loss: Literal["mse", "cosine"]) -> None:
        super().__init__()
        self.sentences, self.loss = sentences, loss

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The loss of a batch with the target ``vectors`` ``(B, W)``."""
        found_BW = self.sentences(replace(batch, targets={}))
        wanted_BW = batch.targets[VECTORS]
        with torch.autocast(found_BW.device.type, enabled=False):
            if self.loss == "mse":
                total = (found_BW.float() - wanted_BW).square().sum()
            else:
                total = (1 - cosines(found_BW.float(), wanted_BW)).sum()
        return LossOutput({"loss": LossTerm(total, float(len(wanted_BW)))})

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """Texts."""
        return {"loss": float(len(batch.targets[VECTORS]))}


def ends_normalized(config: SentenceConfig) -> bool:
    """Whether a model's vectors have length 1."""
    return bool(config.steps) and isinstance(config.steps[-1], Normalize)


def student_model(
    start: Path, teacher: SentenceConfig, width: int, config: VectorTraining, normalized: bool
) -> SentenceModel:
    """The student with what follows its encoder: pooling, a linear layer if it is wider than the teacher, length 1.

    Args:
        start: a checkpoint. One of sentence-transformers keeps its pooling and its own dense layers; any other is
            pooled as the teacher is.
        teacher: how the teacher makes vectors.
        width: numbers of the teacher's vectors.
        config: length of texts, and the seed of new weights.
        normalized: whether the teacher's vectors have length 1, so that the student's must.

    Raises:
        ConfigError: a student with dense layers of its own whose vectors are wider than the teacher's.
    """
    said = said_by(checkpoint_folder(start))
    own = said or SentenceConfig(pooling=teacher.pooling)
    if any(not isinstance(step, Normalize) for step in own.steps):
        made = SentenceModel.from_pretrained(start)
        if made.head.width > width:
            raise ConfigError(
                f"the student {start} makes vectors of {made.head.width} numbers by layers of its own, the teacher of "
                f"{width}; begin with its encoder alone, without modules.json"
            )
        return made
    encoder = SentenceModel.from_pretrained(start, SentenceConfig(pooling=own.pooling)).encoder
    pooled = encoder.config.hidden_size * len(own.pooling)
    steps: list[Dense | Normalize] = []
    if pooled > width:
        steps.append(Dense(in_features=pooled, out_features=width, activation="Identity"))
    steps += [Normalize()] if normalized else []
    sentence = SentenceConfig(
        pooling=own.pooling, steps=tuple(steps), similarity=teacher.similarity, max_length=config.max_length
    )
    return SentenceModel(encoder, sentence, seed=config.seed)


def narrowing(vectors_ND: Floats, width: int) -> tuple[Floats | None, float]:
    """The directions ``(D, W)`` in which the vectors are longest, and what share of their squared length they hold.

    The first W of principal component analysis without subtracting the mean, which keeps dot products best of all
    projections (Eckart & Young 1936). None and 1 where the vectors are no wider.
    """
    if vectors_ND.shape[1] <= width:
        return None, 1.0
    wide = vectors_ND.astype(np.float64)
    values, directions_DD = np.linalg.eigh(wide.T @ wide)
    chosen_DW = directions_DD[:, ::-1][:, :width]
    largest = np.abs(chosen_DW).argmax(axis=0)
    chosen_DW = chosen_DW * np.sign(chosen_DW[largest, np.arange(width)])  # whose sign is arbitrary
    return chosen_DW.astype(np.float32), float(values[::-1][:width].sum() / values.sum())
