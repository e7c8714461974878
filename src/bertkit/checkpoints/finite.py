"""Finds infinite values and NaN in raw weights of any float type. Imports no torch.

Runs on one thread, in file order: on a busy machine a parallel sum waits longer than it saves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Float type -> unsigned integer of its size, and the bits of the exponent, which are all set in NaN and infinity.
_EXPONENT = {
    "F64": ("<u8", 0x7FF << 52),
    "F32": ("<u4", 0xFF << 23),
    "F16": ("<u2", 0x1F << 10),
    "BF16": ("<u2", 0xFF << 7),
}


def first_not_finite(values: npt.NDArray[np.uint8], dtype: str) -> int | None:
    """The position of the first infinite value or NaN.

    Args:
        values: the bytes of whole values, flat.
        dtype: their type, as named by safetensors; integers are always finite.

    Returns:
        Its number, or None if all values are finite.
    """
    if dtype not in _EXPONENT or not len(values):
        return None
    if dtype in ("F32", "F64"):
        floats: npt.NDArray[Any] = values.view(np.dtype("<f4" if dtype == "F32" else "<f8"))
        with np.errstate(all="ignore"):  # any such value makes the sum infinite or NaN; large values may too
            if np.isfinite(floats.sum()):
                return None
    kind, mask = _EXPONENT[dtype]
    bits: npt.NDArray[Any] = values.view(np.dtype(kind))
    wrong = (bits & bits.dtype.type(mask)) == mask
    place = int(wrong.argmax())
    return place if wrong[place] else None
