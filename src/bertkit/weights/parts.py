"""The parts of an encoder, as numpy arrays: matrices, layers, tables, and what attention knows of positions.

Letters of the array shapes: D width of the encoder, N heads, H = D / N, E rows of a table of distances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertkit.ragged import Floats, Ids

WeightType = Literal["float32", "float24", "float16", "bfloat16"]
Activation = Literal["gelu", "gelu_new", "relu"]
#: As the library numbers them.
ACTIVATIONS: Mapping[str, int] = {"gelu": 1, "gelu_new": 2, "relu": 3}
#: Scale and shift of a normalization.
Norm = tuple[Floats, Floats]


class Shape(NamedTuple):
    """The sizes and settings of an encoder.

    order: the number of the stored layer at each depth, at least one.
    gated: layers normalize what they read, not what they return, and have a gated feed-forward block.
    """

    order: tuple[int, ...]
    width: int
    heads: int
    inner: int
    activation: Activation
    eps: float
    gated: bool = False


class FloatMatrix(NamedTuple):
    """``y = x W^T + b``, with sums in float32.

    weight: ``(out, in)``, float32; of float16 in multiples of ``unit``; of bfloat16 the bits as 16-bit integers.
    bias: float32 ``(out,)``.
    kept_as: the type in which the weights are kept. float24: float32 without the last 8 of its 24 significant bits.
    """

    weight: NDArray[Any]
    bias: Floats
    kept_as: WeightType = "float32"
    unit: float = 1.0


class ByteMatrix(NamedTuple):
    """A matrix like :class:`FloatMatrix`, with weights in 8 bits; see
    :class:`bertkit.model.kernels.byte_linear.ByteLinear`.

    weight: int8 ``(out, in)``, in multiples of ``scale``, ``(out,)``.
    smooth, shift: ``(in,)``.
    apart: int32 ``(k,)``, inputs that are not rounded, with float32 weights ``(k, out)``.
    narrow: every weight is -63 ... 63; if not, they may be anything that int8 holds.
    """

    weight: NDArray[np.int8]
    scale: Floats
    bias: Floats
    smooth: Floats
    shift: Floats | None
    apart: Ids
    apart_weights: Floats
    narrow: bool


Matrix = FloatMatrix | ByteMatrix


class Layer(NamedTuple):
    """Weights of one layer.

    matrices: of query, key and value together, of attention's output, and both of the feed-forward block.
    norms: after attention, and after the feed-forward block; of a gated layer those before the feed-forward block and
        before attention, None: it reads rows as they are.
    half: tokens that are seen on each side; None: all.
    base: which of the tables of rotary angles it reads; None: none.
    distances: keys and queries of distances, ``(E, D)`` each, either may be None; None: scores know of none.
    """

    matrices: tuple[Matrix, ...]
    norms: tuple[Norm | None, ...]
    half: int | None = None
    base: int | None = None
    distances: tuple[Floats | None, Floats | None] | None = None


@dataclass(frozen=True, slots=True)
class ByteTable:
    """Rows in 8 bits: int8 ``(rows, D)`` in multiples of ``row_scale[row] * column_scale[column]``, float32."""

    rows: NDArray[np.int8]
    row_scale: Floats
    column_scale: Floats

    def __len__(self) -> int:
        return len(self.rows)


Table = Floats | ByteTable


class Positions(NamedTuple):
    """What attention knows of positions in texts of at most ``most`` tokens.

    angles: of each base of rotary positions, float32 ``(most, H)``: cosines of a token's angles, then sines.
    bias: float32 ``(N, 2 * most - 1)``, what a score gets for the distance of its key from its query; None: nothing.
    rows: int32 ``(2 * most - 1,)``, the row of a table for the distance of a query from its key, not falling; or None.
    """

    most: int
    angles: Sequence[Floats] = ()
    bias: Floats | None = None
    rows: Ids | None = None
