"""Chunks to ids on a Ray cluster, by way of Ray Data: the extra ``ray``. Imports no torch.

One task reads the corpus, on whatever machine Ray puts it, and hands on chunks in order; actors tokenise them; the
process that called writes the shards. It is the work of :mod:`bertkit.data.store.prepare_chunks` at other places, so
the shards have
the same bytes. The corpus must lie under the same names on all machines of the cluster (a shared file system); the
store is written by the caller alone. Ray Data holds the reader back when actors or writer are slower.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from bertkit.data.corpus.corpus_reading import Reading
from bertkit.data.corpus.documents import CorpusReport
from bertkit.data.corpus.near_duplicates import DedupReport
from bertkit.data.store.prepare_chunks import Chunk, ChunkTokenizer, chunks_of
from bertkit.data.store.store_writer import TokenizedChunk
from bertkit.errors import BertkitError, ConfigError, ResourceError, require
from bertkit.tokenization import BertTokenizer

#: The one column of what goes through Ray.
_COLUMN = "pickled"


@dataclass(frozen=True, slots=True)
class RayWork:
    """What a cluster is to do.

    reading: the corpus. skipped: documents that are in finished shards. chunk_chars: see
    :func:`~bertkit.data.store.prepare_chunks.chunks_of`. split: see
    :class:`~bertkit.data.store.prepare_chunks.ChunkTokenizer`.
    """

    reading: Reading
    skipped: int
    chunk_chars: int
    split: bool


def tokenize_on_ray(
    work: RayWork, tokenizer: BertTokenizer, report: CorpusReport, duplicates: DedupReport, *, workers: int | None
) -> Iterator[TokenizedChunk]:
    """The chunks of a corpus as ids, in order.

    Uses the Ray that this process is connected to; else the cluster at ``RAY_ADDRESS``; else starts one on this machine
    and stops it at the end. Ray's usage statistics are off unless ``RAY_USAGE_STATS_ENABLED`` says otherwise.

    Args:
        work: what to do.
        tokenizer: sent to each actor.
        report: brought up to date with each chunk.
        duplicates: the same.
        workers: actors, of one CPU each; None: one for each CPU of the cluster.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: Ray cannot be reached.
        BertkitError: what reading the corpus raised, the same as without Ray.
        ResourceError: anything else that went wrong on the cluster.
    """
    ray = _import_ray()
    mine = not ray.is_initialized()
    try:
        if mine:
            try:
                ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                where = os.environ.get("RAY_ADDRESS", "this machine")
                raise ConfigError(f"no Ray at {where}: {error}; check RAY_ADDRESS") from error
            logging.getLogger("ray.data").setLevel(logging.ERROR)  # it tells of each plan and each run
        num_actors = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        yield from _results(ray, work, tokenizer, report, duplicates, num_actors)
    finally:
        if mine:
            ray.shutdown()


def _results(
    ray: Any, work: RayWork, tokenizer: BertTokenizer, report: CorpusReport, duplicates: DedupReport, num_actors: int
) -> Iterator[TokenizedChunk]:
    context = ray.data.DataContext.get_current()
    before = context.execution_options.preserve_order, context.enable_progress_bars
    context.execution_options.preserve_order, context.enable_progress_bars = True, False
    try:
        rows = (
            # One reader; it waits for the actors most of the time, so no CPU is set aside for it.
            ray.data.read_datasource(_source(work, os.getcwd()), override_num_blocks=1, num_cpus=0)
            .map_batches(
                _Actor,
                fn_constructor_args=(tokenizer, work.split),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=num_actors),
                num_cpus=1,
            )
            .iter_rows()
        )
        for row in rows:
            result, told, dropped = pickle.loads(row[_COLUMN])
            _bring_up_to_date(report, told)
            _bring_up_to_date(duplicates, dropped)
            if result is not None:
                yield result
    except Exception as error:
        raise _cause_of(error) from error
    finally:
        context.execution_options.preserve_order, context.enable_progress_bars = before


class _Actor:
    """Tokenises on a machine of the cluster."""

    def __init__(self, tokenizer: BertTokenizer, split: bool) -> None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        pa.set_cpu_count(1)
        self._work = ChunkTokenizer(tokenizer, split=split)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[bytes]]:
        done = []
        for row in batch[_COLUMN]:
            chunk, report, duplicates = pickle.loads(row)
            done.append(pickle.dumps((chunk and self._work(chunk), report, duplicates)))
        return {_COLUMN: done}


def _source(work: RayWork, folder: str) -> Any:
    """The corpus as something that Ray Data reads: one task, which hands on a chunk a block."""
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata

    def read() -> Iterator[pa.Table]:
        os.chdir(folder)  # names in the store are those that the caller gave
        report, duplicates = CorpusReport(), DedupReport()
        documents = work.reading.documents(report, duplicates)
        chunks = chunks_of(islice(documents, work.skipped, None), work.chunk_chars)
        end: list[Chunk | None] = [None]  # brings the reports as they are after the last document
        for chunk in chain(chunks, end):
            yield pa.table({_COLUMN: pa.array([pickle.dumps((chunk, report, duplicates))], pa.large_binary())})

    class Corpus(Datasource):
        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, parallelism: int, *more: Any, **options: Any) -> list[Any]:
            return [ReadTask(read, BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None))]

    return Corpus()


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", extra="ray", needed_for="engine 'ray'")
    require("ray.data", extra="ray", needed_for="engine 'ray'")
    return ray


def _bring_up_to_date(report: Any, newer: Any) -> None:
    for field in fields(report):
        setattr(report, field.name, getattr(newer, field.name))


def _cause_of(error: BaseException) -> BertkitError:
    """The error of ours that made Ray fail; if there is none, one that tells what Ray says."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BertkitError) and type(cause).__module__ == BertkitError.__module__:
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    said = str(error).strip() or type(error).__name__
    return ResourceError(f"the Ray cluster failed, finished shards stay: {said.splitlines()[-1]}")
