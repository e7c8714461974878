"""Read a token store: a corpus as token ids, with its documents and sentences, opened in moments. Imports no torch.

The lengths of all sentences are read at once (12 bytes a sentence in memory). The ids, which are most of a store, are
decoded when they are asked for, a row group of about a million at a time, and the groups used last are kept. While the
decoded ids of the whole store fit into ``cache_bytes``, each group is decoded once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertkit.data.arrow import numbers_of
from bertkit.data.store_manifest import (
    TOKENIZER,
    Shard,
    StoreManifest,
    read_manifest,
    schema_for,
    tokenizer_digest,
)
from bertkit.errors import DataError, InputError
from bertkit.files import sha256_file
from bertkit.tokenization import BertTokenizer

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: Memory for decoded ids: about 500 million of them in uint16.
CACHE_BYTES = 1 << 30


class TokenStore:
    """A finished token store, read-only. Safe to share between threads; pickled as its path.

    Args:
        folder: what :func:`bertkit.data.prepare.prepare` wrote.
        cache_bytes: most memory for decoded ids; at least one row group is always kept.

    Attributes:
        path: the folder.
        manifest: counts, settings, tokenizer and shards.
        sentence_lengths: tokens of each sentence of the whole store, int32 ``(num_sentences,)``, each at least 1.
        sentence_boundaries: where each sentence begins among all tokens, int64 ``(num_sentences + 1,)``.
        document_boundaries: document d has the sentences ``document_boundaries[d] : document_boundaries[d + 1]``, at
            least one; int64 ``(num_documents + 1,)``.

    Raises:
        DataError: not a store, an unfinished one, a shard that is missing or is not what the manifest says.
    """

    manifest: StoreManifest
    sentence_lengths: Int32
    sentence_boundaries: Int64
    document_boundaries: Int64

    def __init__(self, folder: str | Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.path = Path(folder).expanduser()
        self.manifest = read_manifest(self.path)
        self.cache_bytes = cache_bytes
        self._lock = Lock()
        self._cache: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._cached_bytes = 0
        self._read_lengths()

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.path, self.cache_bytes)

    def __len__(self) -> int:
        """Documents."""
        return len(self.document_boundaries) - 1

    def __repr__(self) -> str:
        counts = self.manifest.counts
        size = f"{counts.num_documents:,} documents, {counts.num_tokens:,} tokens"
        return f"{type(self).__name__}({str(self.path)!r}, {size})"

    def tokens(self, first_sentence: int, end_sentence: int) -> Int32:
        """Ids of sentences ``first_sentence : end_sentence``, also of several documents: int32 ``(T,)``, a copy.

        Raises:
            InputError: there are no such sentences.
            DataError: the shard is damaged.
        """
        if not 0 <= first_sentence <= end_sentence < len(self.sentence_boundaries):
            raise InputError(
                f"sentences {first_sentence} : {end_sentence} are not in {self.path}, which has "
                f"{len(self.sentence_lengths):,}"
            )
        start = int(self.sentence_boundaries[first_sentence])
        end = int(self.sentence_boundaries[end_sentence])
        group = bisect_right(self._group_starts, start) - 1
        parts: list[NDArray[Any]] = []
        while start < end:
            shift, stop = self._group_starts[group], min(end, self._group_starts[group + 1])
            parts.append(self._group(group)[start - shift : stop - shift])
            start, group = stop, group + 1
        if len(parts) == 1:
            return parts[0].astype(np.int32)
        return np.concatenate([np.zeros(0, np.int32), *(part.astype(np.int32) for part in parts)])

    def tokens_of(self, document: int) -> Int32:
        """Ids of one document, without special tokens: int32 ``(T,)``, a copy.

        Raises:
            InputError: there is no such document.
            DataError: the shard is damaged.
        """
        first, end = self._sentences_of(document)
        return self.tokens(first, end)

    def source_of(self, document: int) -> str:
        """Where one document begins in the corpus: ``file:line``."""
        first, _ = self._sentences_of(document)
        group = bisect_right(self._group_starts, int(self.sentence_boundaries[first])) - 1
        column = self._read_group(group, "source")
        return str(column[document - self._group_documents[group]])

    def tokenizer(self) -> BertTokenizer:
        """The tokenizer that made the ids, from the copy in the store.

        Raises:
            DataError: it is not the one that the manifest names.
            CheckpointError: its files are missing or damaged.
        """
        tokenizer = BertTokenizer.from_pretrained(self.path / TOKENIZER)
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: BertTokenizer) -> None:
        """See that ids of this store mean for ``tokenizer`` what they meant when they were made.

        Raises:
            DataError: they do not.
        """
        expected = self.manifest.tokenizer
        if tokenizer_digest(tokenizer) != expected.sha256:
            case = "uncased" if expected.do_lower_case else "cased"
            raise DataError(
                f"{self.path} was made with another tokenizer ({expected.num_tokens:,} tokens, {case}), got "
                f"{tokenizer!r}; use the one in {self.path / TOKENIZER}, or prepare the corpus again with yours"
            )

    def verify(self) -> None:
        """Hash every shard.

        Raises:
            DataError: the bytes of a shard are not those the manifest describes.
        """
        for shard in self.manifest.shards:
            if sha256_file(self.path / shard.name) != shard.sha256:
                raise DataError(f"{self.path / shard.name} is damaged: {_AGAIN} (its hash is not the manifest's)")

    def _sentences_of(self, document: int) -> tuple[int, int]:
        if not 0 <= document < len(self):
            raise InputError(f"document {document} is not in {self.path}, which has {len(self):,}")
        return int(self.document_boundaries[document]), int(self.document_boundaries[document + 1])

    def _read_lengths(self) -> None:
        """Lengths of all sentences and documents, and where each row group begins."""
        lengths: list[Int32] = [np.zeros(0, np.int32)]
        sizes: list[Int64] = [np.zeros(0, np.int64)]
        self._groups: list[tuple[Shard, int]] = []
        self._metadata: dict[str, pq.FileMetaData] = {}
        group_rows: list[int] = []
        for shard in self.manifest.shards:
            metadata, shard_lengths, shard_sizes = self._read_shard(shard)
            lengths.append(shard_lengths)
            sizes.append(shard_sizes)
            self._metadata[shard.name] = metadata
            self._groups += [(shard, number) for number in range(metadata.num_row_groups)]
            group_rows += [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        self.sentence_lengths = np.concatenate(lengths)
        self.sentence_boundaries = _boundaries(self.sentence_lengths)
        self.document_boundaries = _boundaries(np.concatenate(sizes))
        firsts = _boundaries(np.array(group_rows, np.int64))
        self._group_documents: list[int] = firsts.tolist()
        self._group_starts: list[int] = self.sentence_boundaries[self.document_boundaries[firsts]].tolist()
        for array in (self.sentence_lengths, self.sentence_boundaries, self.document_boundaries):
            array.setflags(write=False)

    def _read_shard(self, shard: Shard) -> tuple[pq.FileMetaData, Int32, Int64]:
        """A shard's footer, the lengths of its sentences, and the number of sentences of its documents."""
        path = self.path / shard.name
        try:
            if (size := path.stat().st_size) != shard.num_bytes:
                raise DataError(f"{path} has {size:,} bytes, the manifest says {shard.num_bytes:,}: {_AGAIN}")
            with pq.ParquetFile(path, memory_map=True, page_checksum_verification=True) as file:
                if not file.schema_arrow.equals(schema_for(self.manifest.id_type)):
                    raise DataError(f"{path} has other columns than a shard with {self.manifest.id_type} ids: {_AGAIN}")
                metadata = file.metadata
                column = file.read(["sentence_lengths"]).column(0).combine_chunks()
        except FileNotFoundError:
            raise DataError(f"{path}, which the manifest names, is missing: {_AGAIN}") from None
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path} cannot be read: {_AGAIN} ({error})") from None
        lengths: Int32 = numbers_of(column.flatten(), np.int32)
        sizes = np.diff(numbers_of(column.offsets, np.int32)).astype(np.int64)
        found = (len(sizes), len(lengths), int(lengths.sum()))
        expected = (shard.counts.num_documents, shard.counts.num_sentences, shard.counts.num_tokens)
        if found != expected or min(sizes.min(initial=1), lengths.min(initial=1)) < 1:
            raise DataError(
                f"{path} has (documents, sentences, tokens) {found}, the manifest says {expected}: {_AGAIN}"
            )
        return metadata, lengths, sizes

    def _group(self, group: int) -> NDArray[Any]:
        """Ids of a row group, from the cache or decoded now."""
        with self._lock:
            if group in self._cache:
                self._cache.move_to_end(group)
                return self._cache[group]
        # Decoded outside the lock: two threads may do the same work, but none waits for another's.
        ids = numbers_of(self._read_group(group, "tokens").flatten(), self.manifest.id_type)
        shard, _ = self._groups[group]
        expected = self._group_starts[group + 1] - self._group_starts[group]
        if len(ids) != expected or int(ids.max(initial=0)) >= self.manifest.tokenizer.num_tokens:
            raise DataError(f"{self.path / shard.name} holds ids that do not fit its sentences or vocabulary: {_AGAIN}")
        with self._lock:
            if group not in self._cache:
                self._cache[group] = ids
                self._cached_bytes += ids.nbytes
            while self._cached_bytes > self.cache_bytes and len(self._cache) > 1:
                self._cached_bytes -= self._cache.popitem(last=False)[1].nbytes
        return ids

    def _read_group(self, group: int, column: str) -> pa.Array:
        # Opened each time, with the footer that was read before: a large store has more shards than a process may
        # have open files.
        shard, number = self._groups[group]
        path = self.path / shard.name
        try:
            with pq.ParquetFile(
                path, memory_map=True, metadata=self._metadata[shard.name], page_checksum_verification=True
            ) as file:
                return file.read_row_group(number, [column]).column(0).combine_chunks()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}, row group {number}, cannot be read: {_AGAIN} ({error})") from None


_AGAIN = "copy the store again, or prepare it again"


def _open(folder: Path, cache_bytes: int) -> TokenStore:
    return TokenStore(folder, cache_bytes=cache_bytes)


def _boundaries(lengths: NDArray[Any]) -> Int64:
    """``(0, l0, l0 + l1, ...)``, int64."""
    boundaries = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=boundaries[1:])
    return boundaries
