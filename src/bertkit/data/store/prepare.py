"""Corpus to token store: read once, tokenise on all cores, write shards that depend on nothing but the input.

This process reads lines and writes shards; worker processes split sentences and tokenise. The corpus is cut into chunks
of a fixed size before anyone knows how many workers there are, and the chunks are written in order, so that 1, 2 and 7
workers give the same bytes. Only a few chunks are under way at a time, so that memory does not grow with the corpus.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from bertkit.data.corpus.bad_input import OnError, Policy
from bertkit.data.corpus.corpus_reading import Reading
from bertkit.data.corpus.documents import CorpusReport
from bertkit.data.corpus.near_duplicates import Dedup, DedupReport, documents_within
from bertkit.data.corpus.text_files import Source, find_sources
from bertkit.data.store.prepare_chunks import CHUNK_CHARS, chunks_of, tokenize
from bertkit.data.store.prepare_ray import RayWork, tokenize_on_ray
from bertkit.data.store.store_manifest import Duplicates, StoreManifest
from bertkit.data.store.store_writer import SHARD_TEXT_BYTES, StoreWriter, TokenizedChunk
from bertkit.errors import ConfigError, InputError
from bertkit.system.console import Progress, amount_of, say
from bertkit.tokenization import BertTokenizer, PreTrainedTokenizer

#: What the process that reads and writes needs at most, and one that tokenises, in bytes: measured on lines of 16 MiB.
#: Ordinary text takes 150 MB and 190 MB, whatever the size of the corpus.
BASE_MEMORY = 550 << 20
WORKER_MEMORY = 500 << 20

_MB = 1_000_000

Sentences = Literal["split", "line"]
Engine = Literal["local", "ray"]


def prepare(
    paths: Sequence[str | Path] | str | Path,
    tokenizer: PreTrainedTokenizer | str | Path,
    out: str | Path,
    *,
    sentences: Sentences = "split",
    text: str | None = None,
    on_error: OnError = "raise",
    dedup: Dedup | None = None,
    workers: int | None = None,
    memory: int | None = None,
    engine: Engine = "local",
    resume: bool = True,
    report: CorpusReport | None = None,
    shard_text_bytes: int = SHARD_TEXT_BYTES,
    chunk_chars: int = CHUNK_CHARS,
) -> StoreManifest:
    """Write a corpus as a token store. Called again after a stop, it goes on after the last finished shard.

    The names of special tokens are ordinary text in a corpus, as in the original code: ``[MASK]`` becomes ``[``,
    ``mask``, ``]``. Sentences and documents without any token are left out.
    In a script, call it under ``if __name__ == "__main__":``, for worker processes import the script.

    Args:
        paths: see :func:`~bertkit.data.corpus.documents.read_documents`.
        tokenizer: or where to read it.
        out: folder of the store; new, empty, or the unfinished store of the same call.
        sentences: ``"split"`` running text, or take each ``"line"`` as a sentence.
        text: column of JSONL and Parquet files.
        on_error: ``"raise"`` or ``"skip"`` what cannot be read.
        dedup: leave out documents that an earlier one says as well, exactly or nearly, and tell of it in the manifest;
            see :func:`~bertkit.data.corpus.near_duplicates.drop_duplicates`. 320 bytes of memory a document that is
            kept, 3,200 for ``"near"``. A call that goes on compares the finished part again, in memory only.
        workers: processes that tokenise; None: one for each core that this process may use.
        memory: bytes that all processes together should stay below; fewer workers are started where it asks for that.
            With ``dedup`` half of what is over the least for one worker is for remembered documents. Processes on a
            Ray cluster are not bounded by it, only what they remember of documents.
        engine: ``"ray"``: on a Ray cluster, see :func:`~bertkit.data.store.prepare_ray.tokenize_on_ray`; the same
            bytes.
        resume: False begins again and removes what an unfinished store has.
        report: filled with what was read and skipped; its ``sentences`` are counted before splitting.
        shard_text_bytes: text in one shard, see :data:`~bertkit.data.store.store_writer.SHARD_TEXT_BYTES`.
        chunk_chars: text in one row group.

    Returns:
        The manifest of the finished store.

    Raises:
        ConfigError: ``out`` is taken, or was begun with other input; too little ``memory``; a wrong number of workers.
        InputError: a wrong argument.
        DataError: the corpus is wrong, with file and line; or nothing in it gives a token.
        CheckpointError: the tokenizer cannot be read.
        MissingExtraError: ``engine="ray"`` without Ray.
        ResourceError: disk full, a worker died, or no memory for more documents of ``dedup``; finished shards stay.
    """
    tokenizer = _tokenizer_of(tokenizer)
    _check_names(sentences, dedup, engine)
    remembered, num_workers = _shared_out(memory, workers, dedup)
    report, duplicates = CorpusReport() if report is None else report, DedupReport()
    given = (str(paths),) if isinstance(paths, str | Path) else tuple(map(str, paths))
    reading = Reading(given, text, on_error, dedup, documents_within(remembered, dedup or "exact"))
    documents = reading.documents(report, duplicates)
    sources = find_sources(given, Policy("skip", CorpusReport()))
    if engine == "ray" and any(source.path is None for source in sources):
        raise ConfigError("Ray reads the corpus on another machine, which has no standard input of yours; name files")
    # Not among them: on_error. A shard that was finished without skipping is the same with it.
    settings = {"sentences": sentences, "text": text, "chunk_chars": chunk_chars, "dedup": dedup}
    resume &= all(source.path is not None for source in sources)  # standard input may be another text now
    with StoreWriter(
        out, tokenizer, settings=settings, inputs=_describe(sources), resume=resume, shard_text_bytes=shard_text_bytes
    ) as writer:
        if engine == "ray":
            work = RayWork(reading, writer.num_read, chunk_chars, sentences == "split")
            results = tokenize_on_ray(work, tokenizer, report, duplicates, workers=workers)
        else:
            deque(islice(documents, writer.num_read), maxlen=0)
            chunks = chunks_of(documents, chunk_chars)
            results = tokenize(chunks, tokenizer, split=sentences == "split", workers=num_workers)
        _write(results, writer, sources, report)
        return writer.finish(None if dedup is None else Duplicates.model_validate(asdict(duplicates)))


def _tokenizer_of(given: PreTrainedTokenizer | str | Path) -> BertTokenizer:
    tokenizer = BertTokenizer.from_pretrained(given) if isinstance(given, str | Path) else given
    if not isinstance(tokenizer, BertTokenizer):
        raise InputError(f"pre-training data is made of word pieces (BertTokenizer), got a {type(tokenizer).__name__}")
    return tokenizer


def _check_names(sentences: str, dedup: str | None, engine: str) -> None:
    if sentences not in ("split", "line"):
        raise ConfigError(f"sentences must be 'split' or 'line', got {sentences!r}")
    if dedup not in (None, *get_args(Dedup)):
        raise ConfigError(f"dedup must be 'exact', 'near' or None, got {dedup!r}")
    if engine not in get_args(Engine):
        raise ConfigError(f"engine must be 'local' or 'ray', got {engine!r}")


def _shared_out(memory: int | None, workers: int | None, dedup: Dedup | None) -> tuple[int | None, int]:
    """Memory for remembering documents, and workers for the rest."""
    if memory is None or dedup is None:
        return None, workers_within(memory, workers)
    remembered = max(0, memory - BASE_MEMORY - WORKER_MEMORY) // 2
    return remembered, workers_within(memory - remembered, workers)


def _write(
    chunks: Iterator[TokenizedChunk], writer: StoreWriter, sources: Sequence[Source], report: CorpusReport
) -> None:
    if writer.num_read:
        say(f"going on after {writer.num_read:,} documents that are in finished shards of {writer.path}")
    with _Meter(sources, report) as meter:
        for chunk in chunks:
            writer.add(chunk)
            pa.default_memory_pool().release_unused()
            meter.update()


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
        raise ConfigError(
            f"--memory must be at least {amount_of(least)} for one worker, got {amount_of(memory)}; leave it out for "
            "no limit"
        )
    return min(wanted, (memory - BASE_MEMORY) // WORKER_MEMORY)


class _Meter:
    """Progress in MB of the files as they are on the disk, and MB of text a second; made when reading begins.

    How much is left is not known of standard input.
    """

    def __init__(self, sources: Sequence[Source], report: CorpusReport) -> None:
        known = all(source.path is not None for source in sources)
        total = max(1, sum(map(_size_of, sources)) // _MB) if known else None
        compressed = any(source.compression or source.kind == "parquet" for source in sources)
        unit = "MB of compressed text" if compressed and known else "MB"
        self._report = report
        self._in_files = known
        self._text_before = report.bytes_read
        self._started = time.monotonic()
        self._shown = Progress(total, label="preparing", unit=unit, done=self._read() // _MB)

    def _read(self) -> int:
        return self._report.file_bytes_read if self._in_files else self._report.bytes_read

    def update(self) -> None:
        """Show how much has been read."""
        text = self._report.bytes_read - self._text_before
        speed = text / _MB / max(time.monotonic() - self._started, 1e-9)
        self._shown.advance(self._read() // _MB - self._shown.done, note=f"{speed:.1f} MB/s of text")

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
