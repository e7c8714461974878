"""Arrow arrays from numpy arrays and back, by way of their buffers. Imports no torch.

``pa.array()`` and ``to_numpy()`` import pandas where it is installed, to see whether a value is one of its own: 40 MB
of memory and a third of a second in every process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def array_of(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Numbers as an array of the same type, without a copy where they lie in a row.

    Args:
        values: ``(N,)``, of the type that ``kind`` has in numpy.
        kind: for example ``pa.int32()``.
    """
    values = np.ascontiguousarray(values)
    assert values.itemsize * 8 == kind.bit_width, (values.dtype, kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def strings_of(texts: Sequence[str]) -> pa.Array:
    """Texts as an array of strings; together less than 2 GiB of UTF-8."""
    encoded = [text.encode("utf-8", "replace") for text in texts]  # half of a surrogate pair becomes a "?"
    ends = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def lists_of(boundaries: NDArray[Any], values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """List n has ``values[boundaries[n] : boundaries[n + 1]]``; an array of the list type ``kind``."""
    ends = array_of(boundaries.astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(ends, array_of(values, kind.value_type), type=kind)


def numbers_of(array: pa.Array, kind: Any) -> NDArray[Any]:
    """The numbers of an array without nulls, as a view that keeps the array alive.

    Args:
        array: of a type of fixed width.
        kind: the same type in numpy.
    """
    assert array.null_count == 0
    kind = np.dtype(kind)
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)
