"""Attention to one side: of a left-to-right model, as GPT's (Radford et al. 2018), or of a right-to-left one.

Devlin et al. 2019 compare BERT with both (section 5.1). A score of a hidden token gets a bias far below any other, so
that its probability is 0 exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig, Direction
from bertkit.model.attention import SelfAttention, attention_probabilities
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import attend_varlen, varlen_fits

#: Added to the score of a hidden token: in 16 bits as well, no number, no gradient is left of it. Not -inf, because
#: padding may hide all that a row of a bucket would see, and a softmax of such a row is not a number.
_HIDDEN = -30_000.0


class OneWayAttention(SelfAttention):
    """Self-attention of each token to itself and to those on one side of it, as ``attention_direction`` says."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config, OneWay(config.attention_direction))
        self.direction = config.attention_direction

    def _probabilities(self, qkv_s3NH: Tensor) -> Tensor:
        q_sNH, k_sNH, _ = qkv_s3NH.unbind(1)
        return attention_probabilities(q_sNH, k_sNH, hidden_bias(len(q_sNH), self.direction).to(q_sNH))


@dataclass(frozen=True)
class OneWay:
    """The kernel for one direction; equal to another of the same direction, also after it was copied."""

    direction: Direction

    def __call__(self, qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None) -> Tensor:
        """As a :data:`~bertkit.model.attention.Kernel`."""
        if self.direction == "left-to-right" and varlen_fits(qkv_T3NH):  # the other window is not documented
            out_TNH = attend_varlen(qkv_T3NH, layout, p, window=(-1, 0))
            return out_TNH if rows is None else out_TNH.index_select(0, rows.rows)
        bias_1D = _distance_bias(layout.max_seqlen, self.direction, qkv_T3NH.device)
        return attend_bucketed(qkv_T3NH, layout, p, rows, bias_ND=bias_1D)


def hidden_bias(length: int, direction: Direction) -> Tensor:
    """What is added to the scores of one sequence, ``(s, s)``: 0 where a query may see a key."""
    seen_ss = torch.ones(length, length, dtype=torch.bool)
    seen_ss = seen_ss.tril() if direction == "left-to-right" else seen_ss.triu()
    return torch.zeros(length, length).masked_fill(~seen_ss, _HIDDEN)


@lru_cache(maxsize=64)
@torch.inference_mode(False)  # training may reuse what an evaluation put in the cache, and must be able to save it
def _distance_bias(length: int, direction: Direction, device: torch.device) -> Tensor:
    """The same by the distance of a key from its query, ``(1, 2s - 1)``, column ``s - 1`` for distance 0."""
    distance_D = torch.arange(1 - length, length, device=device)
    hidden_D = distance_D > 0 if direction == "left-to-right" else distance_D < 0
    return torch.zeros(1, len(distance_D), device=device).masked_fill(hidden_D, _HIDDEN)
