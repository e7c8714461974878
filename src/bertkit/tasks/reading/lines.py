"""Lines of a text file, plain or compressed, decoded one by one so that a wrong byte has a line number."""

from __future__ import annotations

import codecs
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

from bertkit.errors import ConfigError, DataError, did_you_mean
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.encodings import HEAD, LEGACY, encoding_of, guess_of, legacy_encoding, open_binary

#: Compressions that may follow the kind of a file, as in ``train.tsv.xz``.
COMPRESSIONS = (".xz", ".gz", ".bz2")
#: Longest line in bytes. A longer one is a sign of a file that is not text, and could fill the memory.
MAX_LINE = 64 * 1024 * 1024
#: Longest field of a table in characters. A longer one is a sign of a quote left open, and could fill the memory.
MAX_FIELD = 10_000_000
#: Most bytes that a file is unpacked to which is not read as a stream.
MAX_UNPACKED = 1 << 30
#: Most names in a folder among which one is looked for that was meant.
MAX_BESIDE = 1000
#: What reading a damaged or unreadable file raises.
DAMAGED = (lzma.LZMAError, zlib.error, EOFError, OSError)


def seekable(path: Path) -> BinaryIO:
    """What a reader of a format that is no text can open: the file, or the content of a compressed one."""
    if path.suffix.casefold() not in COMPRESSIONS:
        return path.open("rb")  # Arrow takes paths in UTF-8 only
    with open_binary(path) as stream:
        content = stream.read(MAX_UNPACKED + 1)
    if len(content) > MAX_UNPACKED:
        raise DataError(f"{path}: unpacked it has more than {MAX_UNPACKED >> 30} GiB; unpack it to a file first")
    return io.BytesIO(content)


def check_file(path: Path) -> None:
    """Refuse what is not a file with a DataError, which names a file beside it with nearly that name."""
    if path.is_file():
        return
    if path.exists():
        raise DataError(f"{path} is not a file{'; give one of the files in it' if path.is_dir() else ''}")
    beside: list[str] = []
    with suppress(OSError):  # there is no such folder, or it may not be read
        beside = sorted(entry.name for entry in islice(path.parent.iterdir(), MAX_BESIDE))
    raise DataError(f"{path} does not exist{did_you_mean(path.name, beside)}")


def check_encoding(encoding: str | None) -> None:
    """Refuse an encoding of which Python knows nothing, with a ConfigError; None: none is given."""
    try:
        b"a".decode(encoding or "utf-8", "replace")
    except (LookupError, ValueError):
        known = ("utf-8", "utf-16", "cp1252", "latin-1", "cp1250", "cp1251", "shift_jis", "gb18030", "mac_roman")
        raise ConfigError(
            f"unknown encoding {encoding!r}{did_you_mean(str(encoding), known)}; use one such as {', '.join(known)}"
        ) from None


