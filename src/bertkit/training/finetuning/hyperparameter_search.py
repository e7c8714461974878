"""Choose settings on dev before the seeds run: the grid of the 2018 recipe, or an Optuna search."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

import torch

from bertkit.errors import counted, require
from bertkit.inference.run_files import SEARCH
from bertkit.system.console import clock, say
from bertkit.system.json_files import read_json, write_json
from bertkit.system.task_engines import Tasks
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.run_tasks import alone, as_task
from bertkit.training.finetuning.seed_run import Job
from bertkit.training.trainer.run_folder import CHECKPOINTS

Value = int | float
Setting = Mapping[str, Value]
Space = Mapping[str, Sequence[Value]]

#: What Devlin et al. 2019, appendix A.3, tried for each task (batch size 32 there and here; 16 was tried as well).
ORIGINAL_GRID: Space = {"learning_rate": (2e-5, 3e-5, 5e-5), "epochs": (2, 3, 4)}
#: What a search tries: factors of the default rate and of the default number of epochs.
RATE_FACTORS, EPOCH_FACTORS = (0.3, 0.5, 1.0, 2.0, 3.0), (0.5, 1.0, 2.0)
#: The same for settings that have a fixed default; one that the user has set is not searched.
SEARCHED: Space = {"batch_size": (16, 32, 64), "warmup": (0.0, 0.06, 0.1, 0.2)}


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, and the best dev score of their run; None where none was finite."""

    number: int
    setting: dict[str, Value]
    score: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Search:
    """What was tried, on what, and which setting was best; the part ``search`` of the protocol block.

    round_size: how many settings were proposed from the same scores.
    """

    method: str
    space: dict[str, list[Value]]
    chosen_by: str
    trials: list[Trial]
    chosen: dict[str, Value]
    round_size: int = 1


def space_of(config: FinetuneConfig, resolved: FinetuneConfig) -> dict[str, Sequence[Value]]:
    """The values to choose from; empty if nothing is searched. What the user set in ``config`` is not searched."""
    if config.protocol == "original" and not config.freeze_encoder:
        return {name: values for name, values in ORIGINAL_GRID.items() if getattr(config, name) is None}
    if config.search is None:
        return {}
    space: dict[str, Sequence[Value]] = {}
    assert resolved.learning_rate is not None
    assert resolved.epochs is not None
    if config.learning_rate is None:
        space["learning_rate"] = [float(f"{factor * resolved.learning_rate:.3g}") for factor in RATE_FACTORS]
    if config.epochs is None:
        space["epochs"] = sorted({max(1, round(factor * resolved.epochs)) for factor in EPOCH_FACTORS})
    return {**space, **{name: values for name, values in SEARCHED.items() if name not in config.model_fields_set}}


def given_names(config: FinetuneConfig) -> list[str]:
    """Which of :data:`SEARCHED` the user set; a search never changes them, even if they have their default value."""
    return sorted(config.model_fields_set & SEARCHED.keys())


