"""The files of a search index: blocks of vectors and texts that never change, and a manifest that says which count.

An index is a folder::

    INDEX/
        block-000000.npy      vectors of up to 8,192 texts: float32, float16 or int8 (N, D)
        block-000000.jsonl    the same texts: {"id": ..., "text": ..., "source": ...} a line, of passages and of rows
                              with shown columns also {"more": {"heading": ..., "start": ..., "end": ...}}
        index.json            the model, and each block with its sizes, checksums and removed rows

A change writes new blocks, then replaces ``index.json``, then deletes what it no longer names: whenever a process is
killed, the index is as before or as after one block.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, InputError, counted
from bertkit.metrics.nearest import directions
from bertkit.ragged import Floats, Ints
from bertkit.system.atomic_files import disk_guard, replace_files, write_atomically
from bertkit.system.folder_manifest import FolderKind
from bertkit.system.validated_settings import Field, Settings

MANIFEST = "index.json"
#: Half-written files, see :mod:`bertkit.system.atomic_files`.
DRAFTS = ".*.tmp"
#: Increased when older versions could misread an index.
FORMAT_VERSION = 1

NumberType = Literal["float32", "float16", "int8"]
Stored = npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.int8]
Count = Annotated[int, Field(ge=0)]
AGAIN = "build the index again, in a new folder"
#: Of a passage, the titles above it.
HEADING = "heading"
#: What a manifest says of how its texts became vectors, and of which type it is; the rest are hashes.
_FACTS = {"pooling": str, "prompt": str, "query_prompt": str, "max_length": int | None}


class Row(NamedTuple):
    """A text of an index. source: the file it came from, as it was given.

    more: of a passage its ``heading``, the characters ``start`` and ``end`` and the ``page``; of a row of a table the
        columns that are shown. None where there is nothing more.
    """

    id: str
    text: str
    source: str
    more: dict[str, str | int] | None = None

    @property
    def searched(self) -> str:
        """What is searched: a passage with its headings."""
        heading = self.more.get(HEADING) if self.more and "start" in self.more else None
        return f"{heading}\n{self.text}" if heading else self.text

    def to_dict(self) -> dict[str, str | dict[str, str | int]]:
        """As a line of a block."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Block(Settings):
    """Two files; ``number`` makes their names. removed: rows that no longer count, in order."""

    number: Count
    rows: Annotated[int, Field(ge=1)]
    vectors_bytes: Count
    vectors_crc32: Count
    texts_bytes: Count
    texts_crc32: Count
    removed: tuple[Count, ...] = ()

    @property
    def names(self) -> tuple[str, str]:
        """Of the vectors and of the texts."""
        return f"block-{self.number:06d}.npy", f"block-{self.number:06d}.jsonl"

    @property
    def live(self) -> Ints:
        """Rows that count."""
        kept = np.ones(self.rows, np.bool_)
        kept[list(self.removed)] = False
        return np.flatnonzero(kept)


class Manifest(Settings):
    """Content of ``index.json``. facts: what its vectors depend on. finished: the first build is complete.

    documents: the files of documents that are in it, each with the SHA-256 of its bytes.
    vectors_share: how much vectors count in a search that is not asked for another, and words the rest; None: 1.
    """

    format_version: Literal[1] = 1
    model: str
    facts: dict[str, str | int | None]
    width: Annotated[int, Field(ge=1)]
    number_type: NumberType
    finished: bool = False
    next_block: Count = 0
    blocks: tuple[Block, ...] = ()
    documents: dict[str, str] = Field({})
    vectors_share: Annotated[float, Field(ge=0, le=1)] | None = None

    @property
    def num_texts(self) -> int:
        """Texts that count."""
        return sum(block.rows - len(block.removed) for block in self.blocks)


INDEX = FolderKind(
    Manifest,
    MANIFEST,
    FORMAT_VERSION,
    called="a search index",
    command="bertkit search build INDEX FILES --model MODEL",
    again=AGAIN,
)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index, finished or not; anything else is a DataError."""
    manifest = INDEX.read(folder)
    for block in manifest.blocks:
        wrong_rows = any(row >= block.rows for row in block.removed) or len({*block.removed}) < len(block.removed)
        if block.number >= manifest.next_block or wrong_rows:
            raise DataError(f"{folder / MANIFEST} is damaged: block {block.number} has numbers that cannot be; {AGAIN}")
    if len({block.number for block in manifest.blocks}) < len(manifest.blocks):
        raise DataError(f"{folder / MANIFEST} is damaged: two of its blocks have one number; {AGAIN}")
    for name, kinds in _FACTS.items():
        if not isinstance(value := manifest.facts.get(name), kinds):
            raise DataError(f"{folder / MANIFEST} is damaged: {name} is {value!r:.80}; {AGAIN}")
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Replace ``index.json``."""
    unused = {name for name in ("documents", "vectors_share") if getattr(manifest, name) in ({}, None)}
    write_atomically(folder / MANIFEST, manifest.model_dump_json(indent=1, exclude=unused) + "\n")


