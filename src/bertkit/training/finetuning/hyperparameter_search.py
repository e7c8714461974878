"""Choose settings on dev before the seeds run: the grid of the 2018 recipe, or an Optuna search."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

from bertkit.errors import counted, require
from bertkit.inference.run_files import SEARCH
from bertkit.system.console import clock, say
from bertkit.system.json_files import read_json, write_json
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import FitOptions
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
    """What was tried, on what, and which setting was best; the part ``search`` of the protocol block."""

    method: str
    space: dict[str, list[Value]]
    chosen_by: str
    trials: list[Trial]
    chosen: dict[str, Value]


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


def search(job: Job, space: Space, num_trials: int | None, *, resume: bool) -> Search:
    """Train once per setting of ``space``, with the first seed; the best dev score wins, if equal the first.

    ``num_trials``: settings that Optuna tries; None tries all, in order. Finished trials are in ``search.json``.
    """
    file, metric = job.run.path / SEARCH, job.workflow.task.main_metric
    known = read_json(file, Search).trials if resume and file.exists() else []
    trials: list[Trial] = []
    if num_trials is None:
        method = "every one"
        settings = iter([dict(zip(space, values, strict=True)) for values in product(*space.values())])
    else:
        method = f"Optuna, TPE, {counted(num_trials, 'trial')}, seed {job.config.seed}"
        settings = _sampled(space, num_trials, job.config.seed, trials)
    found = Search(
        method=method,
        space={name: list(values) for name, values in space.items()},
        chosen_by=f"dev {metric} of seed {job.config.seed}, {'best' if job.config.keeps_best_epoch else 'last'} epoch",
        trials=trials,
        chosen={},
    )
    choices = "; ".join(f"{name} of {', '.join(f'{v:g}' for v in values)}" for name, values in space.items())
    say(f"choosing on dev ({method}): {choices}")
    for number, setting in enumerate(settings):
        before = next((trial for trial in (*known, *trials) if trial.setting == setting), None)
        trial = replace(before, number=number) if before else _try(job, number, setting, resume=resume)
        trials.append(trial)
        say(f"trial {number + 1}: {_words(setting)}: {_shown(trial, metric)} in {clock(trial.seconds)}")
        if len(trials) > len(known):  # until then the file has more than this call has redone
            write_json(file, asdict(found))
    best = max(trials, key=_rank)
    found.chosen.update(best.setting)
    write_json(file, asdict(found))
    say(f"chose {_words(best.setting)}: {_shown(best, metric)}")
    for folder in job.run.path.glob("trial-*"):
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _sampled(space: Space, num_trials: int, seed: int, done: Sequence[Trial]) -> Iterator[dict[str, Value]]:
    """Settings that Optuna proposes, each knowing the scores of those before it, which are in ``done``."""
    optuna = require("optuna", extra="search", needed_for="--search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    for _ in range(num_trials):
        trial = study.ask()
        yield {name: trial.suggest_categorical(name, list(values)) for name, values in space.items()}
        study.tell(trial, _rank(done[-1]))


def _try(job: Job, number: int, setting: Setting, *, resume: bool) -> Trial:
    changed = job.with_config(job.config.model_copy(update=dict(setting)))
    folder = job.run.path / f"trial-{number:03d}"
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
