"""The dictionary behind every fast path: text is split into chunks, and known chunks are only looked up.

Most words repeat. A subclass splits text at white space, so that what stands in between (a *chunk*) has the same ids
wherever it occurs. A dictionary numbers the chunks seen so far; a table has the ids of each number. New chunks of a
stretch of text are encoded together. In large texts Arrow, where it is installed, finds the distinct chunks before the
dictionary sees them, which is faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import count, islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertkit.ragged import Ids, Ints, gather
from bertkit.system.fork_locks import ForkSafeLock

Scalar = TypeVar("Scalar", np.int32, np.int64)

#: Longer chunks are not stored: they hardly ever repeat.
MAX_CACHED_CHARS = 64
#: The dictionary is cleared when it is full: at most about 100 MB, including the ids.
MAX_CHUNKS = 1 << 19
MAX_CHUNK_IDS = 1 << 22
#: Characters of text that are looked up at a time, and between two rounds of learning.
BLOCK_CHARS = 1 << 14
BATCH_CHARS = 1 << 22
#: New chunks from which on there is much text.
MANY_CHUNKS = 1 << 9
#: Up to this many chunks are looked up one by one.
FEW_CHUNKS = 32
#: Arrow splits text from this size on; for less, importing it takes longer than it saves.
ARROW_CHARS = 1 << 19
HAS_ARROW = find_spec("pyarrow") is not None
#: Ends a text when many are joined into one string. No other chunk equals it.
END = "\x00"


class ChunkEncoder:
    """Texts to ids, with the dictionary that makes it fast. Safe to share between threads.

    A subclass defines how texts become chunks (:meth:`_blocks`) and the ids of new ones (:meth:`_work_out`). ``known``
    are chunks known from the start, and their ids; those of :meth:`_usual` are known once there is much text. The
    dictionary is cleared when it has more than ``max_chunks`` (None: :data:`MAX_CHUNKS`); for texts of megabytes, in
    which most words repeat, a small one is as fast.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self.arrow_chars = ARROW_CHARS
        self.max_chunks: int | None = None
        # Arrow's split leaves empty strings at the ends of a text.
        self._known = {END: 0, "": 0, **known}
        self._has_usual = False
        self._lock = ForkSafeLock(self._reset)
        self._reset()

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        """Chunks between white space (U+0020, or what ``str.split`` and Arrow split at), ``END`` after each text."""
        raise NotImplementedError

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Ints, Ids, Ints]]:
        """Ids of chunks, in groups: positions in ``new``, concatenated ids, number of ids of each chunk."""
        raise NotImplementedError

    def _usual(self) -> Mapping[str, int]:
        """Ids of chunks that much text is likely to have."""
        return {}

    def _reset(self) -> None:
        """Forget all chunks except those known from the start."""
        known = self._known
        self._num_known = self._num_ids = len(known)
        self._num_chunks = len(known)  # numbered so far, also those forgotten since
        self._chunks = defaultdict(count(len(known)).__next__, zip(known, range(len(known)), strict=True))
        self._ids = np.fromiter(known.values(), np.int32, len(known))
        self._starts = np.arange(len(known))
        self._sizes = np.ones(len(known), np.int64)
        self._sizes[:2] = 0  # END and the empty string stand for no token

    def encode(self, texts: Iterable[str]) -> tuple[Ids, Ints]:
        """Concatenated ids of all texts, int32 ``(T,)``, without special tokens; and their lengths, ``(B,)``."""
        blocks = self._blocks(texts)
        batches: list[tuple[Ids, Ints]] = []
        more = True
        while more:
            ids, lengths, more = self._encode_batch(blocks)
            batches.append((ids, lengths))
        if len(batches) == 1:
            return batches[0]
        all_ids, all_lengths = zip(*batches, strict=True)
        return np.concatenate(all_ids), np.concatenate(all_lengths)

    def _encode_batch(self, blocks: Iterator[str]) -> tuple[Ids, Ints, bool]:
        """Ids and lengths of the texts of the next blocks, and whether there may be more blocks."""
        with self._lock:
            if not self._has_usual and len(self._chunks) > self._num_known + MANY_CHUNKS:
                self._known |= self._usual()
                self._has_usual = True
                self._reset()
            max_chunks = MAX_CHUNKS if self.max_chunks is None else self.max_chunks
            if len(self._chunks) > self._num_known + max_chunks or self._num_ids > self._num_known + MAX_CHUNK_IDS:
                self._reset()
            known = len(self._chunks)
            try:
                numbers, more = self._number(blocks)
                if len(self._chunks) > known:
                    self._learn(list(islice(reversed(self._chunks), len(self._chunks) - known))[::-1])
            except BaseException:
                # Interrupted with chunks that have a number but no ids: nothing numbered may be used again.
                self._reset()
                raise
            if isinstance(numbers, list):
                return *self._ids_of_few(numbers), more
            sizes = self._sizes[numbers]
            ids = self._ids[gather(self._starts[numbers], sizes)]
        lengths: Ints = sizes.cumsum()[numbers == 0]
        lengths[1:] -= lengths[:-1].copy()
        return ids, lengths, more

    def _ids_of_few(self, numbers: list[int]) -> tuple[Ids, Ints]:
        """Ids and lengths of texts with few chunks: a dozen calls of numpy would take longer than the chunks do."""
        ids: list[int] = []
        lengths: list[int] = []
        starts, sizes, before = self._starts.item, self._sizes.item, 0
        for number in numbers:
            if number:
                start = starts(number)
                ids += self._ids[start : start + sizes(number)].tolist()
            else:
                lengths.append(len(ids) - before)
                before = len(ids)
        return np.array(ids, np.int32), np.array(lengths, np.int64)

    def _number(self, blocks: Iterator[str]) -> tuple[Ints | list[int], bool]:
        """Numbers of the chunks of the next blocks, a list where they are few, and whether there may be more blocks."""
        batch: list[str] = []
        size, more = 0, False
        for block in blocks:
            batch.append(block)
            size += len(block)
            more = size > BATCH_CHARS
            if more:
                break
        number = self._chunks.__getitem__
        if not batch or size < self.arrow_chars or not HAS_ARROW:
            chunks = [chunk for block in batch for chunk in block.split()]
            if len(chunks) <= FEW_CHUNKS:
                return list(map(number, chunks)), more
            return np.fromiter(map(number, chunks), np.int64, len(chunks)), more
        arrow, compute = import_module("pyarrow"), import_module("pyarrow.compute")
        # By way of buffers: pa.array() and to_numpy() would import pandas where it is installed, 40 MB of memory.
        text = " ".join(batch).encode()
        ends = np.array([0, len(text)], np.int64)
        whole = arrow.LargeStringArray.from_buffers(1, arrow.py_buffer(ends), arrow.py_buffer(text))
        split = compute.ascii_split_whitespace(whole)
        chunks = split.flatten().dictionary_encode()
        different = chunks.dictionary.to_pylist()
        numbers = np.fromiter(map(number, different), np.int64, len(different))
        found: Ints = numbers[np.frombuffer(chunks.indices.buffers()[1], np.int32, len(chunks))]
        return found, more

    def _learn(self, new: Sequence[str]) -> None:
        """Encode new chunks, in the order of their numbers."""
        numbers = np.arange(self._num_chunks, self._num_chunks + len(new))
        self._num_chunks += len(new)
        self._starts = _grown(self._starts, self._num_chunks)
        self._sizes = _grown(self._sizes, self._num_chunks)
        for places, ids, sizes in self._work_out(new):
            self._sizes[numbers[places]] = sizes
            self._starts[numbers[places]] = self._num_ids + np.cumsum(sizes) - sizes
            self._ids = _grown(self._ids, self._num_ids + len(ids))
            self._ids[self._num_ids : self._num_ids + len(ids)] = ids
            self._num_ids += len(ids)
        for chunk in new:
            if len(chunk) > MAX_CACHED_CHARS:
                del self._chunks[chunk]


def _grown(array: NDArray[Scalar], size: int) -> NDArray[Scalar]:
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, len(array)), array.dtype)])
