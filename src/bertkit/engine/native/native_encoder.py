"""Embeddings and layers of an encoder in the C library: numpy arrays in, numpy arrays out."""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterable, Sequence
from ctypes import c_float, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from bertkit.config.sentence_config import PoolingMode
from bertkit.engine.native.library import KINDS, NO_ROW, NativeErrorText, NativeLibrary, check
from bertkit.ragged import Floats, Ids, Ints
from bertkit.weights.parts import ACTIVATIONS, ByteTable, FloatMatrix, Layer, Matrix, Norm, Positions, Shape, Table

BYTES_KIND = 4
#: As the library numbers them.
POOLING: dict[PoolingMode, int] = {
    "cls": 1, "lasttoken": 2, "max": 3, "mean": 4, "mean_sqrt_len_tokens": 5, "weightedmean": 6,
}  # fmt: skip


class _Shape(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("num_layers", c_int32), ("num_stored", c_int32), ("order", c_void_p),
        ("width", c_int32), ("heads", c_int32), ("inner", c_int32), ("activation", c_int32), ("eps", c_float),
        ("gated", c_int32), ("threads", c_int32),
    ]  # fmt: skip


class _Matrix(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("kind", c_int32), ("outputs", c_int32), ("inputs", c_int32),
        ("weights", c_void_p), ("bias", c_void_p), ("unit", c_float), ("scale", c_void_p), ("smooth", c_void_p),
        ("shift", c_void_p), ("narrow", c_int32), ("num_outliers", c_int32), ("outliers", c_void_p),
        ("outlier_weights", c_void_p),
    ]  # fmt: skip


class _Positions(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("longest", c_int32), ("angles", c_void_p * 2), ("bias", c_void_p),
        ("distances", c_void_p),
    ]  # fmt: skip


class _Batch(ctypes.Structure):
    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("num_sequences", c_int32), ("starts", c_void_p), ("rows", c_void_p),
        ("wanted", c_void_p), ("wanted_starts", c_void_p), ("positions", c_void_p),
    ]  # fmt: skip


class _Table(ctypes.Structure):
    _fields_: ClassVar = [
        ("rows", c_void_p), ("row_scale", c_void_p), ("column_scale", c_void_p), ("num_rows", c_int64),
    ]  # fmt: skip


_BATCH_SIZE = ctypes.sizeof(_Batch)


class PositionTables:
    """:class:`~bertkit.weights.parts.Positions` as the library takes them."""

    def __init__(self, positions: Positions) -> None:
        self.most, bias = positions.most, positions.bias
        # The library reads exponents of two.
        arrays = [*positions.angles, None if bias is None else bias * np.float32(math.log2(math.e)), positions.rows]
        self._kept = [None if array is None else np.ascontiguousarray(array) for array in arrays]
        places = [None if array is None else array.ctypes.data for array in self._kept]
        first, second = (*places[: len(positions.angles)], None, None)[:2]
        size = ctypes.sizeof(_Positions)
        self._passed = _Positions(size, self.most, (first, second), places[-2], places[-1])
        self.address = ctypes.addressof(self._passed)


class NativeEmbeddings:
    """Rows of tables, added up and normalized; tables are read where they are, so changes of their values are seen."""

    def __init__(self, library: NativeLibrary, tables: Sequence[Table], norm: Norm, eps: float) -> None:
        self._library = library
        self._kept = (tables, norm)
        self.width = len(norm[0])
        self._tables = (_Table * len(tables))(*map(_table, tables))
        self._places = ctypes.c_void_p * len(tables)
        self._norm = (self.width, eps, *[array.ctypes.data for array in norm])

    def __call__(self, ids: Sequence[Ints]) -> Floats | None:
        """For each table the rows to take, int64 ``(T,)``, to ``(T, D)``; None if one is not in its table."""
        tokens, functions = len(ids[0]), self._library.functions
        out = np.empty((tokens, self.width), np.float32)
        numbers = [np.ascontiguousarray(each, np.int64) for each in ids]
        places = self._places(*[each.ctypes.data for each in numbers])
        error = NativeErrorText()
        status = functions.bertkit_embed(
            self._library.variant,
            len(numbers),
            ctypes.addressof(self._tables),
            ctypes.addressof(places),
            tokens,
            *self._norm,
            out.ctypes.data,
            ctypes.addressof(error),
        )
        assert status in (0, NO_ROW), error.text.decode(errors="replace")
        return None if status else out


def _table(table: Table) -> _Table:
    if isinstance(table, ByteTable):
        scales = table.row_scale.ctypes.data, table.column_scale.ctypes.data
        return _Table(table.rows.ctypes.data, *scales, len(table))
    return _Table(table.ctypes.data, None, None, len(table))


