"""The one place that makes a trainer from settings, and runs it from its newest checkpoint to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import nn
from torch.optim import Optimizer

from bertkit.config.number_formats import Precision
from bertkit.optim import Schedule, adamw, linear_schedule, parameter_groups
from bertkit.system.device import runs_ahead
from bertkit.system.untrusted_files import Json
from bertkit.training.trainer.batch_plan import EpochPlan, Plan, Prefetched, WholeSteps
from bertkit.training.trainer.callbacks import AnyTrainer, Callback, reporting
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import WITH_RESUME, BatchT, Evaluate, LoopOptions, Progression, Record
from bertkit.training.trainer.parallel import SINGLE, Parallel
from bertkit.training.trainer.run_folder import CHECKPOINTS, LOG, RunLog


class TrainingSettings(Protocol):
    """What the settings of every training have."""

    @property
    def weight_decay(self) -> float: ...
    @property
    def warmup(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def checkpoint_every_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Where a training keeps its state and who follows it; by default it is in memory and nobody does.

    identity: what a checkpoint must agree with on resume.
    on_resume: called before the first record with the step that the run starts at, and the last one evaluated.
    """

    folder: Path | None = None
    resume: bool = False
    identity: Mapping[str, Json] = field(default_factory=dict)
    log: Callable[[Record], None] = lambda record: None
    on_resume: Callable[[int, int], None] = lambda step, evaluated_step: None
    callbacks: Sequence[Callback] = ()
    label: str = "training"
    how_to_resume: str = WITH_RESUME

    def loop(
        self, settings: TrainingSettings, num_steps: int, learning_rate: float, precision: Precision = "fp32"
    ) -> LoopOptions:
        """The options of the loop, without those that only some kinds of training have."""
        return LoopOptions(
            num_steps,
            learning_rate,
            max_grad_norm=settings.max_grad_norm,
            checkpoint_every_s=settings.checkpoint_every_s,
            precision=precision,
            folder=self.folder,
            identity=self.identity,
            label=self.label,
            how_to_resume=self.how_to_resume,
        )


@contextmanager
def options_in(folder: Path, identity: Mapping[str, Json], label: str, how_to_resume: str) -> Iterator[RunOptions]:
    """Log and checkpoints in a folder, from which a stopped training always continues."""
    with closing(RunLog(folder / LOG, how_to_resume)) as log:
        yield RunOptions(folder / CHECKPOINTS, True, identity, log, log.drop_after, (), label, how_to_resume)


def make_trainer(
    module: nn.Module,
    plan: Plan[BatchT],
    settings: TrainingSettings,
    loop: LoopOptions,
    *,
    optimizer: Optimizer | None = None,
    schedule: Schedule | None = None,
    evaluate: Evaluate | None = None,
    parallel: Parallel = SINGLE,
) -> Trainer[BatchT]:
    """A trainer, by default with AdamW and linear warm-up and decay; for :func:`run_trainer`."""
    if optimizer is None:
        groups = parameter_groups(module, weight_decay=settings.weight_decay)
        optimizer = adamw(groups, learning_rate=loop.learning_rate)
    schedule = schedule or linear_schedule(loop.num_steps, warmup=settings.warmup)
    return Trainer(module, plan, optimizer, schedule, loop, evaluate=evaluate, parallel=parallel)


def run_trainer(trainer: AnyTrainer, options: RunOptions) -> Progression:
    """Train to the end, from the newest checkpoint if the run is resumed; raises what :meth:`Trainer.run` does."""
    with batches_made_ahead(trainer):
        return _run(trainer, options)


@contextmanager
def batches_made_ahead(trainer: AnyTrainer) -> Iterator[None]:
    """Inside the block a thread makes the next batches while a GPU computes; a CPU gains nothing from that."""
    plan = trainer.plan
    if not (runs_ahead(trainer.device) and isinstance(plan, EpochPlan | WholeSteps)):
        yield
        return
    with Prefetched(plan, end=trainer.options.num_steps) as trainer.plan:
        try:
            yield
        finally:
            trainer.plan = plan


def _run(trainer: AnyTrainer, options: RunOptions) -> Progression:
    trainer.log = reporting(trainer, options.log, options.callbacks)
    if any(callback.each_step for callback in options.callbacks):
        trainer.reads_every = 1
    resumed = options.resume and options.folder is not None and trainer.resume()
    options.on_resume(*((trainer.at.step, trainer.at.evaluated_step) if resumed else (0, 0)))
    for callback in options.callbacks:
        callback.on_begin(trainer)
    at = trainer.run()
    for callback in options.callbacks:
        callback.on_end(trainer)
    return at
