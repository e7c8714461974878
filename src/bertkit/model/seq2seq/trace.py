"""What an encoder or a decoder notes while it runs, where the caller wants to see more than its last layer.

Axes, in the order of the suffix letters::

    B sequences   N heads   q queries   k keys   D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor


@dataclass(slots=True)
class Trace:
    """The notes of one tower; None is what nobody wants.

    states: ``(..., D)``: the embeddings, then the output of every layer, the last behind the norm that follows it.
    attentions: by layer, B tensors ``(N, q, k)``: the probabilities of self-attention before dropout.
    cross: the same of the decoder's attention to the input, whose keys may have probabilities of 0 behind them.
    """

    states: list[Tensor] | None = None
    attentions: list[list[Tensor]] | None = None
    cross: list[list[Tensor]] | None = None

    @classmethod
    def of(cls, *, states: bool, attentions: bool) -> Self:
        """An empty one for what is wanted."""
        return cls([] if states else None, [] if attentions else None, [] if attentions else None)

    def add_state(self, x: Tensor) -> None:
        """Note a hidden state, if they are wanted."""
        if self.states is not None:
            self.states.append(x)


#: Notes nothing.
NO_TRACE = Trace()
