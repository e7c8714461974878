"""A decoded copy of a large token store in one file, mapped into memory.

A Parquet store is compressed, checked and open to every reader, but reading one id decodes its whole row group, and
examples in random order would decode one for nearly every segment. From the mapped copy a segment costs a page or two,
which the system reads, caches, drops and shares among all processes. It also has the boundaries of sentences and
documents, 8 bytes each, which every process would otherwise hold for itself.

The file can be deleted at any time. Its parts, each aligned to 8 bytes::

    ids                   uint16 or uint32 (num_tokens,)
    sentence_boundaries   int64 (num_sentences + 1,)
    document_boundaries   int64 (num_documents + 1,)
    blocks                int64 (num_blocks + 1,), token offsets; a block is a row group
    checksums             uint32 (num_blocks,), CRC-32 of the ids of each block
    JSON                  SHA-256 of the store's manifest; type, place and CRC-32 of each part
    16 bytes              a mark, CRC-32 and length of the JSON

It gets its name once it is completely on disk. A block is checked when it is first read, not 9 GB at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import secrets
import struct
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from bertkit.errors import DataError, ResourceError
from bertkit.ragged import Ints
from bertkit.system.atomic_files import disk_guard, sync_file, sync_folder, try_lock
from bertkit.system.console import Progress, say
from bertkit.system.paths import cache_root

NAME = "mapped.ids"
#: Seconds between two attempts to get a lock that another process holds.
WAIT_S = 0.2

_FORMAT = 1
_END = struct.Struct("<8sII")
_MARK = b"bertkit\n"
#: Token ids as a store holds them: uint16 or uint32.
StoredIds = NDArray[np.unsignedinteger]
_PARTS = ("sentence_boundaries", "document_boundaries", "blocks", "checksums")


class Place(TypedDict):
    """Where a part of the file is: numpy's name of the type, the byte where it begins, the number of elements."""

    kind: str
    offset: int
    count: int


class Facts(TypedDict):
    """The JSON of the file."""

    format: int
    manifest: str
    parts: dict[str, Place]
    crc32: dict[str, int]


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a mapped copy.

    manifest: SHA-256 of the store's manifest, which has the hashes of all shards.
    id_type: numpy's name of the type of the ids.
    blocks: token offset where each block begins, and the end: num_blocks + 1 numbers.
    """

    manifest: str
    id_type: str
    blocks: Sequence[int]
    ids_of: Callable[[int], StoredIds]
    sentence_boundaries: Ints
    document_boundaries: Ints

    @property
    def num_bytes(self) -> int:
        """About how large the file is."""
        numbers = len(self.sentence_boundaries) + len(self.document_boundaries) + 2 * len(self.blocks)
        return self.blocks[-1] * np.dtype(self.id_type).itemsize + 8 * numbers + 4096


class MappedStore:
    """An open mapped copy; boundaries are read-only views. Safe to share between threads; not picklable."""

    def __init__(self, path: Path, manifest: str) -> None:
        self.path = path
        with path.open("rb") as file:
            self._identity = _identity(os.fstat(file.fileno()))
            try:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                facts = _facts(view)
                is_ours = (facts["format"], facts["manifest"]) == (_FORMAT, manifest)
                arrays = {
                    name: np.frombuffer(view, np.dtype(part["kind"]), part["count"], part["offset"])
                    for name in ("ids", *_PARTS)
                    for part in [facts["parts"][name]]
                }
                if any(zlib.crc32(arrays[name].data) != facts["crc32"][name] for name in _PARTS):
                    raise ValueError("a checksum is wrong")
            except (ValueError, KeyError, TypeError, struct.error) as error:
                raise DataError(f"{path} is damaged ({error})") from None
        if not is_ours:
            raise DataError(f"{path} belongs to another store, or was written by another version of bertkit")
        self._ids: StoredIds = arrays["ids"]
        self.sentence_boundaries: Ints = arrays["sentence_boundaries"]
        self.document_boundaries: Ints = arrays["document_boundaries"]
        self._blocks: list[int] = arrays["blocks"].tolist()
        self._checksums: list[int] = arrays["checksums"].tolist()
        self._is_checked = np.zeros(len(self._checksums), bool)

    def read(self, start: int, end: int) -> StoredIds:
        """Ids at token offsets ``start`` to ``end`` - 1, a read-only view; DataError where the file is damaged."""
        block = bisect_right(self._blocks, start) - 1
        while block < len(self._checksums) and self._blocks[block] < end:
            if not self._is_checked[block]:
                ids = self._ids[self._blocks[block] : self._blocks[block + 1]]
                if zlib.crc32(ids.data) != self._checksums[block]:
                    raise DataError(f"{self.path} is damaged: the checksum of block {block} is wrong")
                self._is_checked[block] = True
            block += 1
        return self._ids[start:end]

    def remove(self) -> None:
        """Delete the file, unless another process has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if _identity(self.path.stat()) == self._identity:
                self.path.unlink()


