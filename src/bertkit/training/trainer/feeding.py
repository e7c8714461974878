"""From a batch on the host to one on a GPU, without a wait, and in few different shapes.

A kernel that is compiled or chosen for each shape needs few of them, and batches of texts have a new one nearly every
time. So their encoder sees them filled up to one of at most :data:`MAX_SIZES` numbers of tokens, see
:class:`bertkit.batch.Fill`. Everything of a batch is copied from memory that the GPU reads by itself: the host only
asks for the copy, steps ahead of the computation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, Generic, Self

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, Fill, Layout, sent
from bertkit.engine.captured_encoder import can_be_filled
from bertkit.system.device import runs_ahead
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import BatchT

#: Different numbers of tokens that batches are filled up to: those that are looked at first, and larger ones.
MAX_SIZES = 8
_SIZES_SEEN = 5
#: Steps whose batches are looked at.
_STEPS_SEEN = 16
#: Numbers of tokens and longest sequences are multiples of these: of a tile of a product, and of a block of attention.
_TILE, _BLOCK = 64, 128
#: A kernel is told of so many times as many sequences for a number of tokens as the batches had, and of some more.
#: Empty ones cost its backward pass memory: 128 rows each.
_MORE_SEQUENCES, _SPARE_SEQUENCES = 1.25, 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of tokens that batches are filled up to, ascending, the longest sequence, and how many there are a token.

    A batch with more tokens than the largest size is filled up to a multiple of a quarter of it. It is a pure function
    of the plan: a run that is resumed fills up its batches as before.
    """

    tokens: tuple[int, ...]
    longest: int
    sequences_a_token: float

    @classmethod
    def of(cls, plan: Plan[Any]) -> Self | None:
        """By the first batches of a plan; None where they are no packed ones."""
        steps = range(min(_STEPS_SEEN, plan.steps_per_epoch))
        batches = [batch for step in steps for batch in plan.micro_batches(step)]
        layouts = [found for batch in batches if (found := layout_of(batch)) is not None]
        if not layouts:
            return None
        seen = sorted(layout.num_tokens for layout in layouts)
        places = np.linspace(0, len(seen) - 1, _SIZES_SEEN + 1).round().astype(int)[1:]
        tokens = sorted({_up(seen[place], _TILE) for place in places})
        longest = _up(max(layout.max_seqlen for layout in layouts), _BLOCK)
        return cls(tuple(tokens), longest, max(each.num_sequences / each.num_tokens for each in layouts))

    def fill(self, layout: Layout) -> Fill | None:
        """The shape for a batch; None: it has more sequences, or a longer one, than a kernel is told of."""
        own, most = layout.num_tokens, self.tokens[-1]
        tokens = next((size for size in self.tokens if size >= own), _up(own, _up(most // 4, _TILE)))
        longest = _up(layout.max_seqlen, self.longest)
        sequences = math.ceil(tokens * self.sequences_a_token * _MORE_SEQUENCES) + _SPARE_SEQUENCES
        fill = Fill(tokens, sequences, longest)
        return fill if len(Layout(layout.lengths, fill).attended) <= fill.sequences else None


def _up(number: int, step: int) -> int:
    """The next multiple of ``step``."""
    return -(-number // step) * step


class Feed(Generic[BatchT]):
    """What brings the batches of a plan to a device; only for a GPU are they changed."""

    def __init__(self, plan: Plan[BatchT], model: nn.Module, device: torch.device, *, fills: bool) -> None:
        self.plan, self.device = plan, device
        self.fills = fills and runs_ahead(device) and can_be_filled(model)

    @cached_property
    def sizes(self) -> Sizes | None:
        """What batches are filled up to; found when the first is sent, because a plan may ask the trainer's clock."""
        return Sizes.of(self.plan) if self.fills else None

    def __call__(self, batch: BatchT) -> BatchT:
        """The batch on the device: the copy is asked for, not waited for."""
        if not runs_ahead(self.device):
            return batch.to(self.device)
        laid_out = _changed(batch, self._laid_out, Layout)
        return _changed(laid_out, lambda tensor: sent(tensor, self.device), Tensor)  # type: ignore[no-any-return]

    def _laid_out(self, layout: Layout) -> Layout:
        return layout.with_offsets(None if self.sizes is None else self.sizes.fill(layout))


def layout_of(batch: object) -> Layout | None:
    """Where the sequences of a batch lie; None of one that is not packed."""
    if isinstance(batch, Batch):
        return batch.layout
    parts = [getattr(batch, each.name) for each in fields(batch)] if is_dataclass(batch) else []
    return next((found for part in parts if (found := layout_of(part)) is not None), None)


def _changed(value: Any, change: Callable[[Any], Any], kind: type) -> Any:
    """A batch with everything of a kind in it changed, however deep."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _changed(each, change, kind) for name, each in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {each.name: getattr(value, each.name) for each in fields(value)}
    return replace(value, **{name: _changed(part, change, kind) for name, part in parts.items()})
