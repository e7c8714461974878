"""What a decoder remembers between two tokens: keys and values of what it wrote, and of what it reads.

Axes, in the order of the suffix letters::

    R rows that are written: B inputs times K beams   N heads   L written tokens, with room   M longest input   H width
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

#: Room for so many tokens at first; it doubles.
FIRST_ROOM = 32


@dataclass(slots=True)
class LayerCache:
    """Keys and values of one layer, for ``length`` tokens so far.

    memory: those of the input, ``(B, N, M, H)`` each; beams of one input share them. They are in groups of neighbouring
        inputs, so that M is not that of the longest of all.
    written: those of the tokens so far, with room for more, each ``(R, N, L, H)``; None before the first.
    """

    memory: list[tuple[Tensor, Tensor]]
    written: tuple[Tensor, Tensor] | None = None
    length: int = 0

    def append(self, k_RNSH: Tensor, v_RNSH: Tensor) -> tuple[Tensor, Tensor]:
        """Add S tokens; returns keys and values of all, as views."""
        done, self.length = self.length, self.length + k_RNSH.shape[2]
        if self.written is None or self.length > self.written[0].shape[2]:
            self.written = self._grown(k_RNSH)
        for room, new in zip(self.written, (k_RNSH, v_RNSH), strict=True):
            room[:, :, done : self.length] = new
        k_RNLH, v_RNLH = self.written
        return k_RNLH[:, :, : self.length], v_RNLH[:, :, : self.length]

    def _grown(self, like: Tensor) -> tuple[Tensor, Tensor]:
        rows, heads, _, width = like.shape
        room = max(FIRST_ROOM, 2 * self.length)
        k, v = (like.new_empty((rows, heads, room, width)) for _ in range(2))
        if self.written is not None:
            old = self.written[0].shape[2]
            k[:, :, :old], v[:, :, :old] = self.written
        return k, v

    def reorder(self, rows_R: Tensor) -> None:
        """Select rows of what was written; a row may be selected more than once."""
        if self.written is not None:
            k, v = (room[:, :, : self.length].index_select(0, rows_R) for room in self.written)
            if len(rows_R) == len(self.written[0]):
                self.written[0][:, :, : self.length], self.written[1][:, :, : self.length] = k, v
            else:
                self.written = k, v

    def select(self, inputs: Sequence[Tensor]) -> None:
        """Select inputs of each group, none of a group that is empty then."""
        pairs = zip(self.memory, inputs, strict=True)
        self.memory = [(k.index_select(0, rows), v.index_select(0, rows)) for (k, v), rows in pairs if len(rows)]


@dataclass(slots=True)
class DecoderCache:
    """The caches of all layers.

    hidden: added to the scores of each group of the memory, ``(B, 1, 1, M)``: -inf behind the end of an input; None if
        all inputs of the group have the same length.
    """

    layers: list[LayerCache]
    hidden: list[Tensor | None]

    @property
    def length(self) -> int:
        """Tokens written so far."""
        return self.layers[0].length

    @property
    def num_inputs(self) -> int:
        """B."""
        return sum(len(k) for k, _ in self.layers[0].memory)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.layers[0].memory[0][0].device

    def reorder(self, rows_R: Tensor) -> None:
        """Select rows of what was written; a row may be selected more than once."""
        for layer in self.layers:
            layer.reorder(rows_R)

    def select(self, inputs_B: Tensor) -> None:
        """Select inputs in their order, any of them also more than once; :meth:`reorder` selects the rows written."""
        ends = list(accumulate(len(k) for k, _ in self.layers[0].memory))
        groups = [
            inputs_B[(inputs_B >= start) & (inputs_B < end)] - start
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        for layer in self.layers:
            layer.select(groups)
        pairs = [(hidden, rows) for hidden, rows in zip(self.hidden, groups, strict=True) if len(rows)]
        self.hidden = [None if hidden is None else hidden.index_select(0, rows) for hidden, rows in pairs]