def decode(data: bytes, where: str, encoding: str | None) -> str:
    """Bytes as text, without a byte order mark; errors name ``where``."""
    check_encoding(encoding)
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: not {encoding or 'UTF-8'} (byte {error.object[error.start]:#04x} at {error.start}); give its "
            "encoding, for example --encoding cp1252"
        ) from None


def _explain(path: Path, error: UnicodeDecodeError, encoding: str, start: int) -> tuple[str, str]:
    """What byte is wrong, counted from ``start``, with the words there in two encodings; and what to do."""
    utf8 = encoding.startswith("utf-8")
    name = "UTF-8" if utf8 else encoding
    seen = guess_of(path).candidates if utf8 else {}
    other = next(iter(seen), "latin-1" if codecs.lookup(encoding).name == LEGACY else LEGACY)
    often = ", often cp1252 for a file from Excel" if other == LEGACY else ""
    words = ", ".join(f"{words!r} in {name}" for name, words in seen.items())
    return (
        f"byte {error.start - start + 1} of the line, 0x{error.object[error.start]:02x}, is not {name}"
        + (f"; the first words that are not: {words}" if seen else ""),
        f"Give {'its' if utf8 else 'another'} encoding{often}: encoding='{other}' (--encoding {other})",
    )


def _explain_nul(place: int) -> tuple[str, str]:
    return f"a NUL byte at byte {place + 1} of the line", "Is this a text file?"


def _is_wide(encoding: str) -> bool:
    """Whether a character has NUL bytes in an encoding."""
    return codecs.lookup(encoding).name.startswith(("utf-16", "utf-32"))


def read_text(path: Path, encoding: str | None = None) -> str:
    """A whole file, decompressed and decoded, without a byte order mark; errors and ``encoding`` as :class:`Lines`."""
    check_encoding(encoding)
    try:
        with open_binary(path) as stream:
            raw = stream.read()
    except DAMAGED as error:
        raise DataError(f"{path}: damaged or cut short: {error}") from None
    name = encoding_of(path, raw[:HEAD], encoding)
    if b"\0" in raw and not _is_wide(name):
        start = raw.index(b"\0")
        line, first = raw.count(b"\n", 0, start) + 1, raw.rfind(b"\n", 0, start) + 1
        raise DataError(f"{path}:{line}: {'. '.join(_explain_nul(start - first))}")
    try:
        return raw.decode(name).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if encoding is None and name == "utf-8" and (found := legacy_encoding(path)):
            return raw.decode(found)
        start = raw.rfind(b"\n", 0, error.start) + 1
        line = raw.count(b"\n", 0, start) + 1
        raise DataError(f"{path}:{line}: {'. '.join(_explain(path, error, name, start))}") from None


class Lines:
    """The lines of a file, plain or compressed, with their ends; ``number`` of them read so far.

    A byte order mark of UTF-8 or UTF-16 takes precedence over the encoding and is removed; without either see
    :mod:`bertkit.tasks.reading.encodings`. ``damaged`` has the lines
    with wrong bytes, until :meth:`report_damage` reports them.
    """

    def __init__(self, path: Path, bad: BadRows, encoding: str | None = None) -> None:
        check_encoding(encoding)
        self.path = path
        self.number = 0
        self.damaged: dict[int, tuple[str, str, str]] = {}
        self._bad = bad
        self._given = encoding
        self._encoding = encoding or "utf-8"

    def __iter__(self) -> Iterator[str]:
        try:
            with open_binary(self.path) as stream:
                self._encoding = encoding_of(self.path, cast(io.BufferedReader, stream).peek(HEAD), self._given)
                if self._encoding == "utf-8-sig":
                    stream.read(3)
                    self._given = self._encoding = "utf-8"
                if _is_wide(self._encoding):
                    for text in io.TextIOWrapper(stream, self._encoding, newline="\n"):
                        self.number += 1
                        yield text.removeprefix("\ufeff") if self.number == 1 else text
                    return
                for raw in iter(lambda: stream.readline(MAX_LINE), b""):
                    self.number += 1
                    yield self._decode(raw)
        except DAMAGED as error:
            raise DataError(f"{self.path}: damaged or cut short after line {self.number}: {error}") from None
        except UnicodeError as error:  # where a line feed is more than one byte
            raise DataError(f"{self.path}: not {self._encoding} after line {self.number}: {error}") from None

    def _decode(self, raw: bytes) -> str:
        if len(raw) >= MAX_LINE and not raw.endswith(b"\n"):
            raise DataError(f"{self.path}:{self.number}: a line of more than {MAX_LINE:,} bytes; is this a text file?")
        if b"\0" in raw:
            self._damage("NUL", *_explain_nul(raw.index(0)))
        try:
            return raw.decode(self._encoding)
        except UnicodeDecodeError as error:
            if self._given is None and self._encoding == "utf-8" and (found := legacy_encoding(self.path)):
                self._encoding = found  # all lines before are ASCII
                return raw.decode(found)
            kind = "not UTF-8" if self._encoding == "utf-8" else f"not {self._encoding}"
            self._damage(kind, *_explain(self.path, error, self._encoding, 0))
            return raw.decode("utf-8", "surrogateescape")

    def _damage(self, kind: str, message: str, advice: str) -> None:
        if self._bad.at_once:
            self._bad.report(self.path, self.number, kind, message, advice)
        self.damaged[self.number] = kind, message, advice

    def report_damage(self, start: int, end: int) -> bool:
        """Report damaged lines among ``start ... end``; True when there was one."""
        hit = [line for line in self.damaged if start <= line <= end]
        for line in hit:
            self._bad.report(self.path, line, *self.damaged.pop(line))
        return bool(hit)
