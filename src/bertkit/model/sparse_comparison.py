"""What trains sparse vectors (SPLADE, Formal et al. 2021): in-batch negatives, and a penalty for many words.

Letters of the array shapes: A different anchors, K candidates, U texts in all, V words of the vocabulary.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.checkpoints.sparse_folder import SparseSettings, sparse_files
from bertkit.model.cached_vectors import vectors_in_parts
from bertkit.model.losses import LossOutput, LossTerm
from bertkit.model.models import BertForMaskedLM
from bertkit.model.text_comparison import ComparedTexts
from bertkit.model.word_weights import flops_loss, word_weights
from bertkit.system.atomic_files import write_atomically
from bertkit.system.paths import user_path

#: Share of the steps over which the penalties grow (Formal et al. 2021: a third).
RAMP = 1 / 3
#: Tokens whose logits are in memory at once while gradients are computed: 125 MB for 30,522 words.
MAX_TOKENS = 1024


class SparseComparison(nn.Module):
    """A masked LM in training as a sparse encoder.

    The loss ``search`` is the cross-entropy of finding each anchor's positive among all other texts of the batch by the
    dot product of their weights (SPLADE v2, arXiv 2109.10086, equation 5); ``flops`` is
    :func:`bertkit.model.word_weights.flops_loss` of the anchors, and that of the other texts, times their strengths,
    which grow with the square of the step up to :data:`RAMP` of all steps.

    num_words: tokens of the tokenizer, which alone get weights; None: every row of the table of words.
    """

    #: The name by which settings refer to this kind of model.
    kind: ClassVar[str] = "embedding"

    def __init__(
        self,
        network: BertForMaskedLM,
        settings: SparseSettings,
        *,
        query_flops: float,
        document_flops: float,
        num_words: int | None = None,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        super().__init__()
        self.network, self.settings, self.max_tokens = network, settings, min(max_tokens, MAX_TOKENS)
        self.query_flops, self.document_flops, self.num_words = query_flops, document_flops, num_words
        #: Share of the training's steps that are done, from which the strengths follow.
        self.progress = 0.0

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the masked LM and what makes it a sparse encoder; the tokenizer is saved by itself."""
        self.network.save_pretrained(folder)
        for name, content in sparse_files(self.settings, self.network.config.vocab_size).items():
            file = user_path(folder) / name
            file.parent.mkdir(exist_ok=True)
            write_atomically(file, json.dumps(content, indent=2) + "\n")

    def weights(self, batch: ComparedTexts) -> Tensor:
        """The weights of the words of each text, ``(U, V)``."""
        settings = self.settings
        return vectors_in_parts(
            lambda texts: word_weights(self.network, texts, settings.pooling, settings.logs)[:, : self.num_words],
            batch.texts,
            self.max_tokens,
        )

    def forward_packed(self, batch: ComparedTexts) -> LossOutput:
        """The losses of a batch."""
        weights_UV = self.weights(batch)
        with torch.autocast(weights_UV.device.type, enabled=False):
            anchors_AV, others_KV = weights_UV[: batch.num_anchors], weights_UV[batch.num_anchors :]
            scores_AK = anchors_AV @ others_KV.t()
            places_B = batch.columns[:, 1] - batch.num_anchors
            search = F.cross_entropy(scores_AK[batch.columns[:, 0]], places_B, reduction="sum")
            ramp = min(1.0, self.progress / RAMP) ** 2
            penalty = self.query_flops * flops_loss(anchors_AV) + self.document_flops * flops_loss(others_KV)
            terms = {"search": LossTerm(search, float(len(places_B))), "flops": LossTerm(ramp * penalty, 1.0)}
        return LossOutput(terms)

    def num_targets(self, batch: ComparedTexts) -> dict[str, float]:
        """What each loss is divided by."""
        return {"search": float(len(batch.columns)), "flops": 1.0}