def write_block(folder: Path, number: int, vectors: Stored, rows: Sequence[Row]) -> Block:
    """Write the two files of a block, whole or not at all."""
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    lines = "".join(json.dumps(row.to_dict(), ensure_ascii=False) + "\n" for row in rows)
    contents = buffer.getvalue(), lines.encode("utf-8", "replace")  # half of a surrogate pair becomes a "?"
    facts = {
        f"{name}_{what}": value
        for name, data in zip(("vectors", "texts"), contents, strict=True)
        for what, value in (("bytes", len(data)), ("crc32", zlib.crc32(data)))
    }
    block = Block(number=number, rows=len(rows), **facts)
    advice = "What was written before stays: make room and run the same command to go on"
    with disk_guard(folder, sum(map(len, contents)), what="a block of the index", advice=advice):
        replace_files(folder, dict(zip(block.names, contents, strict=True)))
    return block


def check_sizes(folder: Path, block: Block) -> None:
    """DataError if a file of a block is missing, or not as long as when it was written."""
    for name, size in zip(block.names, (block.vectors_bytes, block.texts_bytes), strict=True):
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing; copy the whole folder, or {AGAIN}")
        if path.stat().st_size != size:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes instead of {size:,}: it is damaged; {AGAIN}")


def read_vectors(folder: Path, block: Block, manifest: Manifest) -> Stored:
    """The stored vectors of a block, mapped from the file, after their checksum is compared.

    A checksum, because it takes half of the time of a SHA-256, and every query reads every vector once.
    """
    check_sizes(folder, block)
    path, found_crc32 = folder / block.names[0], 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found_crc32 = zlib.crc32(chunk, found_crc32)
    _compare(path, found_crc32, block.vectors_crc32)
    try:
        found: Stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}; {AGAIN}") from None
    if found.shape != (block.rows, manifest.width) or found.dtype != np.dtype(manifest.number_type):
        raise DataError(
            f"{path} holds {found.dtype} {found.shape}, {MANIFEST} says {manifest.number_type} "
            f"{(block.rows, manifest.width)}; {AGAIN}"
        )
    return found


def _compare(path: Path, found_crc32: int, written: int) -> None:
    if found_crc32 != written:
        raise DataError(f"{path} is not what was written: its checksum differs; {AGAIN}")


def read_rows(folder: Path, block: Block, only: Ints | None = None) -> dict[int, Row]:
    """Texts of a block by their numbers in it, after their checksum is compared; None: those that count."""
    check_sizes(folder, block)
    path = folder / block.names[1]
    data = path.read_bytes()
    _compare(path, zlib.crc32(data), block.texts_crc32)
    lines = data.split(b"\n")[:-1]
    if len(lines) != block.rows:
        raise DataError(f"{path} holds {counted(len(lines), 'text')}, {MANIFEST} says {block.rows:,}; {AGAIN}")
    try:
        found = {number: Row(**json.loads(lines[number])) for number in (block.live if only is None else only).tolist()}
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}; {AGAIN}") from None
    for number, row in found.items():
        more = row.more or {}
        if not all(isinstance(value, str) for value in (*row[:3], *more)) or (
            not isinstance(more, dict) or not all(isinstance(value, str | int) for value in more.values())
        ):
            raise DataError(f"{path}:{number + 1} must have texts, got {str(tuple(row))[:80]}; {AGAIN}")
    return found


def stored(vectors: Floats, number_type: NumberType) -> Stored:
    """Vectors ``(N, D)`` of length 1 as an index stores them: as int8 the largest number is 127, without length."""
    if number_type == "int8":
        largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), np.float32(1e-12))
        vectors = np.rint(vectors * (np.float32(127) / largest))
    found: Stored = vectors.astype(number_type)
    return found


def directions_of(found: Stored) -> Floats:
    """Stored vectors as float32, those in 8 bits with length 1."""
    vectors: Floats = np.asarray(found, np.float32)
    return directions(vectors) if found.dtype == np.int8 else vectors


def unnamed_files(folder: Path, blocks: Iterable[Block]) -> list[Path]:
    """Files of blocks that no manifest names, and half-written ones: what a killed process, or a change, left."""
    named = {name for block in blocks for name in block.names}
    whole = [*folder.glob("block-*.npy"), *folder.glob("block-*.jsonl")]
    return [*(path for path in whole if path.name not in named), *folder.glob(DRAFTS)]


def check_number_type(number_type: str) -> None:
    """InputError for one that there is not."""
    if number_type not in ("float32", "float16", "int8"):
        raise InputError(f"vectors are stored as float32, float16 or int8, got {number_type!r}")
