"""Chunks to ids on a Ray cluster, with Ray Data: the extra ``ray``. Imports no torch.

One task reads the corpus, on whatever machine Ray chooses, and passes on chunks in order; actors tokenize them; the
calling process writes the shards, which have the same bytes as without Ray. The corpus must have the same path on all
machines of the cluster (a shared file system); only the caller writes the store. Ray Data slows the reader down when
the actors or the writer are slower.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa

from bertkit.data.corpus.documents import CorpusReport
from bertkit.data.corpus.near_duplicates import DedupReport
from bertkit.data.store.prepare_chunks import Chunk, ChunkTokenizer, CorpusWork, limit_threads
from bertkit.data.store.store_writer import TokenizedChunk
from bertkit.errors import BertkitError, ConfigError, ResourceError, require
from bertkit.tokenization import BertTokenizer

if TYPE_CHECKING:
    from ray.data import Datasource, ReadTask

#: The only column of what goes through Ray.
_COLUMN = "pickled"


def tokenize_on_ray(
    work: CorpusWork,
    skipped: int,
    tokenizer: BertTokenizer,
    report: CorpusReport,
    duplicates: DedupReport,
    *,
    workers: int | None,
) -> Iterator[TokenizedChunk]:
    """The chunks of a corpus as ids, in order.

    Uses the Ray that this process is connected to, or the cluster at ``RAY_ADDRESS``; otherwise starts one on this
    machine and stops it at the end. Ray's usage statistics are off unless ``RAY_USAGE_STATS_ENABLED`` is set.

    Args:
        work: what to read.
        skipped: documents in finished shards.
        tokenizer: sent to each actor.
        report: updated with each chunk.
        duplicates: likewise.
        workers: number of actors, one CPU each; None: one for each CPU of the cluster.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: Ray cannot be reached.
        BertkitError: an error in the corpus, the same as without Ray.
        ResourceError: any other failure on the cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", extra="ray", needed_for="engine 'ray'")
    require("ray.data", extra="ray", needed_for="engine 'ray'")
    mine = not ray.is_initialized()
    try:
        if mine:
            try:
                ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = os.environ.get("RAY_ADDRESS", "this machine")
                raise ConfigError(f"no Ray at {where}: {error}; check RAY_ADDRESS") from error
            logging.getLogger("ray.data").setLevel(logging.ERROR)  # it reports each plan and run
        num_actors = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        for pickled in _results(ray, _source(work, skipped, os.getcwd()), tokenizer, work.split, num_actors):
            result, *newer = pickle.loads(pickled)
            _update(report, newer[0])
            _update(duplicates, newer[1])
            if result is not None:
                yield result
    finally:
        if mine:
            ray.shutdown()


def _results(
    ray: ModuleType, source: Datasource, tokenizer: BertTokenizer, split: bool, num_actors: int
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
        raise _cause_of(error) from error
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before


class _Actor:
    """Tokenizes on a machine of the cluster."""

    def __init__(self, tokenizer: BertTokenizer, split: bool) -> None:
        limit_threads()
        self._work = ChunkTokenizer(tokenizer, split=split)

    def __call__(self, batch: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
        done = []
        for row in batch[_COLUMN]:
            chunk, report, duplicates = pickle.loads(row)
            done.append(pickle.dumps((chunk and self._work(chunk), report, duplicates)))
        return {_COLUMN: done}


def _source(work: CorpusWork, skipped: int, folder: str) -> Datasource:
    """The corpus for Ray Data: one task, which yields one chunk per block."""
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    def read() -> Iterator[pa.Table]:
        os.chdir(folder)  # so that the store contains the names that the caller gave
        report, duplicates = CorpusReport(), DedupReport()
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


def _update(report: CorpusReport | DedupReport, newer: CorpusReport | DedupReport) -> None:
    for field in fields(report):
        setattr(report, field.name, getattr(newer, field.name))


def _cause_of(error: BaseException) -> BertkitError:
    """The bertkit error that made Ray fail; if there is none, one with Ray's message."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BertkitError) and type(cause).__module__ == BertkitError.__module__:
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    said = str(error).strip() or type(error).__name__
    return ResourceError(f"the Ray cluster failed, finished shards stay: {said.splitlines()[-1]}")
