"""One block, from its rows to its manifest: what every worker does, whoever runs it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.bulk.answers import Answers, PipelineAnswers, RunAnswers
from bertkit.bulk.bad_rows import Failure
from bertkit.bulk.cuts import Block
from bertkit.bulk.inputs import InputFile
from bertkit.bulk.parts import write_part
from bertkit.bulk.plan import Plan, Work, result_types
from bertkit.bulk.predictor import open_model
from bertkit.bulk.row_work import TOGETHER, BlockReader, ExampleRows, RowWork, TextRows, VectorRows, changed
from bertkit.bulk.state import Manifest, State
from bertkit.bulk.worker_models import opened, variant
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.native.native_backend import NativeBackend
from bertkit.errors import ConfigError, DataError
from bertkit.inference.row_cells import Row, own_name
from bertkit.inference.run_files import read_task
from bertkit.system.atomic_files import sha256_file
from bertkit.system.model_sources import resolve
from bertkit.system.processor import find_processor

#: Why a row has no result at which processes end.
DIED = "the process that computed this row died, again and again"


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker gets to do: a block, with rows that are left out; or a few of its rows, only to see if it survives.

    deaths: of workers at this block. searched: for rows that end them, which are in ``skip``. probe: the first row and
        the one behind the last, from 0 in the block.
    """

    number: int
    deaths: int = 0
    skip: tuple[int, ...] = ()
    searched: bool = False
    probe: tuple[int, int] | None = None


class BlockWorker:
    """Does jobs in this process, with a model that is opened once.

    threads: of the processor, None: all. plan: that of the folder, if it has been read already.
    """

    def __init__(self, out: Path, threads: int | None = None, plan: Plan | None = None) -> None:
        self.state, self.threads = State(out), threads
        plan = plan or self.state.plan()
        assert plan is not None
        self.plan: Plan = plan
        self.variant, self.work = open_work(plan.work, threads)
        self.reader = BlockReader(self.work)
        self.types = result_types(plan, self.work.columns)

    def do(self, job: Job, advance: Callable[[int], object] = lambda rows: None) -> Manifest | None:
        """Compute a block and commit it; None for a probe. ``advance`` is called with numbers of rows; it may raise."""
        plan, block = self.plan, self.plan.blocks[job.number]
        began, name = time.monotonic(), plan.files[block.file].name
        self._check_file(block)
        items = self.reader.rows(name, block, plan.places[block.file])
        self._check_file(block)
        if job.probe is not None:
            list(self._results(items[slice(*job.probe)], ()))
            return None
        key = plan.keys[job.number]
        self.state.begin(key, job.deaths)
        found = list[Row | Failure]()
        for window in self._results(items, job.skip):
            found += window
            advance(len(window))
        manifest = self._write(job.number, items, found, began)
        self.state.commit(manifest)
        self.state.end(key)
        return manifest

    def _write(self, number: int, items: Sequence[Any], found: Sequence[Row | Failure], began: float) -> Manifest:
        plan, block = self.plan, self.plan.blocks[number]
        results, name = list(zip(items, found, strict=True)), plan.files[block.file].name
        failed = [
            {"place": _place(name, item, row), "error": each.reason}
            for row, (item, each) in enumerate(results, start=block.start)
            if isinstance(each, Failure)
        ]
        if failed and plan.work.settings.on_error == "raise":
            raise DataError("{place}: {error}".format(**failed[0]))
        rows = [
            self.work.without(item, each.reason, plan.taken) if isinstance(each, Failure) else each
            for item, each in results
        ]
        part = self.state.out / plan.part(number)
        write_part(part, rows, self.types, plan.taken, typed=plan.work.typed)
        return Manifest(
            plan.keys[number],
            part.name,
            part.stat().st_size,
            len(rows),
            _count(rows, own_name("truncated", plan.taken)),
            _count(rows, own_name("empty", plan.taken)),
            self.variant,
            socket.gethostname(),
            round(time.monotonic() - began, 3),
            failed,
        )

    def _results(self, items: Sequence[Any], skip: Sequence[int]) -> Iterator[list[Row | Failure]]:
        left_out = set(skip)
        numbered = iter(enumerate(items))
        while window := list(islice(numbered, TOGETHER)):
            asked = [item for number, item in window if number not in left_out]
            said = iter(self.work.answer(asked, self.plan.taken) if asked else [])
            yield [Failure(DIED) if number in left_out else next(said) for number, _ in window]

    def _check_file(self, block: Block) -> None:
        """ConfigError if a file that is not read by hashed bytes has changed."""
        planned = self.plan.files[block.file]
        now = InputFile.of(planned.name)
        if now == planned or block.kind == "bytes":
            return
        path = Path(planned.name)
        if now.size != planned.size or not path.is_file() or sha256_file(path) != block.sha256:
            raise changed(planned.name)


def _place(name: str, item: Any, number: int) -> str:
    line = getattr(item, "line", None)
    return f"{name}: row {number + 1}" if line is None else f"{name}:{line}"


def _count(rows: Sequence[Row], field: str) -> int:
    return sum(row.get(field) is True for row in rows)


def open_work(work: Work, threads: int | None = None) -> tuple[str, RowWork]:
    """The variant that computes here, and the work with its model open.

    Raises:
        ConfigError: another variant computes here than in the run, and cannot be changed.
        CheckpointError: no such model here, or another one.
    """
    settings = work.settings if work.settings.threads is not None else replace(work.settings, threads=threads)
    if work.variant is not None and work.variant.isidentifier():  # not the processor's own, nor another back-end
        settings = replace(settings, cpu=work.variant)
    answers = opened((work.command, settings.key), lambda: open_model(settings))
    own = variant_of(answers)
    if work.variant not in (None, own):
        raise ConfigError(
            f"{socket.gethostname()} computes with {own}, and this run with {work.variant}, which gives other last "
            "bits: start a run that all machines can compute with --cpu NAME ('bertkit doctor' lists the names), or "
            "allow it with --mixed-hardware"
        )
    if isinstance(answers, PipelineAnswers):
        task = read_task(checkpoint_folder(resolve(work.settings.model)))
        return own, VectorRows(answers, work.columns, task)
    assert isinstance(answers, RunAnswers)
    return own, TextRows(answers, work.columns) if answers.run.workflow.reads_texts else ExampleRows(answers)


def variant_of(answers: Answers) -> str:
    """What computes: the variant of the C library; one that was compiled here is the processor's own."""
    assert isinstance(answers, PipelineAnswers | RunAnswers)
    engine = answers.pipe.engine if isinstance(answers, PipelineAnswers) else answers.run.engine
    backend = getattr(engine, "backend", None) or getattr(getattr(engine, "shared", None), "encoder", engine)
    backend = getattr(backend, "backend", backend)
    if not isinstance(backend, NativeBackend):
        place = getattr(backend, "place", "cpu")
        return f"{type(backend).__name__.removesuffix('Backend').lower()} on {place}"
    name = variant()
    return f"native: {find_processor().name}" if name == "native" else name
