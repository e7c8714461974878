"""Files of any size to files of results: planned once, computed by anyone, resumed after anything."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bertkit.bulk.compute import BlockWorker, Job, open_work
from bertkit.bulk.cuts import Size
from bertkit.bulk.inputs import InputFile, find_inputs
from bertkit.bulk.parts import merge_parts
from bertkit.bulk.plan import Plan, Work, make_plan
from bertkit.bulk.pools import Here, Pool, processes, ray_tasks
from bertkit.bulk.predictor import Settings
from bertkit.bulk.resume import finished, new_or_same, remove_drafts, settle
from bertkit.bulk.row_work import ExampleRows, RowWork, TextRows
from bertkit.bulk.run_blocks import DEATHS, Run, Totals
from bertkit.bulk.state import Manifest, State
from bertkit.bulk.worker_models import fingerprint, shared_name
from bertkit.config.file_columns import Columns
from bertkit.engine.backend import Precision
from bertkit.errors import ConfigError, DataError, counted
from bertkit.inference.predict_files import UNNAMED, tell_empty, tell_marked
from bertkit.inference.row_files import FORMATS, Done, claimed, row_file
from bertkit.system.atomic_files import awaited_lock, new_file, write_atomically
from bertkit.system.console import Progress, say
from bertkit.system.device import Device
from bertkit.system.granted_cores import granted_cores
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.json_files import printable
from bertkit.system.paths import refuse_address
from bertkit.tasks.reading.splits import kind_of

Engine = Literal["local", "ray"]
#: Makes a file of parts: their paths, the columns of the input, where to write.
Join = Callable[[Sequence[Path], Collection[str], Path], object]


@dataclass(frozen=True)
class How:
    """How the work is done; none of it changes a result, but the size of blocks and ``cpu`` the last bits.

    engine: this machine, or the Ray cluster at ``RAY_ADDRESS``. workers: processes; None: this one (with Ray, as many
    as its cores allow). shard: ``(i, n)``, the i-th of n parts of the work, from 1. refresh: compute what has changed.
    max_errors: rows without a result that are tolerated; None: any number. size: of new plans. cpu: variant of the
    compiled encoder. mixed_hardware: workers may compute with different ones.
    """

    engine: Engine = "local"
    workers: int | None = None
    shard: tuple[int, int] = (1, 1)
    refresh: bool = False
    max_errors: int | None = None
    size: Size | None = None
    cpu: str | None = None
    mixed_hardware: bool = False

    def __post_init__(self) -> None:
        index, count = self.shard
        if not 1 <= index <= count:
            raise ConfigError(f"shard {index}/{count}: give i/n with i from 1 to n (add 1 to an index from 0)")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers must be at least 1, got {self.workers}")
        if self.engine not in ("local", "ray"):
            raise ConfigError(f"engine must be 'local' or 'ray', got {self.engine!r}")


@dataclass(frozen=True)
class What:
    """What is done with the rows; see :class:`bertkit.bulk.plan.Work`.

    sparse: of ``embed``, weights of words. on_error: ``"raise"``: the first row without a result ends the run, with a
    DataError that names it.
    """

    model: str | Path
    command: Literal["predict", "embed"] = "predict"
    columns: Columns = UNNAMED
    device: Device = None
    precision: Precision = "auto"
    threads: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    sparse: bool = False
    on_error: Literal["mark", "raise"] = "mark"

    def work(self, how: How, suffix: str, *, typed: bool) -> Work:
        """For a plan, of a variant that is not known yet."""
        kind = "sparse-encoding" if self.sparse else "feature-extraction"
        task = None if self.command == "predict" else kind
        device = None if self.device is None else str(self.device)
        named = (shared_name(self.model), task, fingerprint(self.model))
        settings = Settings(*named, {}, device, self.precision, self.threads, how.cpu, self.on_error, self.options)
        return Work(self.command, settings, self.columns, how.cpu, suffix, typed)


def is_file_name(out: Path) -> bool:
    """Whether an output is one file, by its ending, and not a folder of parts."""
    return out.suffix in FORMATS


def compute_folder(
    what: What, inputs: Sequence[str | Path], out: Path, how: How = How(), suffix: str = ".jsonl"
) -> Totals:
    """Write the rows of files, with what a model says of them, to a folder of parts; see ``bertkit predict --help``.

    Returns what is there of this shard when it is done.

    Raises:
        ConfigError: settings that contradict each other or those of the run in the folder, another driver, a folder of
            something else.
        DataError: files of different columns, without rows, or more errors than are tolerated.
        ResourceError: no room, no permission, or workers that die again and again.
        Interrupted: a signal, after which the same call resumes.
    """
    refuse_address(out)
    state = State(out)
    _refuse_others(state)
    return _compute(what, inputs, state, how, suffix)


def compute_file(
    what: What,
    inputs: Sequence[str | Path],
    out: Path,
    how: How = How(),
    *,
    excel: bool = False,
    suffix: str = ".jsonl",
    join: Join | None = None,
) -> Totals:
    """The same as one file, in the format of its ending; its parts are in ``OUT.parts`` until it is complete.

    suffix: of the parts. join: writes the draft of a file in another format than those of rows.
    """
    refuse_address(out)
    if how.shard != (1, 1):
        raise ConfigError(f"--shard writes parts, and {out.name} is one file: give --out a folder, and merge it later")
    if join is None and not is_file_name(out):
        raise ConfigError(f"{out}: unknown format; the name of a file must end in {', '.join(FORMATS)}")
    state = State(out.with_name(out.name + ".parts"))
    _refuse_others(state)
    with claimed(out):
        try:
            totals = _compute(what, inputs, state, how, suffix, out if join is None else None)
            plan = state.plan()
            assert plan is not None
            parts = [state.out / plan.part(number) for number in range(len(plan.blocks))]
            if join is None:
                merge_parts(parts, out, plan.taken, excel=excel)
            else:
                with new_file(out) as draft:
                    join(parts, plan.taken, draft)
            if state.errors().exists():
                state.errors().replace(out.with_name(out.name + ".errors.jsonl"))
            shutil.rmtree(state.out)
        finally:
            if state.out.is_dir() and not any(len(each.errors) < each.rows for each in state.manifests().values()):
                shutil.rmtree(state.out)  # nothing in it is worth keeping
    return totals


def _refuse_others(state: State) -> None:
    """ConfigError for a folder that holds something else than a run."""
    if state.out.is_dir() and any(state.out.iterdir()) and not state.folder.is_dir():
        raise ConfigError(f"{state.out} is a folder of something else; choose another name for the output")


def _compute(
    what: What, inputs: Sequence[str | Path], state: State, how: How, suffix: str, file: Path | None = None
) -> Totals:
    ours = f"{state.out.absolute()}{os.sep}"
    files = [file for file in find_inputs(inputs) if not file.name.startswith(ours)]  # not the parts of an earlier call
    work = what.work(how, suffix, typed=file is not None and file.suffix == ".xlsx")
    state.make()
    with state.driven(*how.shard):
        threads = what.threads or granted_cores()
        plan, own, done = _planned(work, files, state, how, file, threads)
        mine = _blocks_of(plan, how)
        remove_drafts(state, {plan.part(number) for number in mine})
        todo = [number for number in mine if plan.keys[number] not in done]
        totals = Totals()
        for number in mine:
            if (manifest := done.get(plan.keys[number])) is not None:
                totals.add(manifest)
        if totals.blocks:
            said = f"{totals.rows:,} finished rows ({totals.blocks:,} of {len(mine):,} blocks)"
            say(f"resuming after {said} in {state.out}")
        try:
            _run(plan, todo, state, how, totals, threads)
        finally:
            _write_errors(plan, state, how, done)
        _tell(totals, own)
        if totals.errors == totals.rows > 0:
            raise DataError(f"no row has a result; the first is {totals.first_error}")
    return totals


def _planned(
    work: Work, files: Sequence[InputFile], state: State, how: How, file: Path | None, threads: int | None
) -> tuple[Plan, RowWork, dict[str, Manifest]]:
    """The plan of the folder, made if need be by whoever comes first, the work of this process, and what is done.

    The lock is for who may write; the shards of a run, perhaps a thousand, read the plan without waiting.
    """

    def look(*, make: bool) -> tuple[Plan | None, RowWork]:
        old, mine = state.plan(), work
        if old is not None and not how.mixed_hardware and how.cpu is None and not how.refresh:
            mine = replace(mine, variant=old.work.variant)
        variant, own = open_work(mine, threads)
        mine = replace(mine, variant=None if how.mixed_hardware else mine.variant or variant)
        plan = new_or_same(old, mine, files, state, how.size, refresh=how.refresh)
        if plan is None and make:
            plan = make_plan(mine, own, files, how.size or Size(), old)
            if file is not None:
                _check_cells(plan, own, file, state)
            plan.save(state.plan_path)
        return plan, own

    lock = partial(awaited_lock, state.folder / "plan.lock", "another process makes the plan")
    if how.shard[1] > 1 and not how.refresh:
        if not state.plan_path.exists():
            with lock():
                if not state.plan_path.exists():
                    look(make=True)
        plan, own = look(make=False)
        if plan is not None:
            return plan, own, finished(plan, state, _blocks_of(plan, how))
    with lock():
        plan, own = look(make=True)
        assert plan is not None
        return plan, own, settle(plan, state)


def _blocks_of(plan: Plan, how: How) -> range:
    """The numbers of the blocks of a shard."""
    index, count = how.shard
    return range(index - 1, len(plan.blocks), count)


def _check_cells(plan: Plan, own: RowWork, file: Path, state: State) -> None:
    """Find what the format of a file cannot hold before anything is computed."""
    if file.suffix != ".parquet":
        return
    for planned in plan.files:
        path = Path(planned.name)
        if path.is_file() and kind_of(path) in (".jsonl", ".ndjson", ".json"):
            row_file(file, state.folder / "none", own.survey(path, planned.name)[0], Done())


@contextmanager
def _pool(worker: BlockWorker, how: How, progress: Progress, signals: Interrupts, *, kills: bool) -> Iterator[Pool]:
    """Who does the work; blocks that have killed this process are not done in it."""
    out, threads = worker.state.out.absolute(), worker.threads
    if how.engine == "ray":
        with ray_tasks(out, how.workers, threads) as pool:
            yield pool
    elif how.workers is not None or kills:
        with processes(out, how.workers or 1) as local:
            yield local
    else:

        def advance(rows: int) -> None:
            progress.advance(rows)
            signals.check()

        yield Here(worker, advance)


def _run(plan: Plan, todo: Sequence[int], state: State, how: How, totals: Totals, threads: int | None) -> None:
    deaths = state.deaths({plan.keys[number] for number in todo})
    jobs = [Job(number, deaths.get(plan.keys[number], 0)) for number in todo]
    total, done = sum(plan.blocks[number].rows for number in todo) + totals.rows, totals.rows
    worker = BlockWorker(state.out, threads, plan)
    kills = any(job.deaths >= DEATHS for job in jobs)
    try:
        with (
            Interrupts() as signals,
            Progress(total, label="predicting", unit="rows", done=done) as progress,
            _pool(worker, how, progress, signals, kills=kills) as pool,
        ):
            Run(plan, pool, progress, signals, totals, how.max_errors, isinstance(pool, Here)).all(jobs)
    except Interrupted as stop:
        raise Interrupted(f"{stop} after {totals.rows:,} rows; run the same command to resume", stop.signum) from None
    finally:
        for number in todo:
            state.end(plan.keys[number])


def _write_errors(plan: Plan, state: State, how: How, known: Mapping[str, Manifest]) -> None:
    """The errors of the finished blocks of a shard, in their order; no file if there are none."""
    keys = [plan.keys[number] for number in _blocks_of(plan, how)]
    manifests = filter(None, (known.get(key) or state.manifest(key) for key in keys))
    lines = [json.dumps(error, ensure_ascii=False) + "\n" for manifest in manifests for error in manifest.errors]
    path = state.errors(*how.shard)
    for old in state.out.glob("_errors*.jsonl"):
        if old.name.partition("-of-")[2] != path.name.partition("-of-")[2]:  # of another number of shards
            old.unlink(missing_ok=True)
    if lines:
        write_atomically(path, printable("".join(lines)))
    else:
        path.unlink(missing_ok=True)


def _tell(totals: Totals, own: RowWork) -> None:
    if isinstance(own, TextRows | ExampleRows):
        tell_marked(Done(totals.rows, totals.truncated, totals.empty), own.run.max_length)
    else:
        tell_empty(totals.empty, totals.rows)
    if totals.errors:
        failed = f"{totals.errors:,} of {counted(totals.rows, 'row')}"
        say(f"WARNING: without a result: {failed}; the first is {totals.first_error}")


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    columns: Columns = UNNAMED,
    *,
    device: Device = None,
    precision: Precision = "auto",
    threads: int | None = None,
    excel: bool = False,
    how: How = How(),
) -> int:
    """Write a row for each row of a file, its columns and what :func:`predict_run` says; returns their number.

    Called again after a stop, it keeps the finished blocks and resumes, if model and input are still the same.
    Truncated and empty texts, and rows without a result, are counted on stderr and marked in their rows.

    source: ``.txt`` (one text per line), ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or another table, also
        compressed; of another kind of task a file as it was trained on, or a folder of brat.
    out: ``.jsonl``, ``.csv``, ``.tsv``, ``.parquet`` or ``.xlsx``; see :mod:`bertkit.inference.row_files`.
    columns: where the texts are. What it leaves open is as in the run's own data: ``text`` and ``text_pair`` (for a
        model of pairs), then the usual names; delimiter and quoting; but not the encoding, which is then UTF-8.
    excel: a ``.csv`` file for an Excel whose decimals have a comma.
    """
    refuse_address(out)
    what = What(run, "predict", columns, device, precision, threads)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    return compute_file(what, [source], Path(out), how, excel=excel).rows
