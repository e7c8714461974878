"""Writes a safetensors file tensor by tensor, with the memory of one tensor however large the checkpoint.

Format: see :mod:`bertkit.checkpoints.safetensors_header`. The ``safetensors`` package needs all tensors at once.
Imports no torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bertkit.checkpoints.safetensors_header import ITEM_BYTES, TensorInfo
from bertkit.system.atomic_files import disk_guard


def write_tensors(file: Path, tensors: Mapping[str, TensorInfo], read: Callable[[str], npt.NDArray[Any]]) -> None:
    """Write a new file and flush it to disk.

    Args:
        file: its path.
        tensors: type and shape by name; locations are ignored.
        read: gives the values of a tensor: contiguous, little endian, of the right size.

    Raises:
        ResourceError: the disk is full. The caller removes the partial file.
    """
    names = sorted(tensors, key=lambda name: (-ITEM_BYTES[tensors[name].dtype], name))  # keeps every tensor aligned
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in names:
        start, end = end, end + tensors[name].num_values * ITEM_BYTES[tensors[name].dtype]
        header[name] = {"dtype": tensors[name].dtype, "shape": list(tensors[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with disk_guard(file.parent, len(text) + end, what=file.name), file.open("xb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            values = read(name)
            info = tensors[name]
            assert values.flags.c_contiguous
            assert values.nbytes == info.num_values * ITEM_BYTES[info.dtype], name
            out.write(values.data)
        out.flush()
        os.fsync(out.fileno())
