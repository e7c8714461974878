"""The layer of ModernBERT (Warner et al. 2024, section 2.1): normalized before each half, with a gated feed-forward."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.attention import SelfAttention
from bertkit.model.encoder import EncoderLayer
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout, add_dropout
from bertkit.model.kernels.linear import Linear


class GatedLayer(EncoderLayer):
    """``x = x + drop(attention(norm(x)))``, then ``x = x + down(drop(act(a) * b))`` where ``a, b = up(norm(x))``.

    The gate is that of Shazeer 2020, "GEGLU". The first layer reads the embeddings, which are normalized already.
    """

    published: ClassVar = {}

    def __init__(self, config: BertConfig, attention: SelfAttention, number: int) -> None:
        nn.Module.__init__(self)  # whose parts have other sizes than those of BERT's layer
        width, inner, has_bias = config.hidden_size, config.intermediate_size, bool(config.mlp_bias)
        self.attention = attention
        self.attention_norm = nn.Identity() if number == 0 else norm_of(config)
        self.ffn_norm = norm_of(config)
        self.ffn_up = Linear(width, 2 * inner, bias=has_bias)
        self.ffn_down = Linear(inner, width, bias=has_bias)
        self.dropout = Dropout(config.mlp_dropout or 0.0)
        self.attention_dropout = Dropout(config.attention_probs_dropout_prob)
        self.hidden_act = config.hidden_act
        # What is added to the residual stream starts smaller the more layers there are.
        for linear in (attention.out, self.ffn_down):
            linear.init_scale = 1 / math.sqrt(2 * config.num_hidden_layers)

    def forward(
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None = None, want_probs: bool = False, *positions: Any
    ) -> tuple[Tensor, list[Tensor] | None]:
        attended, probs = self.attention(self.attention_norm(x_TD), layout, rows, want_probs, *positions)
        return self.after_attention(x_TD if rows is None else x_TD.index_select(0, rows.rows), attended), probs

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = add_dropout(x, attended, self.attention_dropout.rate())
        a, b = self.ffn_up(self.ffn_norm(x)).chunk(2, dim=-1)
        inner = ACTIVATIONS[self.hidden_act](a) * b
        return x + self.ffn_down(self.dropout(inner))  # type: ignore[no-any-return]


def norm_of(config: BertConfig) -> nn.LayerNorm:
    """A LayerNorm as wide as the encoder, with a bias if the config says so."""
    return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=bool(config.norm_bias))
