"""Arrow arrays from numpy arrays and back, through their buffers. Imports no torch.

``pa.array()`` and ``to_numpy()`` import pandas if it is installed: 40 MB of memory and a third of a second per process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NumberT = TypeVar("NumberT", bound=np.integer)


def array_of(values: NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """Numbers ``(N,)`` as an Arrow array of the same type, without a copy if they are contiguous."""
    values = np.ascontiguousarray(values)
    assert values.itemsize * 8 == kind.bit_width, (values.dtype, kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def strings_of(texts: Sequence[str]) -> pa.Array:
    """Texts as an array of strings, together less than 2 GiB of UTF-8."""
    encoded = [text.encode("utf-8", "replace") for text in texts]  # half of a surrogate pair becomes a "?"
    ends = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def lists_of(boundaries: NDArray[np.integer], values: NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """An array of the list type ``kind``, whose n-th list is ``values[boundaries[n] : boundaries[n + 1]]``."""
    ends = array_of(boundaries.astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(ends, array_of(values, kind.value_type), type=kind)


def numbers_of(array: pa.Array, kind: np.dtype[NumberT]) -> NDArray[NumberT]:
    """The numbers of an array without nulls, whose type in numpy is ``kind``: a view that keeps the array alive."""
    assert array.null_count == 0
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)
