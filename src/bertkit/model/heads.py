"""What sits on top of the encoder: pooler, masked LM, next sentence. Classifiers are linear layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.config.sentence_config import PoolingMode
from bertkit.errors import ConfigError
from bertkit.model.encoder import ACTIVATIONS
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
        """``(B, D)`` to ``(B, D)``."""
        return self.activation(self.dense(self.dropout(cls_BD)))


def pool_tokens(x_TD: Tensor, layout: Layout, mode: str, skipped: int = 0) -> Tensor:
    """Token vectors to one vector of each sequence, [CLS] and [SEP] included, ``(B, D)``.

    Modes as in sentence-transformers (Reimers & Gurevych 2019, section 3): ``cls`` the first token, ``lasttoken`` the
    last, ``max`` and ``mean`` over all, ``mean_sqrt_len_tokens`` the sum over the root of their number,
    ``weightedmean`` by position, counted from 1 (Muennighoff 2022). ``skipped``: first tokens of each sequence that are
    left out, their positions counted; no sequence is as short.
    """
    sequences = x_TD.split(layout.lengths)
    if skipped:
        sequences = tuple(x_SD[skipped:] for x_SD in sequences)
    return torch.stack([_POOL[mode](x_SD, skipped) for x_SD in sequences])


def pool_sentences(x_TD: Tensor, layout: Layout, modes: Sequence[PoolingMode], skipped: int = 0) -> Tensor:
    """What each mode of :func:`pool_tokens` gives, side by side: ``(B, D * modes)``."""
    return torch.cat([pool_tokens(x_TD, layout, mode, skipped) for mode in modes], dim=1)


def _by_position(x_SD: Tensor, skipped: int) -> Tensor:
    weights_S = torch.arange(1 + skipped, 1 + skipped + len(x_SD), dtype=torch.float32, device=x_SD.device)
    return (weights_S / weights_S.sum()).to(x_SD.dtype) @ x_SD


_POOL: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cls": lambda x_SD, skipped: x_SD[0],
    "max": lambda x_SD, skipped: x_SD.amax(dim=0),
    "mean": lambda x_SD, skipped: x_SD.mean(dim=0),
    "mean_sqrt_len_tokens": lambda x_SD, skipped: x_SD.sum(dim=0) / len(x_SD) ** 0.5,
    "weightedmean": _by_position,
    "lasttoken": lambda x_SD, skipped: x_SD[-1],
}


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
    """Scores of every word piece by the table of word embeddings (``get_masked_lm_output`` of google-research/bert).

    Where the config does not tie them, by a table of its own.
    """

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
    """Masked LM, next sentence (ALBERT: sentence order), or both; a model has the part it asks for.

    Raises:
        ConfigError: a masked LM that is not tied to the embeddings, where the family's always is.
    """

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
