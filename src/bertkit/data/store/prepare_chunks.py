"""The parallel part of preparing a corpus: documents in chunks, and chunks to ids. Imports no torch.

A chunk becomes the same ids wherever it is tokenized, and results come in the order of the chunks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from bertkit.data.corpus.bad_input import CorpusReport, OnError
from bertkit.data.corpus.documents import Document, read_documents
from bertkit.data.corpus.near_duplicates import Dedup, DedupReport, drop_duplicates
from bertkit.data.corpus.sentences import forget_words, split_lines
from bertkit.data.store.store_manifest import Counts, id_type_for
from bertkit.data.store.store_writer import TokenizedChunk
from bertkit.system.worker_processes import map_in_processes
from bertkit.tokenization import BertTokenizer

#: Characters in a chunk, which is a unit of work and a row group: about an eighth of a million tokens.
CHUNK_CHARS = 1 << 19
#: Maximum characters being tokenized at a time (a single chunk may have more): as many as the longest line.
WINDOW_CHARS = 1 << 24
#: Words that a tokenizing process caches. More would not be faster, because a chunk mostly repeats its own words.
CACHED_WORDS = 16384

#: Arrays of at least so many bytes are returned to the system when they are freed, see :func:`return_freed_arrays`.
RETURNED_BYTES = 1 << 17
#: Number of that setting in glibc's ``malloc.h``.
_M_MMAP_THRESHOLD = -3

Chunk = list[Document]


@dataclass(frozen=True, slots=True)
class CorpusWork:
    """What to read for a store, and how. Picklable, so that another machine can do it.

    paths, text, on_error: see :func:`~bertkit.data.corpus.documents.read_documents`.
    dedup: which duplicates to drop; None: none.
    max_documents: see :func:`~bertkit.data.corpus.near_duplicates.drop_duplicates`.
    split: whether lines are running text, to be split into sentences, or one sentence each.
    chunk_chars: minimum characters in a chunk, except for the last one.
    """

    paths: tuple[str, ...]
    text: str | None
    on_error: OnError
    dedup: Dedup | None
    max_documents: int | None
    split: bool
    chunk_chars: int

    def documents(self, report: CorpusReport, duplicates: DedupReport) -> Iterator[Document]:
        """Documents of whole lines; splitting them into sentences is left to the workers.

        Args:
            report: filled while documents are read.
            duplicates: likewise.

        Raises:
            InputError, DataError: at once, or while documents are read.
            ResourceError: more than ``max_documents`` distinct documents.
        """
        documents = read_documents(self.paths, sentences="line", text=self.text, on_error=self.on_error, report=report)
        if self.dedup is None:
            return documents
        near = self.dedup == "near"
        return drop_duplicates(documents, near=near, report=duplicates, max_documents=self.max_documents)

    def chunks(self, documents: Iterator[Document], skipped: int) -> Iterator[Chunk]:
        """Documents in chunks, without the first ``skipped`` ones. No document is divided."""
        deque(islice(documents, skipped), maxlen=0)
        chunk: Chunk = []
        size = 0
        for document in documents:
            chunk.append(document)
            size += chars_of([document])
            if size >= self.chunk_chars:
                yield chunk
                chunk, size = [], 0
        if chunk:
            yield chunk


def chars_of(chunk: Chunk) -> int:
    """Characters of all sentences in a chunk."""
    return sum(len(sentence) for document in chunk for sentence in document.sentences)


def tokenize(
    chunks: Iterator[Chunk], tokenizer: BertTokenizer, *, split: bool, workers: int
) -> Iterator[TokenizedChunk]:
    """The chunks as ids, in order, computed by ``workers`` processes (with 1, by this one).

    Raises:
        ResourceError: a worker died.
    """
    if workers > 1:
        begin = partial(_begin_worker, tokenizer, split)
        yield from map_in_processes(_work, chunks, workers=workers, begin=begin, size_of=chars_of, room=WINDOW_CHARS)
        return
    worker = ChunkTokenizer(tokenizer, split=split)
    pool_before = pa.default_memory_pool()
    return_freed_arrays()
    try:
        yield from map(worker, chunks)
    finally:
        pa.set_memory_pool(pool_before)


class ChunkTokenizer:
    """Documents to ids: a pure function of the chunk.

    Args:
        tokenizer: copied, because the copy's word cache is kept small; results do not depend on it.
        split: see :class:`CorpusWork`.
    """

    def __init__(self, tokenizer: BertTokenizer, *, split: bool) -> None:
        self._tokenizer: BertTokenizer = pickle.loads(pickle.dumps(tokenizer))
        if self._tokenizer._fast is not None:
            self._tokenizer._fast.max_chunks = CACHED_WORDS
        self._split = split
        self._type = np.dtype(id_type_for(len(tokenizer)))
        # A blank inside its name hides a special token from the tokenizer; between a sign and what follows, a blank
        # changes nothing else. Names that begin with a letter stay special.
        names = [name for name in tokenizer.all_special_tokens if not name[0].isalnum() and len(name) > 1]
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def warm_up(self) -> None:
        """Load and build now what the first chunk would need, while the process is idle."""
        words = " ".join(self._tokenizer.vocab)
        self._tokenizer.encode_ragged([words] * (1 + CHUNK_CHARS // len(words)), add_special_tokens=False)
        if self._split:
            split_lines(["One sentence. And another one."])

    def __call__(self, chunk: Chunk) -> TokenizedChunk:
        rows = [split_lines(document.sentences) if self._split else document.sentences for document in chunk]
        forget_words()
        texts = [sentence for row in rows for sentence in row]
        whole = "\n".join(texts)
        text_bytes = len(whole.encode("utf-8", "surrogatepass")) + 1  # JSON may contain lone surrogates
        if self._special.search(whole):
            texts = [self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", one) for one in texts]
        del whole  # a megabyte or several, when the tokenizer needs most memory
        ragged = self._tokenizer.encode_ragged(texts, add_special_tokens=False)
        pa.default_memory_pool().release_unused()  # or Arrow would keep it, more with each chunk
        lengths = ragged.lengths.astype(np.int32)
        owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        sizes = np.bincount(owners[lengths > 0], minlength=len(rows)).astype(np.int32)
        counts = Counts(
            num_documents=int((sizes > 0).sum()),
            num_sentences=int((lengths > 0).sum()),
            num_tokens=len(ragged.ids),
            num_unknown=int((ragged.ids == self._tokenizer.unk_token_id).sum()),
            text_bytes=text_bytes,
        )
        return TokenizedChunk(
            ids=ragged.ids.astype(self._type),
            sentence_lengths=lengths[lengths > 0],
            document_lengths=sizes[sizes > 0],
            sources=[document.source for document, size in zip(chunk, sizes, strict=True) if size],
            counts=counts,
            num_read=len(chunk),
        )


#: The tokenizer of a worker process.
_worker: ChunkTokenizer | None = None


def return_freed_arrays() -> None:
    """Let this process return the memory of large arrays to the system when they are freed, also Arrow's.

    glibc raises the size above which it does so to that of the largest array freed so far, up to 32 MB, and fragments
    what it keeps; Arrow's allocators keep pages as well. Without glibc only Arrow's allocator is changed.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)


def limit_threads() -> None:
    """Keep the libraries in this process to one thread; there are as many processes as cores."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)


def _begin_worker(tokenizer: BertTokenizer, split: bool) -> None:
    global _worker
    limit_threads()
    return_freed_arrays()
    _worker = ChunkTokenizer(tokenizer, split=split)
    _worker.warm_up()


def _work(chunk: Chunk) -> TokenizedChunk:
    assert _worker is not None
    return _worker(chunk)
