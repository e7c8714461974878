"""Partitioned variables in TensorFlow's checkpoints: one tensor, stored as several along one axis.

The entry of such a tensor has a shape and a list of slices, and no bytes. Each slice has an entry of its own, whose key
is made of the name and the slice in TensorFlow's order-preserving code, which is not text
(``tensorflow/core/util/saved_tensor_slice_util.cc``, ``tensorflow/core/lib/strings/ordered_code.cc``).
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from bertkit.system.protobuf import Value, bytes_of, fields, number_of

#: What every key of a slice begins with, and no name does.
PREFIX = b"\0"
#: First index and number of indices of each axis; -1 stands for a whole axis.
Extents = tuple[tuple[int, int], ...]

_WHOLE = (0, -1)


def read_extents(value: Value) -> Extents:
    """A slice as the entry of the whole tensor lists it.

    Raises:
        ValueError: not the description of a slice.
    """
    extents = []
    for number, extent in fields(bytes_of(value)):
        if number == 1:
            found = {key: number_of(each) for key, each in fields(bytes_of(extent))}
            extents.append((found.get(1, 0), found.get(2, -1)))
    return tuple(extents)


def slice_key(name: str, extents: Extents) -> bytes:
    """The key of a slice's own entry."""
    text = name.encode().replace(b"\0", b"\0\xff") + b"\0\1"
    numbers = b"".join(_signed(number) for extent in extents for number in extent)
    return PREFIX + text + bytes([1, len(extents)]) + numbers


def _signed(number: int) -> bytes:
    """A number in as many bytes as there are bits set at its beginning: 7 bits of it in each."""
    size = (number if number >= 0 else ~number).bit_length() // 7 + 1
    header = ((1 << size) - 1) << 7 * size
    return (number % (1 << 8 * size) ^ header).to_bytes(size, "big")


def part_shapes(shape: tuple[int, ...], slices: Sequence[Extents]) -> tuple[int, list[tuple[int, ...]]]:
    """The axis along which slices lie side by side, and their shapes.

    Args:
        shape: of the whole tensor.
        slices: in their order.

    Raises:
        ValueError: they do not cover the tensor, each index once.
    """
    axes = {at for extents in slices for at, extent in enumerate(extents) if extent != _WHOLE}
    if len(axes) != 1 or any(len(extents) != len(shape) for extents in slices):
        raise ValueError(f"{len(slices)} slices of a tensor of shape {list(shape)} do not lie along one axis")
    (axis,) = axes
    end = 0
    for extents in slices:
        start, length = extents[axis]
        if start != end or length < 1:
            raise ValueError(f"its slices leave a gap or overlap at index {end} of axis {axis}")
        end += length
    if end != shape[axis]:
        raise ValueError(f"its slices have {end} of the {shape[axis]} indices of axis {axis}")
    return axis, [(*shape[:axis], extents[axis][1], *shape[axis + 1 :]) for extents in slices]
