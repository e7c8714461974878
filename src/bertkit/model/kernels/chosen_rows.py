"""Some rows of the top layer instead of all: where a head reads only these, most of that layer need not be computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from bertkit.batch import Layout

#: Which rows of the top layer are wanted: None = all, "first" = the first token ([CLS]) of each sequence, or flat rows
#: of the batch, int64 ``(R,)``, in any order.
Rows = Tensor | Literal["first"] | None


@dataclass(frozen=True, slots=True)
class ChosenRows:
    """Rows of a packed batch for which the top layer is computed, at least one in each sequence.

    rows: flat rows, int64 ``(R,)``, ascending and distinct.
    lengths: how many of them each sequence has, B Python ints.
    """

    rows: Tensor
    lengths: tuple[int, ...]

    @classmethod
    def first(cls, layout: Layout, device: torch.device) -> ChosenRows:
        """The first token of each sequence."""
        return cls(layout.first_rows(device), (1,) * layout.num_sequences)

    @classmethod
    def first_and(cls, rows: Tensor, layout: Layout) -> ChosenRows:
        """The first token of each sequence and ``rows``. Waits for the device of ``rows``."""
        both = torch.cat([layout.first_rows(rows.device), rows]).unique()
        ends = torch.tensor(layout.boundaries[1:], device=rows.device)
        owners = torch.searchsorted(ends, both, right=True)
        return cls(both, tuple(torch.bincount(owners, minlength=layout.num_sequences).tolist()))

    @classmethod
    def of(cls, rows: Rows, layout: Layout, device: torch.device) -> ChosenRows | None:
        """The rows to compute when ``rows`` are wanted; None = all, also where choosing would make the host wait."""
        if rows is None:
            return None
        if isinstance(rows, str):
            return cls.first(layout, device)
        return cls.first_and(rows, layout) if rows.device.type == "cpu" else None


def take_rows(x: Tensor, chosen: ChosenRows | None, rows: Rows, layout: Layout) -> Tensor:
    """The wanted ``rows`` of the top layer ``x``, which has those ``chosen`` for them, or all T where that is None."""
    if rows is None:
        return x
    if isinstance(rows, str):
        if chosen is not None and len(chosen.rows) == layout.num_sequences:
            return x  # each sequence has its first row chosen, so these are the first rows
        rows = layout.first_rows(x.device)
    return x.index_select(0, rows if chosen is None else torch.searchsorted(chosen.rows, rows))
