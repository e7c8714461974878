"""Self-attention over packed sequences; Vaswani et al. 2017, section 3.2.

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   R chosen rows   N heads   H width of one head   D = N * H
    s length of one sequence   q, k its queries and keys
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout, dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.varlen_attention import attend_packed
from bertkit.model.published_parts import AttentionParts

#: ``(qkv, layout, dropout rate, rows) -> out``: query, key and value of each token, ``(T, 3, N, H)``, to ``(T, N, H)``,
#: or to ``(R, N, H)`` for chosen rows. Dropout acts on the probabilities, not on the output (Devlin et al. 2019).
Kernel = Callable[[Tensor, Layout, float, ChosenRows | None], Tensor]


def attention_probabilities(q_sNH: Tensor, k_sNH: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    """Softmax of the scaled dot products of one sequence plus ``bias``: ``(N, s, s)``, rows sum to 1."""
    scores_Nss = torch.einsum("qnh,knh->nqk", q_sNH, k_sNH) / math.sqrt(q_sNH.shape[-1])
    return (scores_Nss + bias).softmax(dim=-1)


def attend_reference(qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None) -> Tensor:
    """One sequence at a time, as in the paper. Slow; the kernels in use are tested against it."""
    out = []
    for start, end in layout.spans():
        q_sNH, k_sNH, v_sNH = qkv_T3NH[start:end].unbind(1)
        probs_Nss = attention_probabilities(q_sNH, k_sNH)
        out.append(torch.einsum("nqk,knh->qnh", dropout(probs_Nss, p), v_sNH))
    out_TNH = torch.cat(out)
    return out_TNH if rows is None else out_TNH[rows.rows]


class SelfAttention(AttentionParts):
    """Multi-head self-attention; query, key and value are one matrix product."""

    def __init__(self, config: BertConfig, attend: Kernel = attend_packed) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        has_bias = config.attention_bias is not False
        self.qkv = Linear(config.hidden_size, 3 * config.hidden_size, bias=has_bias)
        self.out = Linear(config.hidden_size, config.hidden_size, bias=has_bias)
        self.dropout = Dropout(config.attention_probs_dropout_prob)
        self.attend = attend

    def forward(
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None = None, want_probs: bool = False
    ) -> tuple[Tensor, list[Tensor] | None]:
        """``(T, D)`` to ``(T, D)``, or ``(R, D)`` at chosen rows; before dropout and residual.

        With ``want_probs`` also the probabilities of every sequence, B tensors ``(N, s, s)``.
        """
        qkv_T3NH = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))
        out_RNH = self.attend(qkv_T3NH, layout, self.dropout.rate(), rows)
        probs = None
        if want_probs:
            probs = [self._probabilities(qkv_T3NH[start:end]) for start, end in layout.spans()]
        return self.out(out_RNH.flatten(1)), probs

    def _probabilities(self, qkv_s3NH: Tensor) -> Tensor:
        """Of one sequence, ``(N, s, s)``."""
        q_sNH, k_sNH, _ = qkv_s3NH.unbind(1)
        return attention_probabilities(q_sNH, k_sNH)