class NativeEncoder:
    """The layers of an encoder, packed for this processor. Any number of threads may call it at once.

    added: further matrices, of a head for example, for :meth:`multiply`.
    threads: how many pack the matrices, this one among them.
    """

    def __init__(
        self,
        library: NativeLibrary,
        shape: Shape,
        layers: Iterable[Layer],
        final_norm: Norm | None = None,
        added: Sequence[Matrix] = (),
        threads: int = 1,
    ) -> None:
        self.width = shape.width
        self._functions = functions = library.functions
        order = np.asarray(shape.order, np.int32)
        passed = _Shape(
            ctypes.sizeof(_Shape), len(order), int(order.max()) + 1, order.ctypes.data, shape.width, shape.heads,
            shape.inner, ACTIVATIONS[shape.activation], shape.eps, shape.gated, threads,
        )  # fmt: skip
        self._builder = ctypes.c_void_p()
        self._check("bertkit_builder_new", ctypes.addressof(passed), library.variant, ctypes.addressof(self._builder))
        owner = weakref.finalize(self, functions.bertkit_builder_free, self._builder)
        for number, layer in enumerate(layers):
            self._set_layer(number, layer)
        self._set_norm(-1, 0, final_norm)
        self._outputs = [self._add_matrix(matrix) for matrix in added]
        handle = ctypes.c_void_p()
        self._check("bertkit_builder_seal", ctypes.addressof(self._builder), ctypes.addressof(handle))
        owner.detach()
        assert handle.value is not None
        self._handle = handle.value
        held = weakref.finalize(self, functions.bertkit_encoder_free, self._handle)
        held.atexit = False  # daemon threads may still be computing then

    def _check(self, name: str, *arguments: object) -> None:
        check(self._functions, getattr(self._functions, name), *arguments)

    def _set_layer(self, number: int, layer: Layer) -> None:
        for place, matrix in enumerate(layer.matrices):
            passed, kept = _passed_matrix(matrix)
            where = (self._builder, number, place, ctypes.addressof(passed))
            self._check("bertkit_builder_set_matrix", *where)
            del kept
        for place, norm in enumerate(layer.norms):
            self._set_norm(number, place, norm)
        window, base = (-1 if value is None else value for value in (layer.half, layer.base))
        keys, queries = layer.distances or (None, None)
        num_rows = next((len(array) for array in (keys, queries) if array is not None), 0)
        scores = (window, base, num_rows, _address(keys), _address(queries))
        self._check("bertkit_builder_set_attention", self._builder, number, *scores)

    def _add_matrix(self, matrix: Matrix) -> int:
        """Returns the number of its outputs."""
        passed, kept = _passed_matrix(matrix)
        number = c_int32()
        self._check("bertkit_builder_add_matrix", self._builder, ctypes.addressof(passed), ctypes.addressof(number))
        del kept
        return len(matrix.bias)

    def _set_norm(self, layer: int, place: int, norm: Norm | None) -> None:
        if norm is not None:
            self._check("bertkit_builder_set_norm", self._builder, layer, place, *map(_address, norm))

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
        rows: int32 ``(R,)``, the only rows wanted, ascending, each at most once; None: all.
        row_starts: int32 ``(B + 1,)``, where in ``rows`` those of each sequence begin, and R.
        threads: how many to use, this one among them; fewer while another call uses them.
        positions: where attention asks for them, tables for texts at least as long as the longest sequence.
        """
        x_TD = np.ascontiguousarray(x_TD, np.float32)
        out = np.empty((len(x_TD) if rows is None else len(rows), self.width), np.float32)
        wanted = (None, None) if rows is None or row_starts is None else (rows.ctypes.data, row_starts.ctypes.data)
        tables = None if positions is None else positions.address
        batch = _Batch(_BATCH_SIZE, len(starts) - 1, starts.ctypes.data, x_TD.ctypes.data, *wanted, tables)
        self._check("bertkit_encode", self._handle, ctypes.addressof(batch), out.ctypes.data, threads)
        return out

    def multiply(self, number: int, x: Floats, activation: str | None = None) -> Floats:
        """``activation(x W^T + b)`` with an added matrix, from rows ``(R, in)`` to ``(R, out)``, in this thread."""
        x = np.ascontiguousarray(x, np.float32)
        out = np.empty((len(x), self._outputs[number]), np.float32)
        kind = 0 if activation is None else ACTIVATIONS[activation]
        self._check("bertkit_multiply", self._handle, number, x.ctypes.data, len(x), kind, out.ctypes.data)
        return out


def pool(
    library: NativeLibrary, x_TD: Floats, starts: Sequence[int], modes: Sequence[PoolingMode], skipped: int = 0
) -> Floats:
    """One vector of each sequence, ``(B, D * modes)``; see :meth:`bertkit.engine.backend.Pack.pool`.

    starts: where each sequence begins, and T.
    """
    x_TD, begins = np.ascontiguousarray(x_TD, np.float32), np.array(starts, np.int32)
    count, width = len(begins) - 1, x_TD.shape[1]
    found = [np.empty((count, width), np.float32) for _ in modes]
    for mode, out in zip(modes, found, strict=True):
        where = (count, begins.ctypes.data, x_TD.ctypes.data, skipped, width, out.ctypes.data)
        check(library.functions, library.functions.bertkit_pool, POOLING[mode], *where)
    return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


def _passed_matrix(matrix: Matrix) -> tuple[_Matrix, object]:
    """What the library takes, and the arrays behind it, which must be kept until the call is over."""
    outputs, inputs = matrix.weight.shape
    weight = np.ascontiguousarray(matrix.weight)
    size, bias = ctypes.sizeof(_Matrix), _address(matrix.bias)
    if isinstance(matrix, FloatMatrix):
        assert weight.itemsize == (4 if matrix.kept_as in ("float32", "float24") else 2)
        kind = KINDS[matrix.kept_as]
        return _Matrix(size, kind, outputs, inputs, weight.ctypes.data, bias, matrix.unit), weight
    scales = map(_address, (matrix.scale, matrix.smooth, matrix.shift))
    outliers = (len(matrix.apart), _address(matrix.apart), _address(matrix.apart_weights))
    where = (size, BYTES_KIND, outputs, inputs, weight.ctypes.data, bias)
    return _Matrix(*where, 1.0, *scales, matrix.narrow, *outliers), weight


def _address(array: NDArray[Any] | None) -> int | None:
    """``array`` as an argument; it must be kept until the call is over, and is."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    assert array.dtype.name in ("float32", "int32", "int8")
    return int(array.ctypes.data)
