"""What sits on top of the encoder: pooler, masked LM, next sentence. Classifiers are linear layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.products import linear


class Pooler(nn.Module):
    """tanh of a linear layer on the vector of [CLS] (Devlin et al. 2019, section 3: "C").

    The sequence classifiers of RoBERTa, DistilBERT and ELECTRA have their own, with another activation or dropout.
    """

    def __init__(self, config: BertConfig, activation: str = "tanh", p: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(p)
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[activation]

    def forward(self, cls_BD: Tensor) -> Tensor:
        """``(B, D)`` to ``(B, D)``; of vectors of all tokens ``(B, S, D)``, as in ``transformers``, the first count."""
        cls_BD = cls_BD[:, 0] if cls_BD.ndim == 3 else cls_BD
        return self.activation(self.dense(self.dropout(cls_BD)))


class MaskedLMTransform(nn.Module):
    """Linear, activation, LayerNorm before the vocabulary projection; ModernBERT has such a layer before every head."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.embedding_width
        self.dense = Linear(config.hidden_size, width, bias=config.classifier_bias is not False)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.norm_bias is not False)
        self.activation = ACTIVATIONS[config.classifier_activation or config.family.words_act or config.hidden_act]

    def forward(self, x_RD: Tensor) -> Tensor:
        """``(R, D)`` to ``(R, E)``."""
        return self.LayerNorm(self.activation(self.dense(x_RD)))  # type: ignore[no-any-return]


class MaskedLMHead(nn.Module):
    """Scores of every word piece by the table of words, or one of its own (``get_masked_lm_output`` of BERT's code)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.transform = MaskedLMTransform(config)
        self.bias = None if config.decoder_bias is False else nn.Parameter(torch.zeros(config.vocab_size))
        shape = (config.vocab_size, config.embedding_width)
        self.decoder = nn.Parameter(torch.zeros(shape)) if config.has_own_decoder else None

    def forward(self, x_RD: Tensor, word_embeddings_VE: Tensor) -> Tensor:
        """``(R, D)`` to logits ``(R, V)``. R rows are chosen by the caller: in training only the masked ones."""
        table_VE = word_embeddings_VE if self.decoder is None else self.decoder
        return linear(self.transform(x_RD), table_VE, self.bias)


class PreTrainingHeads(nn.Module):
    """Masked LM, next sentence (ALBERT: sentence order), or both; a model has the part it asks for."""

    def __init__(self, config: BertConfig, *, masked_lm: bool = False, next_sentence: bool = False) -> None:
        super().__init__()
        if masked_lm:
            if not (config.tie_word_embeddings or config.has_own_decoder):
                raise ConfigError(
                    "tie_word_embeddings is False, but bertkit's masked LM always shares the table of word embeddings; "
                    "load the encoder or a classifier of this checkpoint, or leave the field out of a new model"
                )
            self.predictions = MaskedLMHead(config)
        if next_sentence:
            assert config.family.pair_label is not None, "the classes with this head say which families have it"
            self.dropout = Dropout(config.head_dropout("pair"))
            self.seq_relationship = Linear(config.hidden_size, 2)

    def follows(self, pooled_BD: Tensor) -> Tensor:
        """Pooled vectors ``(B, D)`` to scores ``(B, 2)``: 0 = B follows A, 1 = it does not."""
        return self.seq_relationship(self.dropout(pooled_BD))  # type: ignore[no-any-return]
