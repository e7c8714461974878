"""Embeddings and layers of an encoder in the C library: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from bertkit.engine.native.library import NativeLibrary
from bertkit.errors import ResourceError
from bertkit.ragged import Floats, Ids, Ints

Activation = Literal["gelu", "gelu_new", "relu"]
#: As the library numbers them.
ACTIVATIONS: dict[Activation, int] = {"gelu": 1, "gelu_new": 2, "relu": 3}
WeightType = Literal["float32", "float24", "float16", "bfloat16"]
KINDS: dict[WeightType, int] = {"float32": 0, "float24": 1, "float16": 2, "bfloat16": 3}


@dataclass(frozen=True, slots=True)
class Shape:
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


@dataclass(frozen=True, slots=True)
class FloatMatrix:
    """``y = x W^T + b``, with sums in float32.

    weight: ``(out, in)``, float32; of float16 in multiples of ``unit``; of bfloat16 the bits as int16.
    bias: float32 ``(out,)``.
    kept_as: the type in which the weights are kept. float24: float32 without the last 8 of its 24 significant bits.
    """

    weight: NDArray[Any]
    bias: Floats
    kept_as: WeightType = "float32"
    unit: float = 1.0


@dataclass(frozen=True, slots=True)
class ByteMatrix:
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


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one layer.

    matrices: of query, key and value together, of attention's output, and both of the feed-forward block.
    norms: scale and shift after attention, and after the feed-forward block; of a gated layer those before the
        feed-forward block and before attention, None: it reads rows as they are.
    half: tokens that are seen on each side; None: all.
    base: which of the tables of rotary angles it reads; None: none.
    distances: keys and queries of distances, ``(E, D)`` each, either may be None; None: scores know of none.
    """

    matrices: tuple[FloatMatrix | ByteMatrix, ...]
    norms: tuple[tuple[Floats, Floats] | None, ...]
    half: int | None = None
    base: int | None = None
    distances: tuple[Floats | None, Floats | None] | None = None


class _Positions(ctypes.Structure):
    _fields_: ClassVar = [
        ("angles", ctypes.c_void_p * 2), ("bias", ctypes.c_void_p), ("rows", ctypes.c_void_p), ("most", ctypes.c_int),
    ]  # fmt: skip


class PositionTables:
    """What attention knows of positions in texts of at most ``most`` tokens.

    angles: of each base of rotary positions, float32 ``(most, H)``: cosines of a token's angles, then sines.
    bias: float32 ``(N, 2 * most - 1)``, what a score gets for the distance of its key from its query; None: nothing.
    rows: int32 ``(2 * most - 1,)``, the row of a table for the distance of a query from its key, ascending; or None.
    """

    def __init__(
        self, most: int, angles: Sequence[Floats] = (), bias: Floats | None = None, rows: Ids | None = None
    ) -> None:
        self.most = most
        # The library reads exponents of two.
        arrays = [*angles, None if bias is None else bias * np.float32(math.log2(math.e)), rows]
        self._kept = [None if array is None else np.ascontiguousarray(array) for array in arrays]
        places = [None if array is None else array.ctypes.data for array in self._kept]
        first, second = (*places[: len(angles)], None, None)[:2]
        self._passed = _Positions((first, second), places[-2], places[-1], most)
        self.address = ctypes.addressof(self._passed)


@dataclass(frozen=True, slots=True)
class ByteTable:
    """Rows in 8 bits: int8 ``(rows, D)`` in multiples of ``row_scale[row] * column_scale[column]``, float32."""

    rows: NDArray[np.int8]
    row_scale: Floats
    column_scale: Floats

    def __len__(self) -> int:
        return len(self.rows)


class NativeEmbeddings:
    """Rows of tables, added up and normalized; tables are read where they are, so changes of their values are seen."""

    def __init__(
        self, library: NativeLibrary, tables: Sequence[Floats | ByteTable], norm: tuple[Floats, Floats], eps: float
    ) -> None:
        self._embed = library.functions.bertkit_embed
        self._kept = (tables, norm)
        self.width = len(norm[0])
        split = [
            (table.rows, table.row_scale, table.column_scale) if isinstance(table, ByteTable) else (table, None, None)
            for table in tables
        ]
        self._places = ctypes.c_void_p * len(tables)
        self._tables = [self._addresses(arrays) for arrays in zip(*split, strict=True)]
        self._sizes = (ctypes.c_int64 * len(tables))(*map(len, tables))
        self._norm = (eps, *[array.ctypes.data for array in norm])

    def _addresses(self, arrays: Sequence[NDArray[Any] | None]) -> Any:
        return self._places(*[None if array is None else array.ctypes.data for array in arrays])

    def __call__(self, ids: Sequence[Ints]) -> Floats | None:
        """For each table the rows to take, int64 ``(T,)``, to ``(T, D)``; None if one is not in its table."""
        tokens = len(ids[0])
        out = np.empty((tokens, self.width), np.float32)
        numbers = [np.ascontiguousarray(each) for each in ids]
        places = self._addresses(numbers)
        wrong: int = self._embed(
            len(numbers), *self._tables, self._sizes, places, tokens, self.width, *self._norm, out.ctypes.data
        )
        return out if wrong < 0 else None


