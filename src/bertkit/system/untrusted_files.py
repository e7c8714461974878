"""Reads untrusted files so that none of them can hang a program or fill its memory."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, shorten
from bertkit.system.fork_locks import ForkSafeLock

#: A value of a JSON file.
Json = bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | None
#: Tokens of a vocabulary, and the bytes and values (see :func:`strict_json`) of its file. Of the models read here
#: LaBSE has the most tokens, 501,153, and XLM-R the largest file, 17.1 MB as an indented tokenizer.json; the merges of
#: BPE do not count (see :mod:`bertkit.tokenization.formats.large_merges`).
MAX_TOKENS = 520_000
MAX_VOCABULARY_BYTES = 18 << 20
MAX_VOCABULARY_VALUES = 1_600_000
#: Published JSON files have about ten levels; deeper nesting could overflow the stack of a recursive reader.
MAX_DEPTH = 100
#: Longer numbers are not sizes, and do not fit a float.
MAX_DIGITS = 300
#: Searched for once all digits are zeros, which takes a tenth of the time of a regular expression.
_LONG_NUMBER = b"0" * (MAX_DIGITS + 1)
_DIGITS_TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
#: In such text, exponents that may make a number infinite.
_LARGE_EXPONENTS = (b"e000", b"E000", b"e+000", b"E+000")
_NESTING = {dict, list}
#: macOS refuses to read 2 GiB or more at once.
_MAX_READ_BYTES = 1 << 30
_seeking = ForkSafeLock()
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def open_regular(file: Path) -> BufferedReader:
    """Open a regular file for reading; a folder, pipe, device or unreadable file is a CheckpointError."""
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
            raise CheckpointError(f"{file} is {kind}, expected a file of a checkpoint")
        return file.open("rb")
    except FileNotFoundError:
        what = "is a link to a file that does not exist" if file.is_symlink() else "does not exist"
        raise CheckpointError(f"{file} {what}") from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from None


def read_regular(file: Path, *, max_bytes: int) -> bytes:
    """The content of a regular file; one of more than ``max_bytes`` is a CheckpointError, and is not read."""
    with open_regular(file) as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            content = stream.read(max_bytes + 1) if size <= max_bytes else b""
        except OSError as error:
            raise CheckpointError(f"{file} cannot be read: {error.strerror or error}") from None
    if max(size, len(content)) > max_bytes:
        raise CheckpointError(
            f"{file} has {max(size, len(content)):,} bytes; such a file has at most {max_bytes:,}. "
            "Fetch or save it again"
        )
    return content


def read_at(stream: BufferedReader, out: memoryview, start: int, what: str) -> None:
    """Fill a buffer (``out``: writable, one byte an item) from offset ``start`` of a file; threads may share it."""
    done = 0
    while done < len(out):
        part = out[done : done + _MAX_READ_BYTES]
        if hasattr(os, "preadv"):
            count = os.preadv(stream.fileno(), [part], start + done)
        else:  # Windows
            with _seeking:
                stream.seek(start + done)
                count = stream.readinto(part)
        if not count:
            raise CheckpointError(f"{stream.name} was cut off while {what} was being read")
        done += count


def strict_json(text: bytes, *, max_values: int = 1_000_000) -> Any:
    """Parse JSON, refusing what the standard leaves undefined and what needs far more memory than its text.

    An object counts as four values more, a key as two; a value takes up to 90 bytes, however short its text. A fault is
    a ValueError: duplicate keys, NaN, numbers too large, half surrogates, too many values or levels, or no JSON.
    """
    opened = text.count(b"{") + text.count(b"[")
    # Also counts those inside texts, so the estimate is never too low.
    found = opened + 3 * text.count(b"{") + 2 * text.count(b":") + text.count(b",")
    if found > max_values:
        raise ValueError(f"it holds some {found:,} values, more than the limit {max_values:,}")
    zeros = text.translate(_DIGITS_TO_ZEROS)
    has_long = _LONG_NUMBER in zeros
    whole_number = _whole_number if has_long else None  # calling it for each number costs 25 %
    number = _finite_number if has_long or any(exponent in zeros for exponent in _LARGE_EXPONENTS) else None
    collecting = gc.isenabled()
    gc.disable()  # it would scan live objects over and over, a third of the time
    try:
        content = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=unique_names,
            parse_constant=_no_constant,
            parse_int=whole_number,
            parse_float=number,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    finally:
        if collecting:
            gc.enable()
    if opened > MAX_DEPTH:
        _check_depth(content)
    if _SURROGATE.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            character = error.object[error.start : error.end]
            raise ValueError(f"it holds {character!r}, half of a character that takes two") from None
    return content


def is_there(file: Path) -> bool:
    """Whether there is a regular file; CheckpointError for a link to nothing or a pipe, which would be passed over."""
    if file.is_file():
        return True
    if os.path.lexists(file):
        raise CheckpointError(f"{file} is there, but is no regular file: remove it, or put the file itself there")
    return False


def read_object(file: Path, *, max_bytes: int) -> dict[str, Json]:
    """The object in a JSON file; any other content is a CheckpointError."""
    text = read_regular(file, max_bytes=max_bytes)
    try:
        values = strict_json(text)
    except ValueError as error:
        raise CheckpointError(f"{file} is not a readable JSON file: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{file} holds a {type(values).__name__}, expected an object of settings")
    return values


def _check_depth(content: Any) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        insides = (each.values() if type(each) is dict else each for each in level if type(each) in _NESTING)
        level = [each for inside in insides for each in inside if type(each) in _NESTING]
        if not level:
            return
    raise ValueError(f"it is nested too deeply (more than {MAX_DEPTH} levels)")


class RepeatedNameError(ValueError):
    """An object of JSON has a name more than once, so that all of its values but one would be lost."""


def unique_names(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The object of these names and values; RepeatedNameError for a name that occurs more than once."""
    content = dict(pairs)
    if len(content) != len(pairs):
        times = Counter(name for name, _ in pairs)
        raise RepeatedNameError(f"it has {shorten(name[:160] for name in times if times[name] > 1)} more than once")
    return content


def _no_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is not JSON")


def _finite_number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"it holds {text[:40]}, which is too large for a number")
    return number


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it holds a whole number of {len(digits):,} digits: {digits[:20]}...")
    return int(digits)


def half_pair_at(text: str) -> int | None:
    """Position of a lone surrogate, which JSON can express and UTF-8 cannot; None if there is none."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None