def copies_of(store: Path) -> list[Path]:
    """Where the mapped copy of a store may be: in its folder, or else in the user's cache folder."""
    name = hashlib.sha256(os.fsencode(store.resolve())).hexdigest()[:16]
    return [store / NAME, cache_root() / "stores" / f"{name}.ids"]


def find_mapped(paths: Sequence[Path], manifest: str) -> MappedStore | None:
    """The first of ``paths`` that is a complete copy of this very store."""
    for path in paths:
        with contextlib.suppress(OSError, DataError):
            return MappedStore(path, manifest)
    return None


def make_mapped(paths: Sequence[Path], content: Content) -> MappedStore | None:
    """Find the copy, or write it to the first of ``paths`` that can be written; None, after a message, if none can."""
    found = find_mapped(paths, content.manifest)
    reasons = []
    for path in paths:
        if found is not None:
            return found
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                found = find_mapped([path], content.manifest)  # written by the process that we waited for
                if found is None:
                    _write(path, content)
                    found = MappedStore(path, content.manifest)
        except ResourceError as error:
            reasons.append(str(error))
        except OSError as error:
            reasons.append(f"{path} cannot be written ({error.strerror or error})")
    if found is None:
        say(
            "the token store is larger than its cache and is read the slow way, decoding parts of it again and again: "
            f"its decoded copy of {content.num_bytes / 1e9:,.1f} GB could be written nowhere ({'; '.join(reasons)}). "
            "Free some space, or set XDG_CACHE_HOME to a writable folder with enough"
        )
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Be the only process that writes ``path``, after waiting for another one if necessary."""
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        if not try_lock(lock):
            say(f"waiting for another process that writes {path}")
            while not try_lock(lock):
                time.sleep(WAIT_S)
        yield


def _write(path: Path, content: Content) -> None:
    """Write the file under a temporary name, then rename it. The caller holds the lock."""
    for left in path.parent.glob(f".{path.name}.*.tmp"):  # by a process that was killed
        left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    num_tokens = content.blocks[-1]
    say(f"writing {num_tokens:,} ids once to {path} ({content.num_bytes / 1e9:,.1f} GB), to read them in any order")
    try:
        with disk_guard(path.parent, content.num_bytes, what=path.name, advice=None), temporary.open("wb") as file:
            checksums = np.zeros(len(content.blocks) - 1, np.uint32)
            with Progress(num_tokens, label="writing ids", unit="tokens") as shown:
                for block in range(len(checksums)):
                    ids = content.ids_of(block)
                    checksums[block] = zlib.crc32(ids.data)
                    file.write(ids.data)
                    shown.advance(len(ids))
            assert file.tell() == num_tokens * np.dtype(content.id_type).itemsize
            parts: dict[str, Place] = {"ids": {"kind": np.dtype(content.id_type).str, "offset": 0, "count": num_tokens}}
            crc32: dict[str, int] = {}
            blocks = np.array(content.blocks, np.int64)
            boundaries = content.sentence_boundaries, content.document_boundaries
            arrays: tuple[Ints | NDArray[np.uint32], ...] = (*boundaries, blocks, checksums)
            for name, array in zip(_PARTS, arrays, strict=True):
                file.write(bytes(-file.tell() % 8))
                parts[name] = {"kind": array.dtype.str, "offset": file.tell(), "count": len(array)}
                crc32[name] = zlib.crc32(array.data)
                file.write(array.data)
            facts: Facts = {"format": _FORMAT, "manifest": content.manifest, "parts": parts, "crc32": crc32}
            text = json.dumps(facts).encode()
            file.write(text)
            file.write(_END.pack(_MARK, zlib.crc32(text), len(text)))
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _facts(view: mmap.mmap) -> Facts:
    size = len(view) - _END.size
    if size < 0:
        raise ValueError("it is too short")
    mark, crc32, length = _END.unpack(view[size:])
    text = view[max(0, size - length) : size]
    if mark != _MARK or zlib.crc32(text) != crc32:
        raise ValueError("its end is not there")
    facts: Facts = json.loads(text)
    return facts


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
