"""Corpus to token store: read once, tokenize on all cores, write shards that depend on nothing but the input.

This process reads lines and writes shards; worker processes split sentences and tokenize. The corpus is divided into
chunks regardless of the number of workers, and the chunks are written in order, so that 1, 2 and 7 workers give the
same bytes. Only a few chunks are in memory at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack, get_args

import pyarrow as pa

from bertkit.data.corpus.documents import CorpusReport
from bertkit.data.corpus.near_duplicates import Dedup, DedupReport, documents_within
from bertkit.data.corpus.text_files import OnError, Policy, Source, find_sources
from bertkit.data.store.prepare_chunks import CHUNK_CHARS, CorpusWork, tokenize, tokenize_on_ray
from bertkit.data.store.store_manifest import StoreManifest
from bertkit.data.store.store_writer import SHARD_TEXT_BYTES, StoreWriter
from bertkit.errors import ConfigError, InputError, counted
from bertkit.system.console import Progress, amount_of, say
from bertkit.system.processor import usable_cores
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Maximum memory in bytes of the process that reads and writes, and of one that tokenizes, measured on lines of 16 MiB.
#: Ordinary text takes 150 MB and 190 MB, whatever the size of the corpus.
BASE_MEMORY = 550 << 20
WORKER_MEMORY = 500 << 20

_MB = 1_000_000

Sentences = Literal["split", "line"]
Engine = Literal["local", "ray"]


class PrepareOptions(TypedDict, total=False):
    """What :func:`prepare` takes by name.

    sentences: split running text, or take each line as a sentence.
    text: column of JSONL and Parquet files.
    dedup: drop ``"exact"`` or also ``"near"`` duplicates; takes 320 or 3,200 bytes of memory per document kept.
    workers: processes that tokenize; None: one for each core available to this process.
    memory: bytes that all processes together should stay below; limits the number of workers. With ``dedup``, half of
        what exceeds the minimum for one worker is for remembered documents; with Ray it limits only those.
    resume: False starts over and deletes an unfinished store; a corpus from standard input cannot be continued.
    report: filled with what was read and skipped; its ``sentences`` are counted before splitting.
    chunk_chars: text in one row group.
    """

    sentences: Sentences
    text: str | None
    on_error: OnError
    dedup: Dedup | None
    workers: int | None
    memory: int | None
    engine: Engine
    resume: bool
    report: CorpusReport | None
    shard_text_bytes: int
    chunk_chars: int


def prepare(
    paths: Sequence[str | Path] | str | Path,
    tokenizer: PreTrainedTokenizer | str | Path,
    out: str | Path,
    **options: Unpack[PrepareOptions],
) -> StoreManifest:
    """Write a corpus as a token store. Called again after an interruption, continue after the last finished shard.

    Names of special tokens are ordinary text, as in the original code: ``[MASK]`` becomes ``[``, ``mask``, ``]``. Where
    a blank is a part of the token behind it (byte-level BPE), a sentence that continues a document begins with one, so
    that the ids are those of running text. Sentences and documents without any token are dropped. A script must call
    this under ``if __name__ == "__main__":``, because worker processes import the script.
    """
    if unknown := options.keys() - PrepareOptions.__annotations__.keys():
        raise TypeError(f"prepare() got an unexpected keyword argument {min(unknown)!r}")
    made = AutoTokenizer.from_pretrained(tokenizer) if isinstance(tokenizer, str | Path) else tokenizer
    if not isinstance(made, PreTrainedTokenizer):
        raise InputError(f"tokenizer must be a tokenizer of bertkit or where to read one, got {type(made).__name__}")
    sentences, text, dedup = options.get("sentences", "split"), options.get("text"), options.get("dedup")
    engine, workers = options.get("engine", "local"), options.get("workers")
    for name, value, known in (
        ("sentences", sentences, get_args(Sentences)),
        ("dedup", dedup, (*get_args(Dedup), None)),
        ("engine", engine, get_args(Engine)),
    ):
        if value not in known:
            raise ConfigError(f"{name} must be {' or '.join(map(repr, known))}, got {value!r}")
    memory, remembered = options.get("memory"), None
    if memory is not None and dedup is not None:
        remembered = max(0, memory - BASE_MEMORY - WORKER_MEMORY) // 2
        memory -= remembered
    num_workers = workers_within(None if engine == "ray" else memory, workers)
    given = (str(paths),) if isinstance(paths, str | Path) else tuple(map(str, paths))
    limit, chunk_chars = documents_within(remembered, dedup or "exact"), options.get("chunk_chars", CHUNK_CHARS)
    work = CorpusWork(given, text, options.get("on_error", "raise"), dedup, limit, sentences == "split", chunk_chars)
    report, duplicates = options.get("report") or CorpusReport(), DedupReport()
    documents = work.documents(report, duplicates)
    sources = find_sources(given, Policy("skip", CorpusReport()))
    if engine == "ray" and any(source.path is None for source in sources):
        raise ConfigError("Ray reads the corpus on another machine, without your standard input; name files")
    with StoreWriter(
        out,
        made,
        # Without on_error: skipping does not change a shard that was finished without it.
        settings={"sentences": sentences, "text": text, "chunk_chars": chunk_chars, "dedup": dedup},
        inputs=[[source.name, *_size_and_time(source)] for source in sources],
        resume=options.get("resume", True),
        shard_text_bytes=options.get("shard_text_bytes", SHARD_TEXT_BYTES),
    ) as writer:
        if engine == "ray":
            results = tokenize_on_ray(work, writer.num_read, made, report, duplicates, workers=workers)
        else:
            chunks = work.chunks(documents, writer.num_read)
            results = tokenize(chunks, made, split=work.split, workers=num_workers)
        if writer.num_read:
            say(f"continuing after the {counted(writer.num_read, 'document')} in finished shards of {writer.path}")
        meter = _Meter(sources, report)
        with meter.shown:
            for chunk in results:
                writer.add(chunk)
                pa.default_memory_pool().release_unused()
                meter.update()
        return writer.finish(None if dedup is None else duplicates)


def workers_within(memory: int | None, workers: int | None) -> int:
    """Number of processes that tokenize, at most ``workers``: see :func:`prepare`."""
    wanted = usable_cores() if workers is None else workers
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
    """Progress in MB of the files on disk (of standard input, whose size is unknown, in MB read), and the speed."""

    def __init__(self, sources: Sequence[Source], report: CorpusReport) -> None:
        known = all(source.path is not None for source in sources)
        total = max(1, sum(_size_and_time(source)[0] or 0 for source in sources) // _MB) if known else None
        compressed = any(source.compression or source.kind == "parquet" for source in sources)
        unit = "MB of compressed text" if compressed and known else "MB"
        self._report = report
        self._in_files = known
        self._text_before = report.bytes_read
        self._started = time.monotonic()
        self.shown = Progress(total, label="preparing", unit=unit, done=self._read())

    def _read(self) -> int:
        return (self._report.file_bytes_read if self._in_files else self._report.bytes_read) // _MB

    def update(self) -> None:
        """Show how much has been read."""
        text = self._report.bytes_read - self._text_before
        speed = text / _MB / max(time.monotonic() - self._started, 1e-9)
        self.shown.advance(self._read() - self.shown.done, note=f"{speed:.1f} MB/s of text")


def _size_and_time(source: Source) -> tuple[int | None, int | None]:
    """Bytes and modification time (ns) of a file, by which a corpus is recognized; None for what cannot be read."""
    if source.path is None:
        return None, time.time_ns()  # another text each time
    try:
        stat = source.path.stat()
    except OSError:  # read_documents will report or skip it
        return None, None
    return stat.st_size, stat.st_mtime_ns
