"""What sits on top of the encoder: pooler, masked LM, next sentence. Task classifiers are single linear layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.config import BertConfig
from bertkit.model.encoder import ACTIVATIONS
from bertkit.model.linear import Linear


class Pooler(nn.Module):
    """tanh of a linear layer on the vector of [CLS] (Devlin et al. 2019, section 3: "C")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_BD: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, D)`` in (-1, 1)."""
        return torch.tanh(self.dense(cls_BD))


class MaskedLMTransform(nn.Module):
    """Linear, activation, LayerNorm before the vocabulary projection."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]

    def forward(self, x_RD: Tensor) -> Tensor:
        """``(R, D)`` to ``(R, D)``."""
        return self.LayerNorm(self.activation(self.dense(x_RD)))  # type: ignore[no-any-return]


class MaskedLMHead(nn.Module):
    """Scores of every word piece; the projection is the table of word embeddings (appendix A.2 of the paper's code)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = MaskedLMTransform(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, x_RD: Tensor, word_embeddings_VD: Tensor) -> Tensor:
        """``(R, D)`` to logits ``(R, V)``. R rows are chosen by the caller: in training only the masked ones."""
        return F.linear(self.transform(x_RD), word_embeddings_VD, self.bias)


class PreTrainingHeads(nn.Module):
    """Masked LM, next sentence, or both; a model has the part it asks for."""

    def __init__(self, config: BertConfig, *, masked_lm: bool = False, next_sentence: bool = False) -> None:
        super().__init__()
        if masked_lm:
            self.predictions = MaskedLMHead(config)
        if next_sentence:
            self.seq_relationship = Linear(config.hidden_size, 2)
