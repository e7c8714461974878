"""The training runs of a fine-tuning as tasks: one after another, at once in processes, or on a Ray cluster.

All share the run folder, which must have the same path on every machine. A seed trained elsewhere is the same, bit for
bit, as here: it uses as many threads as this process would, and its data and settings come from here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.protocol import model_hash, versions
from bertkit.system.atomic_files import awaited_lock
from bertkit.system.console import say
from bertkit.system.interrupts import Interrupted
from bertkit.system.task_engines import Tasks, task_engine
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_results import SeedResult, choose_seed
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.seed_run import Job, StartModel, run_seed, say_score

#: Seconds in which a worker notices that the process that started it has gone, and leaves its run to another.
LEAVES_S = 60.0


@contextmanager
def tasks_of(config: FinetuneConfig, run: FinetuneFolder, start: StartModel, device: str) -> Iterator[Tasks]:
    """What runs the trainings, in a ``with`` block; machines that cannot train are reported before any data is read.

    Raises:
        ConfigError: a cluster that is not there, or machines without the model, the run folder, or this bertkit.
        Interrupted: Ctrl-C or SIGTERM while runs were under way elsewhere; says how to resume.
    """
    gpus = int(device.startswith("cuda"))
    with task_engine(config.engine, config.workers, cpus=torch.get_num_threads(), gpus=gpus) as tasks:
        _check_machines(tasks, start, run)
        try:
            yield tasks
        except Interrupted as stop:
            if not tasks.at_once:
                raise
            raise Interrupted(f"{stop}; runs under way were saved. {run.how_to_resume}", stop.signum) from None


@dataclass(frozen=True, slots=True)
class _Machine:
    """What a machine has of what a run needs; ``model``: the hash of the start checkpoint, None where there is none."""

    versions: dict[str, str]
    model: str | None
    sees_run: bool

    def lacks(self, here: _Machine, start: StartModel, run: FinetuneFolder) -> str | None:
        """What keeps it from training as this process would, in words; None: nothing."""
        if self.versions != here.versions:
            theirs, ours = (", ".join(f"{name} {v}" for name, v in each.versions.items()) for each in (self, here))
            return f"has {theirs}; this process has {ours}: install the same releases"
        if not self.sees_run:
            return (
                f"does not see the run folder {run.path.resolve()}: choose an --out on a disk that all machines share"
            )
        if self.model is None:
            return f"does not have the model {start.path}: copy it to a disk that all share, and name it there"
        if self.model != here.model:
            return f"has another model at {start.path}: copy the same one there"
        return None


def _look(model: Path, mark: Path) -> _Machine:
    try:
        found = model_hash(model)
    except (CheckpointError, OSError):
        found = None
    return _Machine(versions(), found, mark.exists())


def _check_machines(tasks: Tasks, start: StartModel, run: FinetuneFolder) -> None:
    mark = run.path.resolve() / ".seen-by-workers.tmp"
    mark.write_text("")
    try:
        machines = tasks.on_each_machine(partial(_look, start.path, mark))
        here = _look(start.path, mark) if machines else None
    finally:
        mark.unlink(missing_ok=True)
    for name, machine in machines.items():
        assert here is not None
        if (lack := machine.lacks(here, start, run)) is not None:
            raise ConfigError(f"machine {name} of the Ray cluster {lack}")


def as_task(job: Job) -> Job:
    """The job for another process, on whichever GPU it is given there.

    Raises:
        ConfigError: something follows the run in this process.
    """
    if others := [type(each).__name__ for each in job.callbacks if not type(each).__module__.startswith("bertkit.")]:
        raise ConfigError(
            f"callbacks ({', '.join(others)}) follow a training in this process, and with workers or engine 'ray' it "
            "is in others: leave them out"
        )
    return replace(job, device=job.device.partition(":")[0])


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only process that trains in a folder; one whose driver was killed notices that soon, and is waited for."""
    busy = f"another process still trains in {folder}: wait for it, or end it, and run again with --resume"
    with awaited_lock(folder.with_name(f".{folder.name}.lock"), busy, seconds=LEAVES_S):
        yield


def train_seed(job: Job, threads: int, replaceable: bool, seed: int) -> SeedResult:
    """:func:`run_seed` as a task; continues what an earlier worker has saved."""
    torch.set_num_threads(threads)
    with alone(job.run.seed(seed)):
        return run_seed(job, seed, resume=True, replaceable=replaceable)


def run_seeds(job: Job, tasks: Tasks, *, resume: bool) -> tuple[list[SeedResult], list[SeedResult]]:
    """The results of all seeds, and of the dead ones that others replaced: the same, however many run at once."""
    config = job.config
    replaced: list[SeedResult] = []
    # A head alone on fixed features has one minimum, or is small: where it learns nothing, no other seed will.
    allowed = 0 if config.freeze_encoder else config.restarts
    following = config.seed + config.seeds
    if tasks.at_once:
        _train_ahead(job, tasks, allowed)
    seeds: list[SeedResult] = []
    metric = job.workflow.task.main_metric
    for seed in range(config.seed, following):
        result = run_seed(job, seed, resume=resume, replaceable=len(replaced) < allowed)
        while result.dead and len(replaced) < allowed:
            say(f"seed {result.seed} learned nothing: restarting with seed {following}")
            replaced.append(result)
            result = run_seed(job, following, resume=resume, replaceable=len(replaced) < allowed)
            following += 1
        seeds.append(result)
        if config.keep == "best":
            job.run.keep_best((*seeds, *replaced), choose_seed(seeds, metric).seed)
    while not ((folder := job.run.seed((chosen := choose_seed(seeds, metric)).seed)) / "best").is_dir():
        # Only where a run got more seeds, so that one that was replaced then counts now.
        say(f"training seed {chosen.seed} again, because its model was not kept")
        shutil.rmtree(folder, ignore_errors=True)
        seeds[seeds.index(chosen)] = run_seed(job, chosen.seed, resume=False, replaceable=False)
    return seeds, replaced


def _train_ahead(job: Job, tasks: Tasks, allowed: int) -> None:
    """Train all seeds at once, then those that replace dead ones.

    A seed may be trained here as one that may be replaced, and then be the first that may not: it is trained again.
    """
    config, found = job.config, list[SeedResult]()

    def results() -> dict[int, SeedResult | None]:
        known = [job.run.seed_result(config.seed + number) for number in range(config.seeds + allowed)]
        num_dead = sum(each.dead for each in known if each is not None)
        return {config.seed + number: known[number] for number in range(config.seeds + min(num_dead, allowed))}

    def done(result: SeedResult) -> None:
        say_score(job, result)
        found.append(result)
        alive = sorted((each for each in found if not each.dead), key=lambda each: each.seed)
        if config.keep == "best" and alive:
            job.run.keep_best(alive, choose_seed(alive, job.workflow.task.main_metric).seed)

    train = partial(train_seed, as_task(job), torch.get_num_threads(), allowed > 0)
    while missing := [seed for seed, result in results().items() if result is None]:
        tasks.run(train, missing, label="fine-tuning", done=done)
