"""The transformer stack: L layers of self-attention and feed-forward, each followed by dropout, residual and LayerNorm.

Devlin et al. 2019, section 3; Vaswani et al. 2017, figure 1 left. All tensors are flat, ``(T, D)``, or ``(R, D)`` at R
chosen rows of the top layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.attention import SelfAttention
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout, add_dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.published_parts import LayerParts, PaddedEncoder


class EncoderLayer(LayerParts):
    """One layer: ``x = norm(x + drop(attention(x)))``, then ``x = norm(x + drop(ffn(x)))``."""

    def __init__(self, config: BertConfig, attention: SelfAttention | None = None) -> None:
        super().__init__()
        self.attention = attention or SelfAttention(config)
        self.attention_norm: nn.Module = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.ffn_up = Linear(config.hidden_size, config.intermediate_size)
        self.ffn_down = Linear(config.intermediate_size, config.hidden_size)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.attention_dropout = Dropout(config.hidden_dropout_prob if config.family.drops_attention else 0.0)
        self.hidden_act = config.hidden_act

    def forward(
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None = None, want_probs: bool = False, *positions: Any
    ) -> tuple[Tensor, list[Tensor] | None]:
        """``(T, D)`` to ``(T, D)``, or ``(R, D)`` at chosen rows; with ``want_probs`` also B tensors ``(N, s, s)``."""
        attended, probs = self.attention(x_TD, layout, rows, want_probs, *positions)
        return self.after_attention(x_TD if rows is None else x_TD.index_select(0, rows.rows), attended), probs

    def after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        """The rest of the layer: dropout, residual, LayerNorm, feed-forward. It works row by row."""
        x = self.attention_norm(add_dropout(x, attended, self.attention_dropout.rate()))
        # The erf form can be fused into the product; see Linear. A hook sees what comes before it.
        fused = self.hidden_act == "gelu" and not self.ffn_up._forward_hooks
        inner = self.ffn_up(x, "gelu") if fused else ACTIVATIONS[self.hidden_act](self.ffn_up(x))
        return self.ffn_norm(add_dropout(x, self.ffn_down(inner), self.dropout.rate()))  # type: ignore[no-any-return]


class Encoder(PaddedEncoder):
    """L layers, each with weights of its own, or shared as ``config.layer_order`` says.

    What is not BERT's the config puts in, see :mod:`bertkit.model.variants`: ``positions`` computes once for all layers
    what their attention needs to know of positions; ``final_norm`` follows the top layer.

    gradient_checkpointing: keep only the input of each layer for the backward pass, which computes the layer again with
        the same dropout masks: about a third more time, a fraction of the memory (Chen et al. 2016).
    """

    gradient_checkpointing: bool = False

    def __init__(
        self,
        config: BertConfig,
        layers: Iterable[nn.Module] | None = None,
        positions: nn.Module | None = None,
        final_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers or (EncoderLayer(config) for _ in range(config.num_stored_layers)))
        self.layer_order = config.layer_order
        self.positions, self.final_norm = positions, final_norm

    def forward(
        self,
        x_TD: Tensor,
        layout: Layout | None = None,
        rows: ChosenRows | None = None,
        *,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        want_states: bool = False,
        want_probs: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        """Embeddings to the top layer, ``(T, D)``, or ``(R, D)`` where only these rows are wanted of it.

        With ``want_states`` also the L + 1 states, the input first; with ``want_probs`` also L lists of B attention
        tensors ``(N, s, s)``. ``position_ids`` ``(T,)``: None counts from 0 in each sequence.
        Called as in ``transformers``, with padded vectors and perhaps a mask, it gives a ``ModelOutput``.
        """
        if layout is None or isinstance(layout, Tensor):
            return self.padded(x_TD, attention_mask if layout is None else layout)  # type: ignore[return-value]
        num_tokens, filled = x_TD.shape[0], layout.fill is not None and self.positions is None
        if filled:  # to a fixed shape, by zeros behind the last sequence that no sequence sees
            x_TD = F.pad(x_TD, (0, 0, 0, layout.num_fillers))
        elif layout.fill is not None:
            layout = Layout(layout.lengths)  # what a layer gets of positions is for the tokens of sequences
        states, attentions, x = [x_TD], [], x_TD
        positions = () if self.positions is None else (self.positions(x_TD, layout, position_ids),)
        for depth, number in enumerate(self.layer_order, start=1):
            wanted = rows if depth == len(self.layer_order) and not filled else None
            x, probs = self._run(self.layer[number], x, layout, wanted, want_probs, *positions)
            if want_states:
                states.append(x)
            if probs is not None:
                attentions.append(probs)
        if rows is not None and (filled or not self.layer_order):
            x = x.index_select(0, rows.rows)
        elif filled:
            x, states = x[:num_tokens], [state[:num_tokens] for state in states]
        if self.final_norm is not None:
            x = self.final_norm(x)
            states[-1] = x
        return x, states if want_states else [], attentions

    def _run(self, layer: nn.Module, *args: Any) -> Any:
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=True)
        return layer(*args)
