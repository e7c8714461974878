"""The parallel part of preparing a corpus: documents in chunks, and chunks to ids.

A chunk becomes the same ids wherever it is tokenized, and results come in the order of the chunks. Chunks are tokenized
by processes of this machine or, with the extra ``ray``, on a Ray cluster: one task reads the corpus, on whatever
machine Ray chooses, and passes on chunks in order; actors tokenize them; the calling process writes the shards. The
corpus must then have the same path on all machines (a shared file system). Ray Data slows the reader down when the
actors or the writer are slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.data.corpus.documents import Document, forget_words, read_documents, split_lines
from bertkit.data.corpus.near_duplicates import Dedup, DedupReport, drop_duplicates
from bertkit.data.corpus.text_files import CorpusReport, OnError
from bertkit.data.store.store_manifest import Counts, id_type_for
from bertkit.data.store.store_writer import TokenizedChunk
from bertkit.errors import require
from bertkit.system.ray_cluster import cause_of, connected
from bertkit.system.worker_processes import map_in_processes
from bertkit.tokenization.family_vocabularies import MergedVocabulary, UnigramVocabulary
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from ray.data import Datasource, ReadTask

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

#: The only column of what goes through Ray.
_COLUMN = "pickled"

Chunk = list[Document]


@dataclass(frozen=True, slots=True)
class CorpusWork:
    """What to read for a store, and how. Picklable, so that another machine can do it."""

    paths: tuple[str, ...]
    text: str | None
    on_error: OnError
    dedup: Dedup | None
    max_documents: int | None
    split: bool
    chunk_chars: int

    def documents(self, report: CorpusReport, duplicates: DedupReport) -> Iterator[Document]:
        """Documents of whole lines, which the workers split into sentences. Both reports are filled meanwhile."""
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
    chunks: Iterator[Chunk], tokenizer: PreTrainedTokenizer, *, split: bool, workers: int
) -> Iterator[TokenizedChunk]:
    """The chunks as ids, in order, computed by ``workers`` processes (with 1, by this one)."""
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
    """Documents to ids: a pure function of the chunk. The tokenizer is copied, to keep the copy's word cache small."""

    def __init__(self, tokenizer: PreTrainedTokenizer, *, split: bool) -> None:
        self.tokenizer: PreTrainedTokenizer = pickle.loads(pickle.dumps(tokenizer))
        self.tokenizer.limit_memory(CACHED_WORDS)
        self._split = split
        self._type = np.dtype(id_type_for(len(tokenizer)))
        # A blank inside its name hides a special token from the tokenizer; between a sign and what follows, a blank
        # changes nothing else in word pieces. Names that begin with a letter stay special.
        names = [name for name in tokenizer.all_special_tokens if not name[0].isalnum() and len(name) > 1]
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")
        vocabulary = tokenizer._vocabulary
        # Pieces of the unigram model have the names of special tokens, and normalizing full-width letters may make one.
        self._plain: NDArray[np.int32] | None = None
        if isinstance(vocabulary, UnigramVocabulary):
            self._plain = np.arange(len(tokenizer), dtype=np.int32)
            self._plain[[tokenizer.vocab[name] for name in names]] = tokenizer.unk_token_id
        # A word in running text has the blank before it; at the start of a text it has none.
        self._needs_blank = (
            isinstance(vocabulary, MergedVocabulary | UnigramVocabulary) and not vocabulary.add_prefix_space
        )

    def __call__(self, chunk: Chunk) -> TokenizedChunk:
        rows = [split_lines(document.sentences) if self._split else document.sentences for document in chunk]
        forget_words()
        texts = [sentence for row in rows for sentence in row]
        whole = "\n".join(texts)
        text_bytes = len(whole.encode("utf-8", "surrogatepass")) + 1  # a dump may contain half a pair: &#xD800;
        if self._special.search(whole):
            texts = [self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", one) for one in texts]
        del whole  # a megabyte or several, when the tokenizer needs most memory
        if self._needs_blank:
            starts = {0, *np.cumsum([len(row) for row in rows]).tolist()}
            texts = [text if place in starts else f" {text}" for place, text in enumerate(texts)]
        ragged = self.tokenizer.encode_ragged(texts, add_special_tokens=False)
        ids = ragged.ids if self._plain is None else self._plain[ragged.ids]
        pa.default_memory_pool().release_unused()  # or Arrow would keep it, more with each chunk
        lengths = ragged.lengths.astype(np.int32)
        owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        sizes = np.bincount(owners[lengths > 0], minlength=len(rows)).astype(np.int32)
        counts = Counts(
            num_documents=int((sizes > 0).sum()),
            num_sentences=int((lengths > 0).sum()),
            num_tokens=len(ids),
            num_unknown=int((ids == self.tokenizer.unk_token_id).sum()),
            text_bytes=text_bytes,
        )
        return TokenizedChunk(
            ids=ids.astype(self._type),
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
    what it keeps; Arrow's allocators keep pages as well.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, RETURNED_BYTES)


def limit_threads() -> None:
    """Keep the libraries in this process to one thread; there are as many processes as cores."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)


def _begin_worker(tokenizer: PreTrainedTokenizer, split: bool) -> None:
    global _worker
    limit_threads()
    return_freed_arrays()
    _worker = ChunkTokenizer(tokenizer, split=split)
    # Load and build now what the first chunk would need, while the process is idle.
    words = " ".join(tokenizer.vocab)
    _worker.tokenizer.encode_ragged([words] * (1 + CHUNK_CHARS // len(words)), add_special_tokens=False)
    if split:
        split_lines(["One sentence. And another one."])


def _work(chunk: Chunk) -> TokenizedChunk:
    assert _worker is not None
    return _worker(chunk)


def tokenize_on_ray(
    work: CorpusWork,
    skipped: int,
    tokenizer: PreTrainedTokenizer,
    report: CorpusReport,
    duplicates: DedupReport,
    *,
    workers: int | None,
) -> Iterator[TokenizedChunk]:
    """The chunks of a corpus as ids, in order, after the ``skipped`` documents in finished shards.

    For which Ray, see :func:`bertkit.system.ray_cluster.connected`.
    """
    require("ray.data", extra="ray", needed_for="engine 'ray'")
    with connected() as ray:
        num_actors = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        for pickled in _results(ray, _source(work, skipped, os.getcwd(), report), tokenizer, work.split, num_actors):
            result, *newer = pickle.loads(pickled)
            reports: tuple[CorpusReport | DedupReport, ...] = (report, duplicates)
            for own, sent in zip(reports, newer, strict=True):
                for field in fields(own):
                    setattr(own, field.name, getattr(sent, field.name))
            if result is not None:
                yield result


def _results(
    ray: ModuleType, source: Datasource, tokenizer: PreTrainedTokenizer, split: bool, num_actors: int
) -> Iterator[bytes]:
    """For each chunk, pickled: its ids and the two reports."""
    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    try:
        rows = (
            # One reader; it mostly waits for the actors, so no CPU is reserved for it.
            ray.data.read_datasource(source, override_num_blocks=1, num_cpus=0)
            .map_batches(
                _Actor,
                fn_constructor_args=(tokenizer, split),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=num_actors),
                num_cpus=1,
            )
            .iter_rows()
        )
        for row in rows:
            yield row[_COLUMN]
    except Exception as error:
        raise cause_of(error, "finished shards stay") from error
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before


class _Actor:
    def __init__(self, tokenizer: PreTrainedTokenizer, split: bool) -> None:
        limit_threads()
        self._work = ChunkTokenizer(tokenizer, split=split)

    def __call__(self, batch: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        done = []
        for row in batch[_COLUMN]:
            chunk, report, duplicates = pickle.loads(row)
            done.append(pickle.dumps((chunk and self._work(chunk), report, duplicates)))
        return {_COLUMN: done}


def _source(work: CorpusWork, skipped: int, folder: str, report: CorpusReport) -> Datasource:
    """The corpus for Ray Data: one task, which yields one chunk per block and goes on with a copy of ``report``."""
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    def read() -> Iterator[pa.Table]:
        os.chdir(folder)  # so that the store contains the names that the caller gave
        duplicates = DedupReport()
        chunks = work.chunks(work.documents(report, duplicates), skipped)
        end: list[Chunk | None] = [None]  # carries the reports after the last document
        for chunk in chain(chunks, end):
            yield pa.table({_COLUMN: pa.array([pickle.dumps((chunk, report, duplicates))], pa.large_binary())})

    class Corpus(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *more: object, **options: object) -> list[ReadTask]:
            return [ReadTask(read, BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None))]

    return Corpus()
