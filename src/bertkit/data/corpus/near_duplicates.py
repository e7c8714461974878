"""Drop exact and near duplicates of earlier documents.

Near duplicates are found with MinHash signatures (Broder 1997) over runs of five words; candidates come from
locality-sensitive hashing in bands (Leskovec, Rajaraman, Ullman, "Mining of Massive Datasets", section 3.4). The hash
functions are fixed: the same documents in the same order give the same result on every machine.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.corpus.documents import Document
from bertkit.data.counter_random import UInt64, bits
from bertkit.errors import InputError, ResourceError, counted
from bertkit.system.validated_settings import Field

#: Words in a shingle.
SHINGLE_WORDS = 5
#: Shorter documents are only compared exactly: one changed word would change most of their few shingles.
MIN_SHINGLES = 20
#: Signature: 64 minima, in 16 bands of 4. A pair with Jaccard similarity 0.8 shares a band with probability 0.9998.
NUM_HASHES = 64
ROWS_PER_BAND = 4
#: Shingles hashed at a time, to bound the memory of a long document (2 MiB of products).
_BLOCK = 4096
#: Which duplicates to drop.
Dedup = Literal["exact", "near"]
#: Memory per document kept, in bytes.
BYTES_A_DOCUMENT: dict[Dedup, int] = {"exact": 320, "near": 3200}
#: Pairs that a report keeps.
_KEPT_EXAMPLES = 10

#: In scripts without spaces each character is a word.
_WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")


@dataclass(slots=True)
class DedupReport:
    """Documents kept and dropped; UTF-8 bytes of the latter, with line ends; first pairs of sources (dropped, kept)."""

    forbids_unknown: ClassVar[bool] = True  # a manifest holds one

    kept: Annotated[int, Field(ge=0)] = 0
    exact: Annotated[int, Field(ge=0)] = 0
    near: Annotated[int, Field(ge=0)] = 0
    dropped_bytes: Annotated[int, Field(ge=0)] = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def summary(self) -> str:
        """One line for people."""
        total = self.kept + self.exact + self.near
        return (
            f"{self.kept:,} of {counted(total, 'document')} kept; dropped {self.exact:,} exact and {self.near:,} near "
            f"duplicates ({self.dropped_bytes:,} bytes)"
        )

    def render(self) -> str:
        """The summary, followed by the first pairs."""
        pairs = [f"  {source} dropped, a duplicate of {twin}" for source, twin in self.examples]
        return "\n".join([f"duplicates: {self.summary()}", *pairs])

    def dropped(self, document: Document, twin: str) -> None:
        """Note a document that was dropped."""
        self.dropped_bytes += sum(len(line.encode("utf-8", "replace")) + 1 for line in document.sentences)
        if len(self.examples) < _KEPT_EXAMPLES:
            self.examples.append((document.source, twin))


def drop_duplicates(
    documents: Iterable[Document],
    *,
    near: bool = True,
    threshold: float = 0.8,
    report: DedupReport | None = None,
    max_documents: int | None = None,
) -> Iterator[Document]:
    """Yield each document that is not a duplicate of an earlier one.

    Exact duplicates differ only in case, white space and sentence boundaries. Near ones have sets of five-word runs
    whose Jaccard similarity, estimated from 64 hashes with a standard error of 0.05 at 0.8, is ``threshold`` or more.
    """
    if not 0.5 <= threshold <= 1:
        raise InputError(f"threshold must be a similarity from 0.5 to 1, got {threshold}")
    return _unique(documents, _NearIndex(threshold) if near else None, report or DedupReport(), max_documents)


def documents_within(memory: int | None, kind: Dedup) -> int | None:
    """Number of documents that fit into ``memory`` bytes; None (no limit) for None."""
    return None if memory is None else memory // BYTES_A_DOCUMENT[kind]


def _unique(
    documents: Iterable[Document], index: _NearIndex | None, report: DedupReport, limit: int | None
) -> Iterator[Document]:
    seen: dict[bytes, str] = {}
    for document in documents:
        text = " ".join(" ".join(document.sentences).lower().split())
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()
        if (twin := seen.get(digest)) is not None:
            report.exact += 1
        elif index is not None and (twin := index.add(text, document.source)) is not None:
            report.near += 1
        if twin is not None:
            report.dropped(document, twin)
            continue
        if limit is not None and len(seen) >= limit:
            kind: Dedup = "exact" if index is None else "near"
            raise ResourceError(
                f"the memory for duplicates is full: {limit:,} different documents before {document.source}, at "
                f"{BYTES_A_DOCUMENT[kind]:,} bytes each; give more (--memory)"
                + (", or drop only exact duplicates (--dedup exact)" if kind == "near" else "")
            )
        seen[digest] = document.source
        report.kept += 1
        yield document


class _NearIndex:
    """Signatures of the kept documents, indexed by their bands."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.signatures: list[NDArray[np.uint32]] = []
        self.sources: list[str] = []
        # A band belongs to the first document that has it. A later one with the same band is a duplicate, or too
        # different, and is then still found through its other bands.
        self.bands: dict[int, int] = {}

    def add(self, text: str, source: str) -> str | None:
        """Source of a near duplicate; None if there is none, and then the document is added."""
        shingles = shingle_hashes(text)
        if len(shingles) < MIN_SHINGLES:
            return None
        new = signature(shingles)
        bands = new.reshape(-1, ROWS_PER_BAND).astype(np.uint64)
        hashed = np.arange(len(bands), dtype=np.uint64)  # the same rows in another band give another key
        for row in bands.T:
            hashed = _mix(hashed ^ row)
        keys: list[int] = hashed.tolist()
        for candidate in sorted({self.bands[key] for key in keys if key in self.bands}):
            if np.mean(self.signatures[candidate] == new) >= self.threshold:
                return self.sources[candidate]
        for key in keys:
            self.bands.setdefault(key, len(self.sources))
        self.signatures.append(new)
        self.sources.append(source)
        return None


def shingle_hashes(text: str) -> UInt64:
    """Hashes of all runs of :data:`SHINGLE_WORDS` words, uint64 ``(words - 4,)``; empty for a shorter text."""
    words = np.array([zlib.crc32(word.encode()) for word in _WORDS.findall(text)], np.uint64)
    count = len(words) - SHINGLE_WORDS + 1
    if count < 1:
        return np.empty(0, np.uint64)
    total = np.zeros(count, np.uint64)
    for place in range(SHINGLE_WORDS):
        total = _mix(total ^ words[place : place + count])
    return total


def signature(shingles: UInt64) -> NDArray[np.uint32]:
    """Minimum of each of :data:`NUM_HASHES` hashes, uint32 ``(64,)``; the share of equal ones estimates similarity."""
    least = np.full(NUM_HASHES, np.iinfo(np.uint64).max, np.uint64)
    for start in range(0, len(shingles), _BLOCK):
        hashed = shingles[start : start + _BLOCK, None] * _FACTORS + _SUMMANDS
        np.minimum(least, hashed.min(axis=0), out=least)
    return (least >> np.uint64(32)).astype(np.uint32)


def _mix(values: UInt64) -> UInt64:
    """The output function of SplitMix64: each bit depends on all bits."""
    return bits(values, np.ones(1, np.uint64))


#: Multiply-add hash functions of mixed values; odd factors lose no bit.
_FACTORS: UInt64 = _mix(np.arange(NUM_HASHES, dtype=np.uint64)) | np.uint64(1)
_SUMMANDS: UInt64 = _mix(np.arange(NUM_HASHES, 2 * NUM_HASHES, dtype=np.uint64))
