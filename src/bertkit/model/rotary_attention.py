"""Attention with rotary positions (Su et al. 2021), to all tokens or in a window: ModernBERT (Warner et al. 2024).

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   R chosen rows   N heads   H width of one head   h = H / 2
    s length of one sequence
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertkit.batch import Layout, positions_of
from bertkit.config.bert_config import BertConfig
from bertkit.config.family_forms import THETAS
from bertkit.model.attention import Kernel, SelfAttention, attention_probabilities
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import attend_packed
from bertkit.model.kernels.windowed_attention import attend_windowed, outside_window

#: For each type of layer, cosine and sine of the angles of each token, ``(T, 1, h)`` each.
Angles = dict[str, tuple[Tensor, Tensor]]


class RotaryPositions(nn.Module):
    """The angles by which queries and keys are turned; they have no weights, and are computed once for all layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.thetas = {kind: float(getattr(config, THETAS[kind])) for kind in sorted(set(config.layer_kinds))}

    def forward(self, x_TD: Tensor, layout: Layout, position_ids: Tensor | None = None) -> Angles:
        """Angles of the tokens at ``position_ids`` ``(T,)``, float32; None counts from 0 in each sequence."""
        places = positions_of(layout.lengths) if position_ids is None else position_ids
        places_T1 = places.to(x_TD.device)[:, None].float()
        steps_h = torch.arange(0, self.head_size, 2, device=x_TD.device).float() / self.head_size
        # Not theta**-steps_h: its last bits differ from what such models were trained with.
        angles = {kind: places_T1 * (1.0 / theta**steps_h) for kind, theta in self.thetas.items()}
        return {kind: (a.cos()[:, None].to(x_TD.dtype), a.sin()[:, None].to(x_TD.dtype)) for kind, a in angles.items()}


class RotaryAttention(SelfAttention):
    """Self-attention of queries and keys turned by their positions, so that a score depends on the distance.

    kind: the type of the layer; ``"sliding_attention"`` attends to ``local_attention // 2`` tokens on each side.
    """

    def __init__(self, config: BertConfig, kind: str) -> None:
        reach = config.reach_of(kind)
        super().__init__(config, kernel_of(reach))
        self.kind, self.reach = kind, reach

    def forward(  # type: ignore[override]  # the layer hands over what RotaryPositions gives
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None, want_probs: bool, angles: Angles
    ) -> tuple[Tensor, list[Tensor] | None]:
        qkv_T3NH = rotate(self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1)), *angles[self.kind])
        out_RNH = self.attend(qkv_T3NH, layout, self.dropout.rate(), rows)
        probs = [self._probabilities(qkv_T3NH[start:end]) for start, end in layout.spans()] if want_probs else None
        return self.out(out_RNH.flatten(1)), probs

    def _probabilities(self, qkv_s3NH: Tensor) -> Tensor:
        q_sNH, k_sNH, _ = qkv_s3NH.unbind(1)
        if self.reach is None or len(q_sNH) <= self.reach + 1:
            return attention_probabilities(q_sNH, k_sNH)
        place_s = torch.arange(len(q_sNH), device=q_sNH.device)
        hidden_ss = outside_window(place_s, place_s, self.reach)
        return attention_probabilities(
            q_sNH, k_sNH, q_sNH.new_zeros(hidden_ss.shape).masked_fill(hidden_ss, -torch.inf)
        )


def kernel_of(half: int | None) -> Kernel:
    """Attention to tokens at most ``half`` away; None: to all."""
    return attend_packed if half is None else Windowed(half)


@dataclass(frozen=True)
class Windowed:
    """:func:`attend_windowed` for one width; equal to another of the same width, also after it was copied."""

    half: int

    def __call__(self, qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None) -> Tensor:
        """As a :data:`~bertkit.model.attention.Kernel`."""
        return attend_windowed(qkv_T3NH, layout, p, rows, half=self.half)


def rotate(qkv_T3NH: Tensor, cos_T1h: Tensor, sin_T1h: Tensor) -> Tensor:
    """Queries and keys with their numbers i and i + h turned by the i-th angle of the token; values as they are."""
    qk_T2NH, v_T1NH = qkv_T3NH.split([2, 1], dim=1)
    cos, sin = cos_T1h[:, None], sin_T1h[:, None]
    first, second = qk_T2NH.chunk(2, dim=-1)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return torch.cat([turned, v_T1NH], dim=1)
