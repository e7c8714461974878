"""How the bytes of a text file become characters where nobody has said it, and what is no text at all.

A byte order mark decides; else bytes below 32 at every other place, which text in UTF-16 has; else the file is UTF-8.
Where it is not, it is taken for cp1252, which Windows programs write, if every byte is defined there, no line is UTF-8
beyond ASCII, and ``charset-normalizer`` finds that text as plausible as in any other encoding. That is always said,
with the first words that depend on it.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from bertkit.errors import DataError
from bertkit.system.console import say_once

LEGACY = "cp1252"
#: Bytes looked at for zeros and control characters; and bytes of lines that are not ASCII, for a guess.
HEAD, SAMPLE = 4096, 32768
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UTF32_MARKS = (b"\xff\xfe\0\0", b"\0\0\xfe\xff")
#: What text is compared in: the other encodings of Windows, DOS and Macintosh, and those of East Asia.
_RIVALS = (
    *("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp850", "cp437", "koi8_r", "mac_roman"),
    *("shift_jis", "euc_jp", "gb18030", "big5", "euc_kr"),
)
_CONTROLS = re.compile(rb"[\x01-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
#: The number and the share of control characters above which a file is no text; a few may stand in any text.
_MANY_CONTROLS, _SHARE = 64, 0.1
#: Bytes that say a script in UTF-16 and stand in no other text; shares of them, and of bytes over 127, that show it.
_SCRIPTS = re.compile(rb"[\0-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_FEWEST_SCRIPTS, _FEWEST_LETTERS = 0.4, 0.2
_AS_IS = "Give it its own name"
#: How files begin that are no text: what they are, and what to do.
_MAGIC = {
    b"PK\x03\x04": (
        "a zip archive, as Excel workbooks and Word documents are",
        "Name a workbook .xlsx, or save its sheet as .csv",
    ),
    b"\xd0\xcf\x11\xe0": (
        "an old Excel or Word file, or one with a password",
        "Save it as .xlsx without a password, or as .csv",
    ),
    b"%PDF-": ("a PDF", "Save its text first"),
    b"\x89PNG": ("a PNG picture", "Give a file of text"),
    b"\xff\xd8\xff": ("a JPEG picture", "Give a file of text"),
    b"GIF8": ("a GIF picture", "Give a file of text"),
    b"\x1f\x8b": ("compressed by gzip", f"{_AS_IS}, which ends in .gz"),
    b"BZh": ("compressed by bzip2", f"{_AS_IS}, which ends in .bz2"),
    b"\xfd7zXZ": ("compressed by xz", f"{_AS_IS}, which ends in .xz"),
    b"PAR1": ("a Parquet file", f"{_AS_IS}, which ends in .parquet"),
    b"SQLite format 3": ("a database of SQLite", "Export the table as .csv"),
}


class Guess(NamedTuple):
    """What a file seems to be that is not UTF-8.

    encoding: :data:`LEGACY`, or None where it cannot be told. line, words: the first that depend on it.
    candidates: those words by encoding, the likeliest first, where it cannot be told.
    """

    encoding: str | None
    line: int
    words: str
    candidates: dict[str, str]


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed by its name. Damage inside a compressed file shows while reading."""
    opener = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.casefold(), open)
    try:
        return cast(BinaryIO, opener(path, "rb"))  # type: ignore[operator]
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror or error}") from None


def has_mark(path: Path) -> bool:
    """Whether a file begins with a byte order mark."""
    with open_binary(path) as stream:
        return stream.read(4).startswith((_UTF8_MARK, *_UTF16_MARKS, *_UTF32_MARKS))


