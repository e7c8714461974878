"""What an encoder or a decoder records as it runs, for callers who want more than the output of the last layer.

Axes, in the order of the suffix letters::

    B sequences   N heads   q queries   k keys   D model width
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from torch import Tensor


@dataclass(slots=True)
class Trace:
    """The record of one encoder or decoder; None where it was not asked for.

    states: ``(..., D)``: the embeddings, then the output of every layer, the last behind the norm that follows it.
    attentions: by layer, B tensors ``(N, q, k)``: the probabilities of self-attention before dropout.
    cross: the same for the decoder's attention to the input; keys may be followed by padding with probability 0.
    """

    states: list[Tensor] | None = None
    attentions: list[list[Tensor]] | None = None
    cross: list[list[Tensor]] | None = None

    @classmethod
    def of(cls, *, states: bool, attentions: bool) -> Self:
        """An empty record of what is asked for."""
        return cls([] if states else None, [] if attentions else None, [] if attentions else None)

    def add_state(self, x: Tensor) -> None:
        """Record a hidden state, if asked for."""
        if self.states is not None:
            self.states.append(x)


NO_TRACE = Trace()
