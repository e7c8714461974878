"""Read a token store: a corpus as token ids, in documents and sentences.

The boundaries of all sentences are read when the store is opened (8 bytes per sentence in memory). The ids, which are
most of a store, are decoded on demand, one row group at a time, and the most recently used groups are cached. If the
whole store does not fit into the cache, reading in random order would decode a group for nearly every span:
:meth:`TokenStore.make_random_access` then maps a decoded copy into memory (:mod:`bertkit.data.store.mapped_ids`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertkit.data.corpus.store_folders import MANIFEST, TOKENIZER
from bertkit.data.store.mapped_ids import Content, MappedStore, StoredIds, copies_of, find_mapped, make_mapped
from bertkit.data.store.store_manifest import Shard, StoreManifest, numbers_of, read_manifest, schema_for
from bertkit.errors import DataError, InputError, counted
from bertkit.ragged import Ids, Ints
from bertkit.system.atomic_files import sha256_file
from bertkit.system.console import say
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.paths import user_path
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Memory for decoded ids: about 500 million of them in uint16.
CACHE_BYTES = 1 << 30


class TokenStore:
    """A finished token store, read-only. Safe to share between threads; pickled as its path.

    cache_bytes: maximum memory for decoded ids; at least one row group is always cached.
    sentence_boundaries: where each sentence begins among all tokens, int64 ``(num_sentences + 1,)``.
    document_boundaries: the first sentence of each document, int64 ``(num_documents + 1,)``; each has one or more.
    """

    manifest: StoreManifest
    sentence_boundaries: Ints
    document_boundaries: Ints

    def __init__(self, folder: str | Path, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.path = user_path(folder)
        self.manifest = read_manifest(self.path)
        self.cache_bytes = cache_bytes
        self._lock = ForkSafeLock()
        self._cache: OrderedDict[int, StoredIds] = OrderedDict()
        self._cached_bytes = 0
        self._mapping = ForkSafeLock()
        self._mapped: MappedStore | None = None
        self._metadata: dict[str, pq.FileMetaData] = {}
        for shard in self.manifest.shards:
            with self._opened(shard) as file:
                if not file.schema_arrow.equals(schema_for(self.manifest.id_type)):
                    columns = f"other columns than a shard with {self.manifest.id_type} ids"
                    raise DataError(f"{self.path / shard.name} has {columns}: {_AGAIN}")
                self._metadata[shard.name] = file.metadata
        if not self._fits_cache:
            self._mapped = find_mapped(copies_of(self.path), sha256_file(self.path / MANIFEST))
        if self._mapped is None:
            self._read_boundaries()
        else:
            self._share_boundaries(self._mapped)
        self._find_groups()

    def __reduce__(self) -> tuple[partial[TokenStore], tuple[Path]]:
        return partial(TokenStore, cache_bytes=self.cache_bytes), (self.path,)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.document_boundaries) - 1

    def __repr__(self) -> str:
        counts = self.manifest.counts
        size = f"{counted(counts.num_documents, 'document')}, {counted(counts.num_tokens, 'token')}"
        return f"{type(self).__name__}({str(self.path)!r}, {size})"

    @cached_property
    def sentence_lengths(self) -> NDArray[np.int32]:
        """Tokens of each sentence of the store, int32 ``(num_sentences,)``, at least 1; computed on first use."""
        lengths = np.empty(len(self.sentence_boundaries) - 1, np.int32)
        np.subtract(self.sentence_boundaries[1:], self.sentence_boundaries[:-1], out=lengths, casting="same_kind")
        lengths.setflags(write=False)
        return lengths

    def make_random_access(self) -> bool:
        """Make reading in any order fast; False, after a message, if it cannot be: groups are decoded as before.

        Of a store beyond ``cache_bytes``, decoded ids and boundaries are mapped from a file in its folder or in
        ``$XDG_CACHE_HOME/bertkit/stores``, written once for all processes: 2 or 4 bytes per token, 8 per sentence.
        """
        if self._fits_cache:
            return True
        with self._mapping:
            if self._mapped is None:
                self._mapped = self._make_mapped()
            return self._mapped is not None

    def tokens(self, first_sentence: int, end_sentence: int) -> Ids:
        """Ids of sentences ``first_sentence : end_sentence``, possibly of several documents: int32 ``(T,)``, a copy."""
        if not 0 <= first_sentence <= end_sentence < len(self.sentence_boundaries):
            raise InputError(
                f"sentences {first_sentence} : {end_sentence} are not in {self.path}, which has "
                f"{len(self.sentence_boundaries) - 1:,}"
            )
        start = int(self.sentence_boundaries[first_sentence])
        end = int(self.sentence_boundaries[end_sentence])
        mapped = self._mapped
        if mapped is not None:
            try:
                return mapped.read(start, end).astype(np.int32)
            except DataError as error:
                mapped = self._made_again(mapped, error)
            if mapped is not None:
                return mapped.read(start, end).astype(np.int32)
        # From the row groups.
        group = bisect_right(self._group_starts, start) - 1
        parts: list[NDArray[np.integer]] = [np.zeros(0, np.int32)]
        while start < end:
            shift, stop = self._group_starts[group], min(end, self._group_starts[group + 1])
            parts.append(self._group(group)[start - shift : stop - shift])
            start, group = stop, group + 1
        return np.concatenate(parts, dtype=np.int32, casting="same_kind")

    def tokens_of(self, document: int) -> Ids:
        """Ids of one document, without special tokens: int32 ``(T,)``, a copy."""
        return self.tokens(*self._sentences_of(document))

    def source_of(self, document: int) -> str:
        """Where one document begins in the corpus: ``file:line``."""
        first, _ = self._sentences_of(document)
        group = bisect_right(self._group_starts, int(self.sentence_boundaries[first])) - 1
        column = self._read_group(group, "source")
        return str(column[document - self._group_documents[group]])

    def tokenizer(self) -> PreTrainedTokenizer:
        """The tokenizer that made the ids, from the copy in the store: the same object each time, so add no tokens."""
        return self._tokenizer

    @cached_property
    def _tokenizer(self) -> PreTrainedTokenizer:  # reading one with 250,000 pieces takes seconds
        tokenizer = AutoTokenizer.from_pretrained(self.path / TOKENIZER)
        self.check_tokenizer(tokenizer)
        return tokenizer

    def check_tokenizer(self, tokenizer: PreTrainedTokenizer) -> None:
        """Check that ``tokenizer`` is the one that made the ids, or raise a DataError."""
        expected = self.manifest.tokenizer
        if tokenizer_digest(tokenizer) != expected.sha256:
            case = "uncased" if expected.do_lower_case else "cased"
            raise DataError(
                f"{self.path} was made with another tokenizer ({expected.num_tokens:,} tokens, {case}), got "
                f"{tokenizer!r}; use the one in {self.path / TOKENIZER}, or prepare the corpus again with yours"
            )

    def verify(self) -> None:
        """Hash every shard; raise a DataError if one differs from the manifest."""
        for shard in self.manifest.shards:
            if sha256_file(self.path / shard.name) != shard.sha256:
                raise DataError(f"{self.path / shard.name} is damaged: {_AGAIN} (its hash is not the manifest's)")

    # The mapped copy

    @property
    def _fits_cache(self) -> bool:
        return self.manifest.counts.num_tokens * np.dtype(self.manifest.id_type).itemsize <= self.cache_bytes

    def _share_boundaries(self, mapped: MappedStore) -> None:
        """Read boundaries from a mapped copy, which all processes of the machine share."""
        self.sentence_boundaries = mapped.sentence_boundaries
        self.document_boundaries = mapped.document_boundaries

    def _make_mapped(self) -> MappedStore | None:
        content = Content(
            manifest=sha256_file(self.path / MANIFEST),
            id_type=self.manifest.id_type,
            blocks=self._group_starts,
            ids_of=self._decode,
            sentence_boundaries=self.sentence_boundaries,
            document_boundaries=self.document_boundaries,
        )
        mapped = make_mapped(copies_of(self.path), content)
        if mapped is not None:
            self._share_boundaries(mapped)
        return mapped

    def _made_again(self, damaged: MappedStore, error: DataError) -> MappedStore | None:
        """A new copy in place of a damaged one; None if that is impossible."""
        with self._mapping:
            if self._mapped is damaged:  # not yet by another thread
                say(f"{error}; it is rewritten")
                try:
                    damaged.remove()
                except OSError as reason:
                    say(f"{damaged.path} cannot be removed ({reason.strerror or reason}): the store is decoded instead")
                    self._mapped = None
                else:
                    self._mapped = self._make_mapped()
            return self._mapped

    # The shards

    def _sentences_of(self, document: int) -> tuple[int, int]:
        if not 0 <= document < len(self):
            raise InputError(f"document {document} is not in {self.path}, which has {len(self):,}")
        return int(self.document_boundaries[document]), int(self.document_boundaries[document + 1])

    def _find_groups(self) -> None:
        self._groups: list[tuple[Shard, int]] = []
        group_rows: list[int] = []
        for shard in self.manifest.shards:
            metadata = self._metadata[shard.name]
            for number in range(metadata.num_row_groups):
                self._groups.append((shard, number))
                group_rows.append(metadata.row_group(number).num_rows)
        firsts = np.cumsum([0, *group_rows])
        self._group_documents: list[int] = firsts.tolist()
        self._group_starts: list[int] = self.sentence_boundaries[self.document_boundaries[firsts]].tolist()

    def _read_boundaries(self) -> None:
        """Boundaries of all sentences and documents, from the lengths in the shards."""
        counts = self.manifest.counts
        sentences = np.zeros(counts.num_sentences + 1, np.int64)
        documents = np.zeros(counts.num_documents + 1, np.int64)
        sentence = document = 0
        for shard in self.manifest.shards:
            with self._opened(shard) as file:
                column = file.read(["sentence_lengths"]).column(0).combine_chunks()
            lengths = numbers_of(column.flatten(), np.dtype(np.int32))
            sizes = np.diff(numbers_of(column.offsets, np.dtype(np.int32)))
            found = (len(sizes), len(lengths), int(lengths.sum()))
            expected = (shard.counts.num_documents, shard.counts.num_sentences, shard.counts.num_tokens)
            if found != expected or min(sizes.min(initial=1), lengths.min(initial=1)) < 1:
                what = f"(documents, sentences, tokens) {found}, the manifest says {expected}"
                raise DataError(f"{self.path / shard.name} has {what}: {_AGAIN}")
            for boundaries, at, more in ((sentences, sentence, lengths), (documents, document, sizes)):
                part = boundaries[at + 1 : at + 1 + len(more)]
                np.cumsum(more, out=part)
                part += boundaries[at]
            sentence, document = sentence + len(lengths), document + len(sizes)
        self.sentence_boundaries, self.document_boundaries = sentences, documents
        for array in (sentences, documents):
            array.setflags(write=False)

    def _group(self, group: int) -> StoredIds:
        with self._lock:
            if group in self._cache:
                self._cache.move_to_end(group)
                return self._cache[group]
        # Decoded outside the lock: two threads may repeat work, but none waits for another.
        ids = self._decode(group)
        with self._lock:
            if group not in self._cache:
                self._cache[group] = ids
                self._cached_bytes += ids.nbytes
            while self._cached_bytes > self.cache_bytes and len(self._cache) > 1:
                self._cached_bytes -= self._cache.popitem(last=False)[1].nbytes
        return ids

    def _decode(self, group: int) -> StoredIds:
        kind: np.dtype[np.unsignedinteger] = np.dtype(self.manifest.id_type)
        ids = numbers_of(self._read_group(group, "tokens").flatten(), kind)
        shard, _ = self._groups[group]
        expected = self._group_starts[group + 1] - self._group_starts[group]
        if len(ids) != expected or int(ids.max(initial=0)) >= self.manifest.tokenizer.num_tokens:
            raise DataError(f"{self.path / shard.name} holds ids that do not fit its sentences or vocabulary: {_AGAIN}")
        return ids

    def _read_group(self, group: int, column: str) -> pa.Array:
        shard, number = self._groups[group]
        with self._opened(shard) as file:
            return file.read_row_group(number, [column]).column(0).combine_chunks()

    @contextmanager
    def _opened(self, shard: Shard) -> Iterator[pq.ParquetFile]:
        """A shard, reopened each time: a process may have fewer open files than there are shards. Footers are kept."""
        path = self.path / shard.name
        try:
            if (size := path.stat().st_size) != shard.num_bytes:
                raise DataError(f"{path} has {size:,} bytes, the manifest says {shard.num_bytes:,}: {_AGAIN}")
            footer = self._metadata.get(shard.name)
            with pq.ParquetFile(path, memory_map=True, metadata=footer, page_checksum_verification=True) as file:
                yield file
        except FileNotFoundError:
            raise DataError(f"{path}, which the manifest names, is missing: {_AGAIN}") from None
        except (OSError, UnicodeEncodeError, pa.ArrowException) as error:  # Arrow takes paths in UTF-8 only
            raise DataError(f"{path} cannot be read: {_AGAIN} ({error})") from None


_AGAIN = "copy the store again, or prepare it again"
