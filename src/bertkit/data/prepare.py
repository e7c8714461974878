"""Corpus to token store: read once, tokenise on all cores, write shards that depend on nothing but the input.

This process reads lines and writes shards; worker processes split sentences and tokenise. The corpus is cut into chunks
of a fixed size before anyone knows how many workers there are, and the chunks are written in order, so that 1, 2 and 7
workers give the same bytes. Only a few chunks are under way at a time, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from bertkit.console import Progress, say
from bertkit.data.corpus import CorpusReport, Document, read_documents
from bertkit.data.opening import Source, find_sources
from bertkit.data.sentences import split_lines
from bertkit.data.store_manifest import Counts, StoreManifest, id_type_for
from bertkit.data.store_writer import SHARD_TEXT_BYTES, StoreWriter, TokenizedChunk
from bertkit.data.trouble import OnError, Policy
from bertkit.errors import ConfigError, ResourceError
from bertkit.tokenization import BertTokenizer

#: Characters of a chunk, which is a unit of work and a row group: about half a million tokens.
CHUNK_CHARS = 1 << 21
#: What the process that reads and writes needs at most, and one that tokenises, in bytes.
BASE_MEMORY = 400 << 20
WORKER_MEMORY = 500 << 20

Sentences = Literal["split", "line"]
Chunk = list[Document]


def prepare(
    paths: Sequence[str | Path] | str | Path,
    tokenizer: BertTokenizer | str | Path,
    out: str | Path,
    *,
    sentences: Sentences = "split",
    text: str | None = None,
    on_error: OnError = "raise",
    workers: int | None = None,
    memory: int | None = None,
    resume: bool = True,
    report: CorpusReport | None = None,
    shard_text_bytes: int = SHARD_TEXT_BYTES,
    chunk_chars: int = CHUNK_CHARS,
) -> StoreManifest:
    """Write a corpus as a token store. Called again after a stop, it goes on after the last finished shard.

    The names of special tokens are ordinary text in a corpus, as in the original code: ``[MASK]`` becomes ``[``,
    ``mask``, ``]``. Sentences and documents without any token are left out.

    In a script, call it under ``if __name__ == "__main__":``, for worker processes import the script (not with
    ``workers=1``, which starts none).

    Args:
        paths: see :func:`~bertkit.data.corpus.read_documents`.
        tokenizer: or where to read it.
        out: folder of the store; new, empty, or the unfinished store of the same call.
        sentences: ``"split"`` running text, or take each ``"line"`` as a sentence.
        text: column of JSONL and Parquet files.
        on_error: ``"raise"`` or ``"skip"`` what cannot be read.
        workers: processes that tokenise; None: one for each core that this process may use.
        memory: bytes that all processes together should stay below; fewer workers are started where it asks for that.
        resume: False begins again and removes what an unfinished store has.
        report: filled with what was read and skipped; its ``sentences`` are counted before splitting.
        shard_text_bytes: text in one shard, see :data:`~bertkit.data.store_writer.SHARD_TEXT_BYTES`.
        chunk_chars: text in one row group.

    Returns:
        The manifest of the finished store.

    Raises:
        ConfigError: ``out`` is taken, or was begun with other input; too little ``memory``; a wrong number of workers.
        InputError: a wrong argument.
        DataError: the corpus is wrong, with file and line; or nothing in it gives a token.
        CheckpointError: the tokenizer cannot be read.
        ResourceError: disk full, or a worker died; finished shards stay.
    """
    if not isinstance(tokenizer, BertTokenizer):
        tokenizer = BertTokenizer.from_pretrained(tokenizer)
    num_workers = workers_within(memory, workers)
    report = CorpusReport() if report is None else report
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    # Sentences are split by the workers: of this process they would take most of the time.
    documents = read_documents(given, sentences="line", text=text, on_error=on_error, report=report)
    sources = find_sources(given, Policy("skip", CorpusReport()))
    inputs = _describe(sources)
    # Not among them: on_error. A shard that was finished without skipping is the same with it.
    settings = {"sentences": sentences, "text": text, "chunk_chars": chunk_chars}
    if sentences not in ("split", "line"):
        raise ConfigError(f"sentences must be 'split' or 'line', got {sentences!r}")
    writer = StoreWriter(
        out,
        tokenizer,
        settings=settings,
        inputs=inputs,
        resume=resume and all(source.path is not None for source in sources),  # standard input may be another text
        shard_text_bytes=shard_text_bytes,
    )
    with writer, _Meter(sources, report) as meter:
        if writer.num_read:
            say(f"going on after {writer.num_read:,} documents that are in finished shards of {writer.path}")
        rest = islice(documents, writer.num_read, None)
        for chunk in tokenize(chunks_of(rest, chunk_chars), tokenizer, split=sentences == "split", workers=num_workers):
            writer.add(chunk)
            meter.update()
        return writer.finish()


def workers_within(memory: int | None, workers: int | None) -> int:
    """How many processes tokenise.

    Args:
        memory: bytes for all processes together; None: no limit.
        workers: most processes; None: one for each core that this process may use.

    Raises:
        ConfigError: fewer than one worker; too little memory for one.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = cores if workers is None else workers
    if wanted < 1:
        raise ConfigError(f"workers must be at least 1, got {workers}")
    if memory is None:
        return wanted
    least = BASE_MEMORY + WORKER_MEMORY
    if memory < least:
        raise ConfigError(f"memory must be at least {least:,} bytes for one worker, got {memory:,}")
    return min(wanted, (memory - BASE_MEMORY) // WORKER_MEMORY)


def chunks_of(documents: Iterator[Document], chunk_chars: int) -> Iterator[Chunk]:
    """Documents in groups of at least ``chunk_chars`` characters, but for the last group. None is cut."""
    chunk: Chunk = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += sum(map(len, document.sentences))
        if size >= chunk_chars:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def tokenize(
    chunks: Iterator[Chunk], tokenizer: BertTokenizer, *, split: bool, workers: int
) -> Iterator[TokenizedChunk]:
    """The chunks as ids, in order, by ``workers`` processes (with 1, by this one). At most two a worker are under way.

    Raises:
        ResourceError: a worker died.
    """
    if workers == 1:
        worker = ChunkTokenizer(tokenizer, split=split)
        yield from map(worker, chunks)
        return
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_begin_worker, initargs=(tokenizer, split)
    )
    pending: deque[Future[TokenizedChunk]] = deque()
    try:
        for chunk in chunks:
            pending.append(pool.submit(_work, chunk))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise ResourceError(
            "a worker process died, most often because memory ran out: use fewer workers. (In a script of yours, "
            "prepare must be called under: if __name__ == '__main__':)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


class ChunkTokenizer:
    """Documents to ids: a pure function of the chunk, for given tokenizer and way of finding sentences.

    Args:
        tokenizer: its own dictionary grows, its results do not depend on that.
        split: lines are running text, to be split into sentences; False: each is one.
    """

    def __init__(self, tokenizer: BertTokenizer, *, split: bool) -> None:
        self._tokenizer = tokenizer
        self._split = split
        self._type = np.dtype(id_type_for(len(tokenizer)))
        # With a blank inside, the name of a special token is not found as one; between a sign and what follows, a blank
        # changes nothing else. A name that begins with a letter stays special.
        names = [name for name in tokenizer.all_special_tokens if not name[0].isalnum() and len(name) > 1]
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")

    def __call__(self, chunk: Chunk) -> TokenizedChunk:
        rows = [split_lines(document.sentences) if self._split else document.sentences for document in chunk]
        texts = [sentence for row in rows for sentence in row]
        whole = "\n".join(texts)
        text_bytes = len(whole.encode("utf-8", "surrogatepass")) + 1  # JSON may hold lone surrogates
        if self._special.search(whole):
            texts = [self._special.sub(lambda found: f"{found[0][0]} {found[0][1:]}", one) for one in texts]
        ragged = self._tokenizer.encode_ragged(texts, add_special_tokens=False)
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


def _begin_worker(tokenizer: BertTokenizer, split: bool) -> None:
    global _worker
    _worker = ChunkTokenizer(tokenizer, split=split)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pa.set_cpu_count(1)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this worker when the process that writes is killed: nothing else would tell it."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _work(chunk: Chunk) -> TokenizedChunk:
    assert _worker is not None
    return _worker(chunk)


class _Meter:
    """Progress in MB of text; how much is left is known for files that are not compressed."""

    def __init__(self, sources: Sequence[Source], report: CorpusReport) -> None:
        plain = all(
            source.path is not None and source.kind != "parquet" and not source.compression for source in sources
        )
        size = sum(_size_of(source) for source in sources) if plain else 0
        self._report = report
        self._bytes_before = report.bytes_read
        self._started = time.monotonic()
        self._shown = Progress(max(1, size // 1_000_000) if plain else None, label="preparing", unit="MB")

    def update(self) -> None:
        """Show how much has been read."""
        read = self._report.bytes_read - self._bytes_before
        speed = read / 1e6 / max(time.monotonic() - self._started, 1e-9)
        self._shown.advance(read // 1_000_000 - self._shown.done, note=f"{speed:.1f} MB/s")

    def __enter__(self) -> _Meter:
        self._shown.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._shown.__exit__(*error)


def _size_of(source: Source) -> int:
    try:
        return source.path.stat().st_size if source.path is not None else 0
    except OSError:
        return 0


def _describe(sources: Sequence[Source]) -> list[list[Any]]:
    """What tells whether the corpus on this machine is still the same: name, bytes and time of change of each file."""
    described: list[list[Any]] = []
    for source in sources:
        try:
            stat = source.path.stat() if source.path is not None else None
        except OSError:  # read_documents will complain, or skip it
            stat = None
        described.append([source.name, stat and stat.st_size, stat and stat.st_mtime_ns])
    return described
