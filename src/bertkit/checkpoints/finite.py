"""Infinite values and NaN in raw weights, of any float type of a file. Imports no torch.

On one thread and in the order of the file: next to a busy neighbour a parallel sum waits longer than it adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: For each float type an unsigned integer of its size and the bits of its exponent: all set in what is not finite.
_EXPONENT = {
    "F64": ("<u8", 0x7FF << 52),
    "F32": ("<u4", 0xFF << 23),
    "F16": ("<u2", 0x1F << 10),
    "BF16": ("<u2", 0xFF << 7),
}


def first_not_finite(values: npt.NDArray[np.uint8], dtype: str) -> int | None:
    """Where the first value stands that is infinite or not a number.

    Args:
        values: the bytes of whole values, flat.
        dtype: their type as safetensors calls it; types that are always finite have none.

    Returns:
        The number of the value, or None where all are finite.
    """
    if dtype not in _EXPONENT or not len(values):
        return None
    if dtype in ("F32", "F64"):
        floats: npt.NDArray[Any] = values.view(np.dtype("<f4" if dtype == "F32" else "<f8"))
        with np.errstate(all="ignore"):  # one that is not finite makes the sum so; the sum may also only be too large
            if np.isfinite(floats.sum()):
                return None
    kind, mask = _EXPONENT[dtype]
    bits: npt.NDArray[Any] = values.view(np.dtype(kind))
    wrong = (bits & bits.dtype.type(mask)) == mask
    place = int(wrong.argmax())
    return place if wrong[place] else None
