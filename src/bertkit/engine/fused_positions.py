"""What the C library has to know of positions, taken from the modules of a model's attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.engine.native.native_encoder import PositionTables
from bertkit.model.attention import SelfAttention
from bertkit.model.biased_attention import DistanceBias
from bertkit.model.disentangled_attention import DisentangledAttention, DistanceVectors
from bertkit.model.encoder import Encoder
from bertkit.model.rotary_attention import RotaryAttention, RotaryPositions
from bertkit.ragged import Floats

#: Tables are made for texts of so many tokens at least, and then for twice as many.
FEWEST_TOKENS = 128


def scores_of(attention: SelfAttention, positions: nn.Module | None) -> dict[str, Any]:
    """The fields of :class:`~bertkit.engine.native.native_encoder.Layer` on what a layer's scores depend on."""
    if isinstance(attention, RotaryAttention):
        assert isinstance(positions, RotaryPositions)
        return {"half": attention.reach, "base": list(positions.thetas).index(attention.kind)}
    if isinstance(attention, DisentangledAttention):
        assert isinstance(positions, DistanceVectors)
        with torch.no_grad():
            known = attention.distances(positions.vectors())
        # Queries of the content are scaled in the library, those of distances are not.
        scaled = None if known.queries is None else known.queries * (known.scale * math.log2(math.e))
        return {"distances": (_flat(known.keys), _flat(scaled))}
    return {}


def _flat(vectors_ENH: Tensor | None) -> Floats | None:
    if vectors_ENH is None:
        return None
    rows: Floats = vectors_ENH.detach().flatten(1).contiguous().numpy()
    return rows


def tables_of(encoder: Encoder) -> Callable[[int], PositionTables] | None:
    """What makes the tables for texts of so many tokens, and keeps the largest; None where attention needs none."""
    positions = encoder.positions
    if positions is None:
        return None
    first: Any = encoder.layer[0].attention
    kept: list[PositionTables] = []

    def tables_for(tokens: int) -> PositionTables:
        """Tables that reach to ``tokens`` at least; two threads may make the same ones."""
        if not kept or kept[0].most < tokens:
            most = max(FEWEST_TOKENS, 1 << (tokens - 1).bit_length())
            kept[:] = [_tables(positions, first, most)]
        return kept[0]

    return tables_for


@torch.no_grad()
def _tables(positions: nn.Module, attention: nn.Module, most: int) -> PositionTables:
    layout, nothing = Layout((most,)), torch.empty(0)
    if isinstance(positions, RotaryPositions):
        angles = positions(nothing, layout).values()
        return PositionTables(most, [torch.cat(each, dim=-1).squeeze(1).numpy() for each in angles])
    if isinstance(positions, DistanceBias):
        return PositionTables(most, bias=positions(nothing, layout).contiguous().numpy())
    assert isinstance(attention, DisentangledAttention)
    return PositionTables(most, rows=attention.rows(torch.arange(1 - most, most)).int().numpy())
