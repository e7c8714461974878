"""Reads values from safetensors files with checked headers: memory-mapped if they stay unchanged, otherwise read.

See ``docs/decisions/0020-strict-loading.md`` for what happens to maps when the file changes.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterable
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from bertkit.checkpoints.safetensors_format import TensorInfo, first_not_finite
from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import open_regular, read_at

#: torch types by their names in safetensors.
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_CHECK_BYTES = 1 << 20


class Reader:
    """The open files of one checkpoint; a context manager. Maps outlive it in the tensors made from them.

    :meth:`map` and :meth:`read` may be called from several threads at once.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        self._stack = ExitStack()
        self._files = sorted(set(files))
        self._streams: dict[Path, BufferedReader] = {}
        self._maps: dict[Path, mmap.mmap | None] = {}
        self._own = threading.local()

    def __enter__(self) -> Self:
        for file in self._files:
            stream = self._streams[file] = self._stack.enter_context(open_regular(file))
            try:
                self._maps[file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
            except (OSError, ValueError):  # some network file systems cannot map; then everything is read
                self._maps[file] = None
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        self._maps.clear()

    def map(self, info: TensorInfo) -> Tensor | None:
        """A tensor on the pages of the file, copied on write; None if that is impossible.

        Its values are checked through a small buffer, so that its pages take no memory before they are used.

        Raises:
            CheckpointError: values that are not finite, or a file that was truncated after its header was read.
        """
        dtype, pages = DTYPES[info.dtype], self._maps[info.file]
        if pages is None or info.start % dtype.itemsize or len(pages) < info.end:
            return None
        if not hasattr(self._own, "buffer"):
            self._own.buffer = torch.empty(_CHECK_BYTES, dtype=torch.uint8)
        done = info.start
        while done < info.end:
            part = self._own.buffer[: min(info.end - done, _CHECK_BYTES)]
            self._fill(part, info, done)
            _check_finite(info, part.view(dtype), (done - info.start) // dtype.itemsize)
            done += len(part)
        return torch.frombuffer(pages, dtype=dtype, count=info.num_values, offset=info.start).view(info.shape)

    def read(self, info: TensorInfo, out: Tensor) -> None:
        """Fill ``out``, a contiguous CPU tensor of the right shape and any float type.

        Raises:
            CheckpointError: as :meth:`map`; also values too large for the type of ``out``.
        """
        target = out if out.dtype == DTYPES[info.dtype] else torch.empty(info.shape, dtype=DTYPES[info.dtype])
        self._fill(target.view(-1).view(torch.uint8), info, info.start)
        if target is not out:
            out.copy_(target)
        _check_finite(info, out.view(-1), 0)

    def _fill(self, target: Tensor, info: TensorInfo, start: int) -> None:
        """Bytes of the file from ``start`` on, into a flat uint8 tensor."""
        read_at(self._streams[info.file], memoryview(target.numpy()), start, repr(info.name))  # type: ignore[arg-type]


def _check_finite(info: TensorInfo, flat: Tensor, offset: int) -> None:
    """Refuse values that are not finite; ``flat`` has those of a tensor from ``offset`` on, in their final type."""
    first = first_not_finite(flat.view(torch.uint8).numpy(), _NAMES[flat.dtype])
    if first is None:
        return
    place = [int(number) for number in np.unravel_index(offset + first, info.shape)]
    raise CheckpointError(
        f"{info.file}: tensor {info.name!r} has values that are not finite in {flat.dtype} (the first at {place} is "
        f"{float(flat[first])}). The file is damaged, or its training diverged"
    )