def encoding_of(path: Path, head: bytes, given: str | None) -> str:
    """By the first bytes of a file: a mark, what was ``given``, UTF-16 by its bytes, else UTF-8.

    Raises:
        DataError: the file is of a known kind that is no text, or is full of control characters.
    """
    if head.startswith(_UTF8_MARK):
        return "utf-8-sig"
    if head.startswith(_UTF32_MARKS):
        return "utf-32"
    if head.startswith(_UTF16_MARKS):
        return "utf-16"
    if given is not None:
        return "utf-8" if codecs.lookup(given).name == "utf-8-sig" else given  # which has no mark to leave out
    _refuse_known(path, head[:HEAD])
    if (found := _utf16_in(head[:HEAD])) is not None:
        words = " ".join(head[: HEAD // 2 * 2].decode(found, "ignore").split()[:3])
        say_once(
            f"{path}: read as UTF-16, although it has no byte order mark, as in {words[:60]!r}. If that is wrong, give "
            "the encoding (--encoding)"
        )
        return found
    _refuse_controls(path, head[:HEAD])
    return "utf-8"


def _utf16_in(head: bytes) -> str | None:
    """Which UTF-16 the first bytes of a file are that has no mark; None for other text and for what is none.

    One of the two bytes of each character says the script. In alphabets it is below 32, as no byte of other text is;
    in East Asia that of blanks, digits and line ends is, and the other byte is as often above 127 as not, where two
    letters of ASCII would look Chinese, too. All characters must be letters and other things that text has, and not
    blanks alone.
    """
    for parity, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        script, other = head[parity::2], head[1 - parity :: 2]
        low, half = len(_SCRIPTS.findall(script)), min(len(script), len(other))
        if half < 2 or not low or script.count(0) < other.count(0):
            continue
        letters = sum(byte > 127 for byte in other)
        if low < _FEWEST_SCRIPTS * half and (not script.count(0) or letters < _FEWEST_LETTERS * half):
            continue
        text = codecs.getincrementaldecoder(name)("ignore").decode(head[: 2 * half])
        if text.strip() and all(
            unicodedata.category(each)[0] != "C" or each in "\t\r\n\u200b\u200c\u200d\u200e\u200f" for each in text
        ):
            return name
    return None


def _refuse_known(path: Path, head: bytes) -> None:
    binary = b"\0" in head or _CONTROLS.search(head) or any(byte > 127 for byte in head)
    for magic, (what, advice) in _MAGIC.items():
        if binary and head.startswith(magic):
            raise DataError(f"{path}: this is {what}, not text. {advice}")


def _refuse_controls(path: Path, head: bytes) -> None:
    controls = len(_CONTROLS.findall(head))
    if controls > max(_MANY_CONTROLS, _SHARE * len(head)):
        first = _CONTROLS.search(head)
        assert first is not None
        raise DataError(
            f"{path}: {controls:,} of the first {len(head):,} bytes are control characters, such as "
            f"0x{first[0][0]:02x} at byte {first.start() + 1}; this is no text. Is it the right file?"
        )


def legacy_encoding(path: Path) -> str | None:
    """The encoding of a file that is not UTF-8, which is said; None where it cannot be told."""
    guess = guess_of(path)
    if guess.encoding is not None:
        say_once(
            f"{path}: not UTF-8; read as {guess.encoding}, as in {guess.words!r} (line {guess.line:,}). If that is "
            "wrong, give the encoding (--encoding)"
        )
    return guess.encoding


def guess_of(path: Path) -> Guess:
    """What a file seems to be that is not UTF-8; it is read as a whole, as a stream."""
    facts = path.stat()
    return _guess(os.fspath(path), facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=64)
def _guess(path: str, changed: int, size: int) -> Guess:
    sample, first, mixed, undefined = b"", (0, b""), False, False
    for number, line in _lines(Path(path)):
        if not first[0] and not _is(line, "utf-8"):
            first = number, line
        mixed = mixed or _is(line, "utf-8")
        undefined = undefined or not _is(line, LEGACY)
        if len(sample) < SAMPLE:
            sample += line[: SAMPLE - len(sample)]
    rival = _rival(sample)
    number, line = first
    if not (mixed or undefined or rival != LEGACY):
        return Guess(LEGACY, number, _words(line, LEGACY), {})
    likely = (rival or LEGACY, LEGACY, "cp1250", "mac_roman", "cp850")  # the last two have every byte
    names = [name for name in likely if _is(line, name)]
    shown: dict[str, str] = {}
    for name in dict.fromkeys(names):
        words = _words(line, name)
        if len(shown) < 2 and words not in shown.values():
            shown[name] = words
    return Guess(None, number, "", shown)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of the lines of a file that are not ASCII, in parts where they are long."""
    with open_binary(path) as stream:
        number = 1
        for line in iter(lambda: stream.readline(1 << 20), b""):
            if not line.isascii():
                yield number, line
            number += line.endswith(b"\n")


def _is(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _rival(sample: bytes) -> str | None:
    """The encoding in which a text is most plausible, :data:`LEGACY` if it is as plausible as the best; else None."""
    try:
        from charset_normalizer import from_bytes
    except ModuleNotFoundError:  # bertkit-lite may do without
        return None
    found = {match.encoding: match.chaos for match in from_bytes(sample, cp_isolation=[LEGACY])}
    for match in from_bytes(sample, cp_isolation=list(_RIVALS)):
        found.setdefault(match.encoding, match.chaos)
    return min(found, key=lambda name: found[name]) if found else None  # of equals the first one


def _words(line: bytes, encoding: str) -> str:
    """The first word of a line that is not ASCII, with the word before and behind it."""
    words = line.decode(encoding, "replace").split()
    place = next((number for number, word in enumerate(words) if not word.isascii()), 0)  # none: a blank of it
    return " ".join(words[max(0, place - 1) : place + 2])[:60]
