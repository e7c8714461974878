"""The protocol buffer wire format, as far as the files of TensorFlow and SentencePiece use it.

Source: https://protobuf.dev/programming-guides/encoding. Groups, which neither of them writes, are refused.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Fields of a message, unless the caller sets another limit; no message read here has as many.
MAX_FIELDS = 1_000_000

#: A varint as a number; texts, messages and fixed-width numbers as their bytes.
Value = int | memoryview

_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at an offset, and the offset behind it; a ValueError if it is cut off or has more than 64 bits."""
    value = shift = 0
    while shift < 64:
        if at >= len(data):
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128 and not value >> 64:
            return value, at
        shift += 7
    raise ValueError("a number has more than 64 bits")


def fields(message: memoryview, limit: int = MAX_FIELDS) -> Iterator[tuple[int, Value]]:
    """Number and value of each field of a message of at most ``limit`` fields; a ValueError if it is none."""
    at = 0
    for _ in range(limit):
        if at == len(message):
            return
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if not number:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            value, at = varint(message, at)
            yield number, value
            continue
        if kind == _BYTES:
            length, at = varint(message, at)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise ValueError(f"field {number} has the unknown wire type {kind}")
        if length > len(message) - at:
            raise ValueError(f"field {number} is cut off")
        yield number, message[at : at + length]
        at += length
    if at < len(message):
        raise ValueError(f"it has more than {limit:,} fields")


def number_of(value: Value) -> int:
    """The value of a varint field; a ValueError if it has another wire type."""
    if not isinstance(value, int):
        raise ValueError("expected a number, got bytes")
    return value


def bytes_of(value: Value, size: int | None = None) -> memoryview:
    """The bytes of a text, a message, or a fixed-width number (``size`` bytes); a ValueError if it is none of them."""
    if isinstance(value, int):
        raise ValueError("expected bytes, got a number")
    if size not in (None, len(value)):
        raise ValueError(f"expected {size} bytes, got {len(value):,}")
    return value


def text_of(value: Value) -> str:
    """A text field; a ValueError if it is a varint, or not UTF-8."""
    return str(bytes_of(value), "utf-8")
