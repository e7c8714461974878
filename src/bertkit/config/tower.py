"""An encoder or a decoder as values, from which the modules of an encoder-decoder are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Activation = Literal["gelu", "gelu_new", "relu"]
#: ``feed_forward_proj`` of T5 -> whether the feed-forward is gated, and its activation.
FEED_FORWARDS: Mapping[str, tuple[bool, Activation]] = {
    "relu": (False, "relu"),
    "gelu": (False, "gelu"),
    "gelu_new": (False, "gelu_new"),
    "gated-relu": (True, "relu"),
    "gated-gelu": (True, "gelu_new"),
    "gated-gelu_new": (True, "gelu_new"),
}


@dataclass(frozen=True, slots=True)
class Tower:
    """All that the modules of an encoder or a decoder are made from, in both families.

    pre_norm: norms stand before each sublayer, and one behind the last layer. biases: linear layers and norms have
    biases, norms subtract the mean, scores are scaled; T5 has none of these. positions, buckets: rows of a table of
    positions, and of biases for distances; 0: none. max_distance: from where on one row serves all.
    """

    width: int
    layers: int
    heads: int
    head_width: int
    inner_width: int
    activation: Activation
    gated: bool
    pre_norm: bool
    biases: bool
    eps: float
    dropout: float
    attention_dropout: float
    inner_dropout: float
    positions: int = 0
    word_scale: float = 1.0
    buckets: int = 0
    max_distance: int = 0

    def init_scale(self, inputs: int) -> float:
        """Of the standard deviation of a new matrix with so many inputs: T5's depends on them."""
        return 1.0 if self.biases else inputs**-0.5
