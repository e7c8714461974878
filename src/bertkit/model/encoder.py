"""The transformer stack: L times self-attention and feed-forward, each with dropout, residual and LayerNorm after it.

Devlin et al. 2019, section 3; Vaswani et al. 2017, figure 1 left. Every tensor is flat, ``(T, D)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.attention import Chosen, SelfAttention
from bertkit.model.kernels.dropout import Dropout, add_dropout
from bertkit.model.kernels.linear import Linear


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


#: "gelu" is the erf form, which the published PyTorch weights expect; "gelu_new" is the tanh form of the TF code.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "relu": F.relu,
    "tanh": torch.tanh,
}


class EncoderLayer(nn.Module):
    """One layer: ``x = norm(x + drop(attention(x)))``, then ``x = norm(x + drop(ffn(x)))``."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.ffn_up = Linear(config.hidden_size, config.intermediate_size)
        self.ffn_down = Linear(config.intermediate_size, config.hidden_size)
        self.ffn_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.attention_dropout = Dropout(config.hidden_dropout_prob if config.family.drops_attention else 0.0)
        self.hidden_act = config.hidden_act

    def forward(self, x_TD: Tensor, layout: Layout, want_probs: bool = False) -> tuple[Tensor, list[Tensor] | None]:
        """``(T, D)`` to ``(T, D)``; with ``want_probs`` also the attention of each sequence, ``(N, s, s)``."""
        attended_TD, probs = self.attention(x_TD, layout, want_probs)
        return self._after_attention(x_TD, attended_TD), probs

    def forward_chosen(self, x_TD: Tensor, layout: Layout, chosen: Chosen) -> Tensor:
        """``(T, D)`` to ``(R, D)``: the layer's output at the chosen rows, and nothing else.

        Where only the pooler reads the top layer, this saves three quarters of that layer; where a masked-LM head
        reads 15 % of the rows as well, two thirds.
        """
        return self._after_attention(
            x_TD.index_select(0, chosen.rows), self.attention.forward_chosen(x_TD, layout, chosen)
        )

    def _after_attention(self, x: Tensor, attended: Tensor) -> Tensor:
        x = self.attention_norm(add_dropout(x, attended, self.attention_dropout.rate()))
        # The erf form can be fused into the product; see Linear.
        fused = self.hidden_act == "gelu"
        inner = self.ffn_up(x, "gelu") if fused else ACTIVATIONS[self.hidden_act](self.ffn_up(x))
        return self.ffn_norm(add_dropout(x, self.ffn_down(inner), self.dropout.rate()))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """L layers, each with its own weights or, as ``config.layer_order`` says, some with the same.

    gradient_checkpointing: keep only each layer's input for the backward pass, which then computes the layer again with
        the same dropout masks: about a third more time, a fraction of the memory (Chen et al. 2016).
    """

    gradient_checkpointing: bool = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_stored_layers))
        self.layer_order = config.layer_order

    def forward(
        self, x_TD: Tensor, layout: Layout, *, want_states: bool = False, want_probs: bool = False
    ) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        """Run the stack.

        Returns:
            The top layer ``(T, D)``; with ``want_states`` also the L + 1 states, the input first; with ``want_probs``
            also L lists of B attention tensors ``(N, s, s)``.
        """
        states, attentions = [x_TD], []
        for number in self.layer_order:
            x_TD, probs = self._run(self.layer[number], x_TD, layout, want_probs)
            if want_states:
                states.append(x_TD)
            if probs is not None:
                attentions.append(probs)
        return x_TD, states if want_states else [], attentions

    def forward_first(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """The top layer's output at the first token of each sequence, ``(B, D)``."""
        return self.forward_chosen(x_TD, layout, Chosen.first(layout, x_TD.device))

    def forward_chosen(self, x_TD: Tensor, layout: Layout, chosen: Chosen) -> Tensor:
        """The top layer's output at the chosen rows, ``(R, D)``: the same values as of :meth:`forward`, for less."""
        if not self.layer_order:
            return x_TD.index_select(0, chosen.rows)
        for number in self.layer_order[:-1]:
            x_TD, _ = self._run(self.layer[number], x_TD, layout)
        top = self.layer[self.layer_order[-1]]
        assert isinstance(top, EncoderLayer)
        return self._run(top.forward_chosen, x_TD, layout, chosen)  # type: ignore[no-any-return]

    def _run(self, layer: Callable[..., Any], *args: Any) -> Any:
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=True)
        return layer(*args)
