"""The transformer stack: L times self-attention and feed-forward, each with dropout, residual and LayerNorm after it.

Devlin et al. 2019, section 3; Vaswani et al. 2017, figure 1 left. Every tensor is flat, ``(T, D)``.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Layout
from bertkit.config import BertConfig
from bertkit.model.attention import SelfAttention
from bertkit.model.dropout import Dropout, add_dropout
from bertkit.model.linear import Linear

#: "gelu" is the erf form, which the published PyTorch weights expect; "gelu_new" is the tanh form of the TF code.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
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
        self.hidden_act = config.hidden_act

    def forward(self, x_TD: Tensor, layout: Layout, want_probs: bool = False) -> tuple[Tensor, list[Tensor] | None]:
        """``(T, D)`` to ``(T, D)``; with ``want_probs`` also the attention of each sequence, ``(N, s, s)``."""
        attended_TD, probs = self.attention(x_TD, layout, want_probs)
        x_TD = self.attention_norm(add_dropout(x_TD, attended_TD, self.dropout.rate()))
        if self.hidden_act == "gelu":
            inner_TF = self.ffn_up(x_TD, "gelu")
        else:
            inner_TF = ACTIVATIONS[self.hidden_act](self.ffn_up(x_TD))
        return self.ffn_norm(add_dropout(x_TD, self.ffn_down(inner_TF), self.dropout.rate())), probs


class Encoder(nn.Module):
    """L layers."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.layer = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_hidden_layers))

    def forward(
        self, x_TD: Tensor, layout: Layout, *, want_states: bool = False, want_probs: bool = False
    ) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        """Run the stack.

        Returns:
            The top layer ``(T, D)``; with ``want_states`` also the L + 1 states, the input first; with ``want_probs``
            also L lists of B attention tensors ``(N, s, s)``.
        """
        states, attentions = [x_TD], []
        for layer in self.layer:
            x_TD, probs = layer(x_TD, layout, want_probs)
            if want_states:
                states.append(x_TD)
            if probs is not None:
                attentions.append(probs)
        return x_TD, states if want_states else [], attentions
