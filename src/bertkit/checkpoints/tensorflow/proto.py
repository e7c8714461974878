"""Just enough of the protocol buffer wire format to read the small messages in TensorFlow's checkpoints.

Source: https://protobuf.dev/programming-guides/encoding. Groups, which TensorFlow never writes, are refused.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator

#: A message that holds more fields is none of those that are read here.
MAX_FIELDS = 1_000_000

Value = int | memoryview


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number that begins at a place, and the place after it.

    Raises:
        ValueError: it does not end, or has more than 64 bits.
    """
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                raise ValueError("a number has more than 64 bits")
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """(number of the field, its value): a whole number, or the bytes of a text or of a message inside.

    Raises:
        ValueError: not a message; one line says why.
    """
    at = 0
    for _ in range(MAX_FIELDS):
        if at == len(message):
            return
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == 2:
            length, at = varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"field {number} has the unknown kind {kind}")
        if length > len(message) - at:
            raise ValueError(f"field {number} is cut off")
        content = message[at : at + length]
        yield number, content if kind == 2 else int.from_bytes(content, "little")
        at += length
    raise ValueError(f"it has more than {MAX_FIELDS:,} fields")


def number_of(value: Value) -> int:
    """A field that must be a number.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, int):
        raise ValueError("a field that must be a number is something else")
    return value


def bytes_of(value: Value) -> memoryview:
    """A field that must be a text or a message.

    Raises:
        ValueError: it is a number.
    """
    if isinstance(value, int):
        raise ValueError("a field that must be a text or a message is a number")
    return value


def text_of(value: Value) -> str:
    """A field that must be a text.

    Raises:
        ValueError: it is a number, or not UTF-8.
    """
    return bytes(bytes_of(value)).decode("utf-8")