def search(job: Job, space: Space, num_trials: int | None, tasks: Tasks, *, resume: bool) -> Search:
    """Train once per setting of ``space``, with the first seed; the best dev score wins, if equal the first.

    ``num_trials``: settings that Optuna tries; None tries all, in order. With several workers Optuna proposes as many
    settings at a time, from the scores of those before, so the outcome depends on their number, and on who is fast it
    does not. Finished trials are in ``search.json``.
    """
    file, metric = job.run.path / SEARCH, job.workflow.task.main_metric
    known = {_key(trial.setting): trial for trial in _known(file)} if resume else {}
    trials: list[Trial] = []
    size = (job.config.workers or 1) if num_trials is not None else 1
    if num_trials is None:
        method = "every one"
        every = [dict(zip(space, values, strict=True)) for values in product(*space.values())]
        rounds = iter([every] if tasks.at_once else [[one] for one in every])
    else:
        together = f", in rounds of {size}" if size > 1 else ""
        method = f"Optuna, TPE, {counted(num_trials, 'trial')}{together}, seed {job.config.seed}"
        rounds = _sampled(space, num_trials, size, job.config.seed, trials)
    found = Search(
        method=method,
        space={name: list(values) for name, values in space.items()},
        chosen_by=f"dev {metric} of seed {job.config.seed}, {'best' if job.config.keeps_best_epoch else 'last'} epoch",
        trials=trials,
        chosen={},
        round_size=size,
    )
    choices = "; ".join(f"{name} of {', '.join(f'{v:g}' for v in values)}" for name, values in space.items())
    say(f"choosing on dev ({method}): {choices}")

    def done(trial: Trial) -> None:
        known[_key(trial.setting)] = trial
        write_json(file, asdict(replace(found, trials=list(known.values()))))

    for settings in rounds:
        new = {_key(one): (len(trials) + at, one) for at, one in reversed(list(enumerate(settings)))}
        missing = sorted(each for key, each in new.items() if key not in known)
        tasks.run(_trial_of(job, tasks, resume), missing, label="searching", done=done)
        for setting in settings:
            trial = replace(known[_key(setting)], number=len(trials))
            trials.append(trial)
            say(f"trial {trial.number + 1}: {_words(setting)}: {_shown(trial, metric)} in {clock(trial.seconds)}")
    best = max(trials, key=_rank)
    found.chosen.update(best.setting)
    write_json(file, asdict(found))
    say(f"chose {_words(best.setting)}: {_shown(best, metric)}")
    for folder in job.run.path.glob("trial-*"):
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _known(file: Path) -> list[Trial]:
    return read_json(file, Search).trials if file.exists() else []


def _key(setting: Setting) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(setting.items()))


def _sampled(
    space: Space, num_trials: int, size: int, seed: int, done: Sequence[Trial]
) -> Iterator[list[dict[str, Value]]]:
    """Rounds of settings that Optuna proposes, knowing the scores of the rounds before, which are in ``done``."""
    optuna = require("optuna", extra="search", needed_for="--search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for first in range(0, num_trials, size):
        trials = [study.ask() for _ in range(min(size, num_trials - first))]
        yield [{n: trial.suggest_categorical(n, list(values)) for n, values in space.items()} for trial in trials]
        for trial, scored in zip(trials, done[first:], strict=True):
            study.tell(trial, _rank(scored))


def _trial_of(job: Job, tasks: Tasks, resume: bool) -> Callable[[tuple[int, Setting]], Trial]:
    """What tries a setting, given with the number of its trial."""
    if not tasks.at_once:
        return lambda numbered: _try(job, *numbered, resume=resume)
    return partial(_try_elsewhere, as_task(job), torch.get_num_threads())


def _try_elsewhere(job: Job, threads: int, numbered: tuple[int, Setting]) -> Trial:
    torch.set_num_threads(threads)
    with alone(_folder(job, numbered[0])):
        return _try(job, *numbered, resume=True)


def _folder(job: Job, number: int) -> Path:
    return job.run.path / f"trial-{number:03d}"


def _try(job: Job, number: int, setting: Setting, *, resume: bool) -> Trial:
    changed = job.with_config(job.config.model_copy(update=dict(setting)))
    folder = _folder(job, number)
    options = FitOptions(
        folder=folder / CHECKPOINTS,
        resume=resume,
        identity=changed.identity,
        cache=job.cache,
        label=f"trial {number + 1}",
        end_when_dead=True,
    )
    at = changed.train(job.config.seed, options).progression
    shutil.rmtree(folder, ignore_errors=True)
    # The score of the weights that such a run keeps: the best epoch's, or with protocol original the last one's.
    kept = next((epoch for epoch in at.epochs if epoch["step"] == at.best_step), {})
    score = kept.get(f"dev_{job.workflow.task.main_metric}")
    finite = score is not None and math.isfinite(score)
    return Trial(number, dict(setting), score if finite else None, round(at.seconds, 2))


def _rank(trial: Trial) -> float:
    """What trials are compared by; Optuna, too, wants a number where there is no score."""
    return -1e9 if trial.score is None else trial.score


def _shown(trial: Trial, metric: str) -> str:
    return f"dev {metric} {trial.score:.4f}" if trial.score is not None else f"no score (dev {metric})"


def _words(setting: Setting) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in setting.items())
