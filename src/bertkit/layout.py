"""Where the sequences of a packed batch lie: the only home of ``cu_seqlens``.

Axes, in the order of the suffix letters::

    B sequences   S longest sequence   T all tokens of the batch, flat
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Fill:
    """A shape that packed batches are filled up to.

    tokens: T, fillers included; sequences: how many a kernel is told, empty ones included; longest: S.
    """

    tokens: int
    sequences: int
    longest: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each sequence lies in a flat ``(T, ...)`` tensor.

    lengths: tokens of each sequence, B Python ints, each at least 1, so that no kernel waits for a device to learn
        them. Sequence b owns rows ``starts[b] : starts[b] + lengths[b]``.
    fill: the fixed shape that an encoder fills the batch up to, so that its kernels see few shapes; None: none.
    offsets: :attr:`attended` as a kernel takes it, int32, on the device of the batch; None: made where it is needed.
    """

    lengths: tuple[int, ...]
    fill: Fill | None = None
    offsets: Tensor | None = field(default=None, compare=False, repr=False)

    @property
    def num_sequences(self) -> int:
        """B."""
        return len(self.lengths)

    @property
    def num_tokens(self) -> int:
        """T."""
        return sum(self.lengths)

    @property
    def max_seqlen(self) -> int:
        """S, the tokens of the longest sequence."""
        return max(self.lengths)

    @property
    def num_fillers(self) -> int:
        """Tokens that an encoder puts behind the last sequence and takes off again."""
        return 0 if self.fill is None else self.fill.tokens - self.num_tokens

    @property
    def attended(self) -> tuple[int, ...]:
        """The lengths that attention sees: those of the sequences, then of what fills up the batch."""
        if self.fill is None:
            return self.lengths
        whole, rest = divmod(self.num_fillers, self.fill.longest)
        return (*self.lengths, *(self.fill.longest,) * whole, *((rest,) if rest else ()))

    @property
    def longest(self) -> int:
        """What attention is told of the longest sequence: :attr:`max_seqlen`, or that of the fixed shape."""
        return self.max_seqlen if self.fill is None else self.fill.longest

    def with_offsets(self, fill: Fill | None = None) -> Layout:
        """The same sequences with :attr:`offsets`, still on the CPU; with ``fill``, to be filled up to that shape."""
        layout = Layout(self.lengths, fill)
        ends = (0, *accumulate(layout.attended))
        if fill is not None:
            assert layout.num_fillers >= 0
            assert fill.sequences + 1 >= len(ends), "more sequences than the fixed shape has"
            ends += (fill.tokens,) * (fill.sequences + 1 - len(ends))
        return replace(layout, offsets=torch.tensor(ends, dtype=torch.int32))

    def lengths_on(self, device: torch.device) -> Tensor:
        """:attr:`lengths`, int64 ``(B,)`` on ``device``."""
        if self.offsets is not None and self.offsets.device == device:
            ends_B = self.offsets.narrow(0, 1, self.num_sequences)
            return (ends_B - self.offsets.narrow(0, 0, self.num_sequences)).long()  # nothing is copied from the host
        return torch.tensor(self.lengths, device=device)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """``(0, l0, l0 + l1, ..., T)``: B + 1 Python ints."""
        return (0, *accumulate(self.lengths))

    def cu_seqlens(self, device: torch.device | str = "cpu") -> Tensor:
        """:attr:`boundaries` as int32 ``(B + 1,)`` on ``device``, the form variable-length kernels take."""
        return torch.tensor(self.boundaries, dtype=torch.int32, device=device)

    def first_rows(self, device: torch.device | str = "cpu") -> Tensor:
        """Row of each sequence's first token, where [CLS] stands: int64 ``(B,)``."""
        if self.offsets is not None and self.offsets.device == torch.device(device):
            return self.offsets.narrow(0, 0, self.num_sequences).long()  # nothing is copied from the host
        return torch.tensor(self.boundaries[:-1], dtype=torch.int64, device=device)

    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` rows of each sequence."""
        return list(pairwise(self.boundaries))
