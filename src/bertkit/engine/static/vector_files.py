"""Text files of word vectors: a word and its numbers on a line (word2vec's text format, GloVe, fastText's ``.vec``).

The first line may say how many words and numbers there are, as in word2vec and fastText. Numbers are counted from the
end of a line, because words of GloVe may have blanks in them. Files may be compressed by gzip.
"""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from bertkit.errors import DataError, ResourceError
from bertkit.ragged import Floats
from bertkit.system.atomic_files import new_file
from bertkit.system.console import progress
from bertkit.system.untrusted_files import open_regular

#: Endings of text files.
TEXT_ENDINGS = (".vec", ".txt", ".vec.gz", ".txt.gz")
#: Most bytes of a line, numbers of a vector, and bytes of all vectors in float32.
MAX_LINE, MAX_WIDTH, MAX_BYTES = 1 << 20, 1 << 16, 8 << 30
_HEADER = re.compile(r"\d{1,9} \d{1,9}")


def read_vectors(path: Path, max_words: int | None = None) -> tuple[list[str], Floats]:
    """Words and vectors ``(V, D)`` of a text file; ``max_words``: only so many, which are the most frequent ones.

    Raises:
        DataError: no such file; a line that is no word with numbers, has another count of them, a word for the second
            time, or a number that is not finite; another count of lines than the first one says. Names file and line.
        ResourceError: more than :data:`MAX_BYTES`.
    """
    lines = _lines(path)
    try:
        first = next(lines, None)
        if first is None:
            raise DataError(f"{path} is empty; expected a word and its numbers on each line")
        said: tuple[int, int] | None = None
        if _HEADER.fullmatch(first):
            said = int(first.split()[0]), int(first.split()[1])
        numbered = enumerate(lines, start=2) if said else enumerate(_chained(first, lines), start=1)
        words, vectors = _read(path, numbered, said, max_words)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if said and max_words is None and len(words) != said[0]:
        raise DataError(f"{path}:1 says that there are {said[0]:,} words, and {len(words):,} follow")
    return words, vectors


def _chained(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    yield from lines


def _read(
    path: Path, numbered: Iterator[tuple[int, str]], said: tuple[int, int] | None, max_words: int | None
) -> tuple[list[str], Floats]:
    line_of: dict[str, int] = {}
    values, width = array("f"), said[1] if said else 0
    if said and not 1 <= width <= MAX_WIDTH:
        raise DataError(f"{path}:1 says that vectors have {width:,} numbers, expected 1 to {MAX_WIDTH:,}")
    for number, line in progress(numbered, label="reading word vectors", unit="words"):
        if max_words is not None and len(line_of) >= max_words:
            break
        width = width or line.count(" ")
        word, *parts = line.rsplit(" ", width) if width else (line,)
        where = f"{path}:{number}"
        too_many = " " in word and _is_number(word.rpartition(" ")[2])
        if len(parts) != width or not width or not word or width > MAX_WIDTH or too_many:
            raise DataError(
                f"{where}: expected a word and {width or 'its'} numbers, got {line.count(' ')} after the first blank: "
                f"{line[:60]!r}"
            )
        if word in line_of:
            raise DataError(f"{where} repeats {word[:60]!r}, which line {line_of[word]} has already")
        try:
            row = np.array([float(part) for part in parts], np.float64)
        except ValueError:
            wrong = next(part for part in parts if not _is_number(part))
            raise DataError(f"{where}: {wrong[:40]!r} is not a number; expected {word[:40]!r} and {width}") from None
        if not np.isfinite(row).all() or np.abs(row).max() > np.finfo(np.float32).max:
            raise DataError(f"{where}: the vector of {word[:60]!r} has a number that is not finite in 32 bits")
        line_of[word] = number
        values.frombytes(row.astype(np.float32).tobytes())
        if len(values) * 4 > MAX_BYTES:
            raise ResourceError(f"{where}: more than {MAX_BYTES >> 30} GiB of vectors; read fewer words (max_words)")
    if not line_of:
        raise DataError(f"{path} has no words")
    return list(line_of), np.frombuffer(values, np.float32).reshape(len(line_of), width).copy()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> Iterator[str]:
    """Lines without what ends them; fastText puts a blank before that."""
    if not path.is_file():
        raise DataError(f"no file {str(path)!r} with word vectors")
    with open_regular(path) as raw:
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw)
        number = 0
        while line := stream.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise DataError(f"{path}:{number} is longer than {MAX_LINE:,} bytes; is it a file of word vectors?")
            try:
                yield line.rstrip(b"\r\n ").decode("utf-8").replace("\t", " ")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x} at {error.start})"
                ) from None


def write_vectors(path: Path, words: Sequence[str], vectors_VD: Floats) -> None:
    """Write word2vec's text format, with six digits; DataError for a word with white space."""
    if wrong := next((word for word in words if not word or len(word.split()) != 1 or word != word.strip()), None):
        raise DataError(f"the word {wrong!r:.60} has white space, which separates words from numbers in {path.name}")
    with new_file(path) as draft, draft.open("wb") as raw:
        packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.suffix == ".gz" else raw
        stream = cast("IO[bytes]", packed)
        stream.write(f"{len(words)} {vectors_VD.shape[1]}\n".encode())
        for word, row in zip(words, vectors_VD.tolist(), strict=True):
            stream.write(f"{word} {' '.join(f'{value:.6g}' for value in row)}\n".encode())
        if packed is not raw:
            packed.close()
