"""The work of preparing a corpus that can be shared out: documents in chunks, and chunks to ids. Imports no torch.

A chunk becomes the same ids wherever that is done, and results are handed on in the order of the chunks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from bertkit.data.corpus.documents import Document
from bertkit.data.corpus.sentences import forget_words, split_lines
from bertkit.data.store.store_manifest import Counts, id_type_for
from bertkit.data.store.store_writer import TokenizedChunk
from bertkit.system.worker_processes import map_in_processes
from bertkit.tokenization import BertTokenizer

#: Characters of a chunk, which is a unit of work and a row group: about an eighth of a million tokens.
CHUNK_CHARS = 1 << 19
#: Characters under way among the workers, but for a chunk by itself. As many as the longest line has.
WINDOW_CHARS = 1 << 24
#: Words that a process which tokenises remembers. More of them would not make it faster: a chunk repeats its own words.
CACHED_WORDS = 16384

#: Arrays of at least so many bytes go back to the system when they are freed, see :func:`return_freed_arrays`.
RETURNED_BYTES = 1 << 17
#: Number of that setting in glibc's ``malloc.h``.
_M_MMAP_THRESHOLD = -3

Chunk = list[Document]


def chars_of(chunk: Chunk) -> int:
    """Characters of the sentences of a chunk."""
    return sum(len(sentence) for document in chunk for sentence in document.sentences)


def chunks_of(documents: Iterator[Document], chunk_chars: int) -> Iterator[Chunk]:
    """Documents in groups of at least ``chunk_chars`` characters, but for the last group. None is cut."""
    chunk: Chunk = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += chars_of([document])
        if size >= chunk_chars:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def tokenize(
    chunks: Iterator[Chunk], tokenizer: BertTokenizer, *, split: bool, workers: int
) -> Iterator[TokenizedChunk]:
    """The chunks as ids, in order, by ``workers`` processes (with 1, by this one).

    One chunk a worker and one more are under way, of at most :data:`WINDOW_CHARS` together.

    Raises:
        ResourceError: a worker died.
    """
    if workers == 1:
        worker = ChunkTokenizer(tokenizer, split=split)
        pool_before = pa.default_memory_pool()
        return_freed_arrays()
        try:
            yield from map(worker, chunks)
        finally:
            pa.set_memory_pool(pool_before)
        return
    begin = partial(_begin_worker, tokenizer, split)
    yield from map_in_processes(_work, chunks, workers=workers, begin=begin, size_of=chars_of, room=WINDOW_CHARS)


class ChunkTokenizer:
    """Documents to ids: a pure function of the chunk, for given tokenizer and way of finding sentences.

    Args:
        tokenizer: copied, for the copy's dictionary of words is kept small; results do not depend on it.
        split: lines are running text, to be split into sentences; False: each is one.
    """

    def __init__(self, tokenizer: BertTokenizer, *, split: bool) -> None:
        self._tokenizer: BertTokenizer = pickle.loads(pickle.dumps(tokenizer))
        if self._tokenizer._fast is not None:
            self._tokenizer._fast.max_chunks = CACHED_WORDS
        self._split = split
        self._type = np.dtype(id_type_for(len(tokenizer)))
        # With a blank inside, the name of a special token is not found as one; between a sign and what follows, a blank
        # changes nothing else. A name that begins with a letter stays special.
        names = [name for name in tokenizer.all_special_tokens if not name[0].isalnum() and len(name) > 1]
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def warm_up(self) -> None:
        """Load and build now what the first chunk would need, while this process has nothing else to do."""
        words = " ".join(self._tokenizer.vocab)
        self._tokenizer.encode_ragged([words] * (1 + CHUNK_CHARS // len(words)), add_special_tokens=False)
        if self._split:
            split_lines(["One sentence. And another one."])

    def __call__(self, chunk: Chunk) -> TokenizedChunk:
        rows = [split_lines(document.sentences) if self._split else document.sentences for document in chunk]
        forget_words()
        texts = [sentence for row in rows for sentence in row]
        whole = "\n".join(texts)
        text_bytes = len(whole.encode("utf-8", "surrogatepass")) + 1  # JSON may hold lone surrogates
        if self._special.search(whole):
            texts = [self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", one) for one in texts]
        del whole  # a megabyte or several, while the tokenizer needs the most
        ragged = self._tokenizer.encode_ragged(texts, add_special_tokens=False)
        pa.default_memory_pool().release_unused()  # Arrow would keep it for the next chunk, more with each
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


#: What a worker process works with.
_worker: ChunkTokenizer | None = None


def return_freed_arrays() -> None:
    """Let this process give the memory of large arrays back when they are freed, Arrow's too.

    glibc raises the size from which it does so to that of the largest array it has freed, up to 32 MB, and what it
    keeps instead comes to pieces; Arrow's own allocators keep pages as well. Elsewhere than on Linux with glibc only
    Arrow's is changed.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)


def _begin_worker(tokenizer: BertTokenizer, split: bool) -> None:
    global _worker
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)
    return_freed_arrays()
    _worker = ChunkTokenizer(tokenizer, split=split)
    _worker.warm_up()


def _work(chunk: Chunk) -> TokenizedChunk:
    assert _worker is not None
    return _worker(chunk)
