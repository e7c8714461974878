"""Where files are cut into blocks: at ends of rows, by bytes and rows alone, so that no worker has a say in it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Literal

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError
from bertkit.system.atomic_files import sha256_file
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.encodings import open_binary
from bertkit.tasks.reading.lines import DAMAGED, MAX_FIELD
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import DelimitedTable, open_table

#: Most rows, and about how many bytes of text, a block has.
ROWS, BYTES = 16_384, 4 << 20
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a file that is computed at once.

    file: number of the file. start, end: of ``"bytes"`` in the file, decompressed; of ``"rows"``, its rows, from 0; of
        ``"groups"``, the rows of a Parquet file. head: bytes of the file that stand before those of any block: a
        header, or the first record, which is no row of the block then. rows: about how many it has; line: of the file
        before its first one. sha256: of its bytes, or of the whole file.
    """

    file: int
    kind: Literal["bytes", "rows", "groups"]
    start: int
    end: int
    rows: int
    line: int
    head: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Size:
    """How large blocks are."""

    rows: int = ROWS
    bytes: int = BYTES


def cut_file(path: Path, number: int, columns: Columns | None, size: Size, count: Callable[[], int]) -> list[Block]:
    """The blocks of a file. ``columns``: None for one that is only read as a whole, whose rows ``count`` counts."""
    kind = kind_of(path)
    if columns is not None and kind == ".parquet":
        return _of_groups(path, number, size)
    if columns is not None and kind in (None, ".jsonl", ".ndjson", ".csv", ".tsv"):
        try:
            return list(_of_lines(path, number, columns, size))
        except _NotByBytes:
            pass
        except DAMAGED as error:
            raise DataError(f"{path}: damaged or cut short: {error}") from None
    return _of_rows(path, number, size, count())


class _NotByBytes(Exception):  # noqa: N818  # no error: another way is taken
    """The file is not UTF-8 throughout, has lines above its header or first record, or a header of several lines."""


def _of_rows(path: Path, number: int, size: Size, total: int) -> list[Block]:
    """Of a file that is read from its start by every process."""
    sha256, starts = _hash(path), range(0, total, size.rows)
    ends = [min(start + size.rows, total) for start in starts]
    return [
        Block(number, "rows", start, end, end - start, 0, 0, sha256) for start, end in zip(starts, ends, strict=True)
    ]


def _hash(path: Path) -> str:
    if path.is_file():
        return sha256_file(path)
    parts = (f"{part.name} {sha256_file(part)}\n" for part in sorted(path.iterdir()) if part.is_file())
    return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _of_groups(path: Path, number: int, size: Size) -> list[Block]:
    import pyarrow.parquet as pq

    from bertkit.tasks.reading.lines import seekable

    sha256, blocks, start = sha256_file(path), list[Block](), 0
    open_table(path, Columns(()), BadRows())  # a damaged one is an error of ours
    about = pq.ParquetFile(seekable(path)).metadata
    for group in range(about.num_row_groups):
        rows = about.row_group(group).num_rows
        most = max(1, min(size.rows, rows * size.bytes // max(1, about.row_group(group).total_byte_size)))
        for first in range(0, rows, most):
            count = min(most, rows - first)
            blocks.append(
                Block(number, "groups", start + first, start + first + count, count, start + first, 0, sha256)
            )
        start += rows
    return blocks


def _of_lines(path: Path, number: int, columns: Columns, size: Size) -> Iterator[Block]:
    head_lines, quoted = _head_of(path, columns)
    with open_binary(path) as stream:
        head = b"".join(stream.readline() for _ in range(head_lines))
        if quoted and head.count(b'"') % 2:  # the header goes on in the next line
            raise _NotByBytes
        rows = _quoted_rows(stream, str(columns.delimiter or ",")) if quoted else _lines(stream)
        start, line, mark = len(head), head_lines, hashlib.sha256(head).hexdigest()
        if kind_of(path) in (".jsonl", ".ndjson"):  # whose first record is a row as well
            if not head.decode("utf-8", "replace").lstrip("\ufeff").strip():
                raise _NotByBytes  # a blank line is no record
            start, line, rows = 0, 0, chain([(head, 1)] if head else [], rows)
        digest, count, used, lines = hashlib.sha256(mark.encode()), 0, 0, 0
        for content, height in rows:
            _check_text(content)
            digest.update(content)
            count, used, lines = count + 1, used + len(content), lines + height
            if count >= size.rows or used >= size.bytes:
                yield Block(number, "bytes", start, start + used, count, line, len(head), digest.hexdigest())
                start, line = start + used, line + lines
                digest, count, used, lines = hashlib.sha256(mark.encode()), 0, 0, 0
        if count:
            yield Block(number, "bytes", start, start + used, count, line, len(head), digest.hexdigest())


def _check_text(content: bytes) -> None:
    if not content.isascii():
        try:
            content.decode("utf-8")
        except UnicodeDecodeError:
            raise _NotByBytes from None
    if b"\0" in content:
        raise _NotByBytes


def _head_of(path: Path, columns: Columns) -> tuple[int, bool]:
    """How many lines stand before the rows, or in front of all blocks; and whether rows may have several lines."""
    if columns.encoding not in (None, "utf-8"):
        raise _NotByBytes
    kind = kind_of(path)
    if kind is None:
        return 0, False
    table: Any = open_table(path, columns, BadRows())
    if not isinstance(table, DelimitedTable):
        return 1, False
    if table.note or table.header_line != 1 or columns.headerless or columns.delimiter is None:
        raise _NotByBytes
    return 1, table.is_quoted


def _lines(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    return ((line, 1) for line in stream)


def _quoted_rows(stream: BinaryIO, delimiter: str) -> Iterator[tuple[bytes, int]]:
    """Rows of CSV, each with the number of its lines."""
    csv.field_size_limit(max(MAX_FIELD, csv.field_size_limit()))
    waiting: list[bytes] = []

    def text() -> Iterator[str]:
        for line in stream:
            waiting.append(line)
            yield line.decode("utf-8", "surrogateescape")

    for _ in csv.reader(text(), delimiter=delimiter):
        yield b"".join(waiting), len(waiting)
        waiting.clear()
    if waiting:
        yield b"".join(waiting), len(waiting)


def block_bytes(stream: BinaryIO, block: Block) -> tuple[bytes, bytes]:
    """The head of a file and the bytes of a block."""
    head = stream.read(block.head)
    stream.seek(block.start)
    return head, stream.read(block.end - block.start)


def sha256_of_bytes(head: bytes, content: bytes) -> str:
    """As :attr:`Block.sha256` has it."""
    return hashlib.sha256(hashlib.sha256(head).hexdigest().encode() + content).hexdigest()