class NativeEncoder:
    """The layers of an encoder, packed for this processor. Any number of threads may call it at once."""

    def __init__(
        self,
        library: NativeLibrary,
        shape: Shape,
        layers: Iterable[Layer],
        final_norm: tuple[Floats, Floats] | None = None,
    ) -> None:
        self.width = shape.width
        self._functions = functions = library.functions
        order = np.asarray(shape.order, np.int32)
        self._handle = functions.bertkit_new(
            len(order), int(order.max()) + 1, _pointer(order), shape.width, shape.heads, shape.inner,
            ACTIVATIONS[shape.activation], shape.eps, shape.gated,
        )  # fmt: skip
        _check(self._handle)
        owner = weakref.finalize(self, functions.bertkit_free, self._handle)
        owner.atexit = False  # daemon threads may still be computing then
        for number, layer in enumerate(layers):
            for place, matrix in enumerate(layer.matrices):
                self._set_matrix(number, place, matrix)
            for place, norm in enumerate(layer.norms):
                self._set_norm(number, place, norm)
            window, base = (-1 if value is None else value for value in (layer.half, layer.base))
            functions.bertkit_set_scores(self._handle, number, window, base)
            if layer.distances is not None:
                keys, queries = layer.distances
                num_rows = next(len(array) for array in layer.distances if array is not None)
                where = (self._handle, number, num_rows)
                _check(functions.bertkit_set_distances(*where, _pointer(keys), _pointer(queries)))
        self._set_norm(-1, 0, final_norm)

    def _set_norm(self, layer: int, place: int, norm: tuple[Floats, Floats] | None) -> None:
        if norm is not None:
            scale, shift = norm
            _check(self._functions.bertkit_set_norm(self._handle, layer, place, _pointer(scale), _pointer(shift)))

    def _set_matrix(self, layer: int, place: int, matrix: FloatMatrix | ByteMatrix) -> None:
        outputs, inputs = matrix.weight.shape
        where = (self._handle, layer, place)
        if isinstance(matrix, FloatMatrix):
            weight = np.ascontiguousarray(matrix.weight)
            assert weight.itemsize == (4 if matrix.kept_as in ("float32", "float24") else 2)
            kind = KINDS[matrix.kept_as]
            _check(
                self._functions.bertkit_set_matrix(
                    *where, kind, outputs, inputs, weight.ctypes.data, _pointer(matrix.bias), matrix.unit
                )
            )
            return
        parts = (matrix.weight, matrix.bias, matrix.scale, matrix.smooth, matrix.shift)
        apart = (_pointer(matrix.apart), _pointer(matrix.apart_weights))
        _check(
            self._functions.bertkit_set_bytes(
                *where, outputs, inputs, *map(_pointer, parts), matrix.narrow, len(matrix.apart), *apart
            )
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a NativeEncoder can be neither copied nor pickled: the C library holds its weights")

    def __call__(
        self,
        x_TD: Floats,
        starts: Ids,
        rows: Ids | None = None,
        row_starts: Ids | None = None,
        *,
        threads: int = 1,
        positions: PositionTables | None = None,
    ) -> Floats:
        """Embeddings ``(T, D)`` to the top layer ``(T, D)``, or ``(R, D)`` at chosen rows.

        starts: int32 ``(B + 1,)``, where each sequence begins, and T.
        rows: int32 ``(R,)``, the only rows wanted, ascending; None: all.
        row_starts: int32 ``(B + 1,)``, where in ``rows`` those of each sequence begin, and R.
        threads: how many to use, this one among them; fewer while another call uses them.
        positions: where attention asks for them, tables for texts at least as long as the longest sequence.
        """
        x_TD = np.ascontiguousarray(x_TD, np.float32)
        out = np.empty((len(x_TD) if rows is None else len(rows), self.width), np.float32)
        chosen = (None, None) if rows is None or row_starts is None else (rows.ctypes.data, row_starts.ctypes.data)
        tables = None if positions is None else positions.address
        _check(
            self._functions.bertkit_encode(
                self._handle,
                x_TD.ctypes.data,
                len(starts) - 1,
                starts.ctypes.data,
                *chosen,
                tables,
                out.ctypes.data,
                threads,
            )
        )
        return out


def _check(done: int | None) -> None:
    if not done:
        raise ResourceError("out of memory in the encoder: use shorter texts, a smaller model or fewer threads")


def _pointer(array: NDArray[Any] | None) -> Any:
    """``array`` as an argument; it must be kept until the call is over, and is."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    kinds: dict[str, Any] = {"float32": ctypes.c_float, "int32": ctypes.c_int32, "int8": ctypes.c_int8}
    return array.ctypes.data_as(ctypes.POINTER(kinds[array.dtype.name]))
