"""Attention with a learned bias for the distance of two tokens: MPNet (Song et al. 2020), after T5.

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   R chosen rows   N heads   H width of one head   D = N * H; of a bias: distances
    S longest sequence   s length of one sequence
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.attention import SelfAttention, attention_probabilities
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.relative_positions import square_bias, t5_buckets

#: Rows of the table, and the distance from which all share one: constants of MPNet.
NUM_BUCKETS, MAX_DISTANCE = 32, 128


class DistanceBias(nn.Module):
    """One table for all layers: a bias for each head and distance of key and query."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_BUCKETS, config.num_attention_heads)

    def forward(self, x_TD: Tensor, layout: Layout, position_ids: Tensor | None = None) -> Tensor:
        """The bias of the distances ``1 - S ... S - 1`` in tokens, key minus query, ``(N, 2S - 1)``."""
        distances = torch.arange(1 - layout.max_seqlen, layout.max_seqlen, device=x_TD.device)
        rows = t5_buckets(distances, NUM_BUCKETS, MAX_DISTANCE, bidirectional=True)
        return self.table(rows).t().to(x_TD.dtype)  # type: ignore[no-any-return]


class BiasedAttention(SelfAttention):
    """Self-attention whose scaled scores get the bias of their distance."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.attend_biased = attend_bucketed

    def forward(  # type: ignore[override]  # the layer hands over what DistanceBias gives
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None, want_probs: bool, bias_ND: Tensor
    ) -> tuple[Tensor, list[Tensor] | None]:
        qkv_T3NH = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))
        out_RNH = self.attend_biased(qkv_T3NH, layout, self.dropout.rate(), rows, bias_ND=bias_ND)
        probs = (
            [self._biased_probs(qkv_T3NH[start:end], bias_ND) for start, end in layout.spans()] if want_probs else None
        )
        return self.out(out_RNH.flatten(1)), probs

    def _biased_probs(self, qkv_s3NH: Tensor, bias_ND: Tensor) -> Tensor:
        q_sNH, k_sNH, _ = qkv_s3NH.unbind(1)
        return attention_probabilities(q_sNH, k_sNH, square_bias(bias_ND, len(q_sNH)))
