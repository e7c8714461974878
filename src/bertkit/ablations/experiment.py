"""Run a plan: each arm with each seed is pre-trained and measured, in folders that resume.

::

    OUT/
        plan.json             the plan, by which the folder is recognized
        results/ARM/seed-N.json   scores of a finished arm with one seed; copies from other machines may be added
        arms/ARM/seed-N/      its runs of fine-tuning
        shared/               vocabulary, token stores, pre-trained models; may stand elsewhere, for several plans
        README.md ablation.html results.json *.png   the page, see :mod:`bertkit.ablations.ablation_page`
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from bertkit.ablations.ablation_page import Ablation, write_page
from bertkit.ablations.hidden_words import hidden_word_scores
from bertkit.ablations.plan import MADE, Measure, Plan, check_layers
from bertkit.ablations.shared_data import SharedData, find_data
from bertkit.ablations.unit_results import UnitResult
from bertkit.ablations.word_features import score_features
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import config_path
from bertkit.errors import ConfigError
from bertkit.inference.run_files import BOOTSTRAP
from bertkit.metrics.intervals import bootstrap_draws
from bertkit.system.atomic_files import awaited_lock, claimed_folder
from bertkit.system.console import say
from bertkit.system.device import Device
from bertkit.system.json_files import as_stored, read_json, write_json
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tasks.own_files import task_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.initial_model import with_vocabulary
from bertkit.training.pretraining.objectives import network_class
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.trainer.run_folder import LOG, read_log

PLAN, RESULTS = "plan.json", "results"
#: What to do after a stop.
RESUME = "Run the same command to resume"
#: Of each evaluation on held-out text, what is kept.
SCORES = tuple(
    f"dev_{term}_{kind}" for term in ("masked_lm", "next_word", "next_sentence") for kind in ("loss", "accuracy")
)
#: Which part of a plan one machine runs: number from 1, and of how many.
Shard = tuple[int, int]


def ablate(
    plan: Plan,
    out: str | Path,
    *,
    data: str | Path | None = None,
    shared: str | Path | None = None,
    shard: Shard | None = None,
    max_seconds: float | None = None,
    device: Device = None,
) -> Ablation:
    """Run what is missing of a plan, and write the page.

    Args:
        plan: from :func:`bertkit.ablations.plan.load_plan`.
        out: a new folder, or that of the same plan, which is resumed.
        data: the folder that the paths of the plan lie in; None is the working folder.
        shared: where vocabulary, token stores and pre-trained models are; None is ``out/shared``. Several plans may
            share it: models with the same settings are trained once.
        shard: ``(1, 3)`` runs the first of three parts and leaves the page out.
        max_seconds: stop after so long; the same call resumes.
        device: where to train; None is the CPU.

    Raises:
        ConfigError: ``out`` holds another plan or other files; a shard out of range.
        DataError: files of the plan are missing.
    """
    folder, place = user_path(out), user_path(data) if data is not None else Path()
    units = _units(plan, shard)
    find_data(plan, None if data is None else place)
    starts = {arm.start for arm in plan.arms.values() if arm.start is not None}
    depths = {start: read_any_config(config_path(resolve(start))).num_hidden_layers for start in starts}
    for name in plan.arms:
        if (given := plan.arms[plan.sources(name)[0]].start) is not None:
            check_layers(f"[arms.{name}]", plan.arms[name], depths[given])
    with claimed_folder(folder / _lock_of(shard), f"another process runs this part of the plan in {folder}"):
        _check_folder(folder, plan)
        write_json(folder / PLAN, _identity(plan))
        runner = _Runner(plan, folder, place, user_path(shared) if shared else folder / "shared", device)
        with _stopping_after(max_seconds) as clock:
            missing = [unit for unit in units if not runner.result(*unit).exists()]
            if missing and plan.corpus is not None:
                runner.shared.prepare()
            for number, (arm, seed) in enumerate(missing, start=1):
                if clock.is_over:  # in the last steps of something, which then was finished instead
                    break
                say(f"{number} of {len(missing)}: {arm}, seed {seed}")
                runner.run(arm, seed)
        if clock.is_over:
            say(f"the time is over; the same command resumes {folder}")
        found = Ablation(plan, read_results(folder, plan))
        if shard is None:
            write_page(found, folder)
    return found


def read_results(folder: Path, plan: Plan) -> list[UnitResult]:
    """The finished arms of a folder, in the order of the plan."""
    places = [folder / RESULTS / arm / f"seed-{seed}.json" for arm in plan.arms for seed in plan.seeds]
    return [read_json(path, UnitResult) for path in places if path.exists()]


def _units(plan: Plan, shard: Shard | None) -> list[tuple[str, int]]:
    """Arms and seeds, all arms of a seed before the next; arms that share a model are in one shard."""
    number, count = shard or (1, 1)
    if not 1 <= number <= count:
        raise ConfigError(
            f"shard {number}/{count} is out of range; the parts of {count} are 1/{count} to {count}/{count}"
        )
    groups = plan.groups()
    turns = ((seed, at % len(groups)) for at, seed in enumerate(plan.seeds))  # so that no shard has one group alone
    parts = [(group, seed) for seed, turn in turns for group in groups[turn:] + groups[:turn]]
    return [(arm, seed) for group, seed in parts[number - 1 :: count] for arm in group if plan.measured(arm)]


def _lock_of(shard: Shard | None) -> str:
    return ".running" if shard is None else f".running-{shard[0]}-of-{shard[1]}"


def _identity(plan: Plan) -> dict[str, Json]:
    """What results depend on: not the words of the page, nor the number of seeds, which may grow."""
    arms = {name: arm.model_dump(exclude={"title", "paper", "base"}) for name, arm in plan.arms.items()}
    measures = {name: measure.model_dump(exclude={"title"}) for name, measure in plan.measures.items()}
    corpus = None if plan.corpus is None else plan.corpus.model_dump()
    shared = {name: plan.values.get(name) for name in ("model", "training")}
    return as_stored({"plan": plan.name, "arms": arms, "measures": measures, "corpus": corpus, **shared})


def _check_folder(folder: Path, plan: Plan) -> None:
    path, ours = folder / PLAN, _identity(plan)
    if path.exists():
        theirs = read_json(path, dict)
        if changed := [key for key in ours if ours[key] != theirs.get(key)]:
            raise ConfigError(
                f"{folder} holds another plan ({theirs.get('plan')!s:.80}; other values in {', '.join(changed)}): "
                "choose another --out"
            )
    elif others := sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith(".")):
        raise ConfigError(f"{folder} is not empty and holds no plan ({', '.join(others[:5])}): choose a new --out")


@dataclass
class _Clock:
    is_over: bool = False


@contextmanager
def _stopping_after(seconds: float | None) -> Iterator[_Clock]:
    """A Ctrl-C after so many seconds, by which training saves its state; it ends the block."""
    clock = _Clock()
    if seconds is None:
        yield clock
        return

    def stop() -> None:
        clock.is_over = True
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    # A process in the background of a script ignores SIGINT otherwise.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        yield clock
    except KeyboardInterrupt:
        if not clock.is_over:
            raise
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@dataclass
class _Runner:
    """Runs arms of a plan in a folder."""

    plan: Plan
    folder: Path
    data: Path
    shared_folder: Path
    device: Device
    shared: SharedData = field(init=False)

    def __post_init__(self) -> None:
        if self.plan.corpus is not None:
            self.shared = SharedData(self.shared_folder, self.plan.corpus, self.data)

    def result(self, arm: str, seed: int) -> Path:
        """The file that says that an arm is finished."""
        return self.folder / RESULTS / arm / f"seed-{seed}.json"

    def run(self, arm: str, seed: int) -> None:
        """Pre-train, measure, and write the result."""
        began = time.monotonic()
        sources = self.plan.sources(arm)
        models = [self._model(source, seed) for source in sources]
        found = UnitResult(arm, seed, {}, {}, {}, [])
        if self.plan.arms[arm].start is None and not self.plan.arms[arm].of:
            found.curve.extend(_curve(models[0].parent))
        for name in self.plan.measured(arm):
            measure = self.plan.measures[name]
            if measure.kind == "words":
                score, drawn, more = self._words(arm, models, measure)
            else:
                score, drawn, more = self._task(arm, seed, name, models)
            found.scores[name], found.drawn[name] = score, drawn
            found.facts.update({f"{name}: {key}": value for key, value in more.items()})
        found.facts["seconds"] = round(time.monotonic() - began, 1)
        path = self.result(arm, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, asdict(found))

    def _model(self, arm: str, seed: int) -> Path:
        """The folder of the pre-trained model, trained first where it is not there."""
        if (start := self.plan.arms[arm].start) is not None:
            return resolve(start)
        store, dev = self.shared.store("train"), self.shared.store("dev")
        config = self.plan.training(arm).replace(seed=seed, curve=False)
        shape = with_vocabulary(self.plan.shape(arm), store)
        told = json.dumps([config.model_dump(mode="json"), shape.to_dict()], sort_keys=True)
        name = f"{hashlib.sha256(told.encode()).hexdigest()[:12]}-seed-{seed}"
        run = self.shared_folder / "pretrained" / name
        device = "cpu" if self.device is None else self.device
        run.parent.mkdir(parents=True, exist_ok=True)
        busy = f"another process trains {run}"
        with awaited_lock(run.with_name(f".{name}.lock"), busy, waiting=lambda: say(f"waiting: {busy}")):
            return pretrain(store, run, config, model=shape, dev=dev, device=device).model

    def _words(self, arm: str, models: list[Path], measure: Measure) -> tuple[float, list[float], Mapping[str, float]]:
        plan, length = self.plan, self.plan.training(self.plan.sources(arm)[0]).max_seq_length
        classes = [network_class(plan.shape(source), plan.training(source)) for source in plan.sources(arm)]
        networks = [cls.from_pretrained(path).eval() for cls, path in zip(classes, models, strict=True)]
        found = hidden_word_scores(networks, self.shared.store("dev"), length, measure.examples)
        values, words = found[measure.metric], found["words"]
        draws = bootstrap_draws(len(words))
        drawn = [float(values[draw].sum() / words[draw].sum()) for draw in draws]
        more = {name: float(found[name].sum() / words.sum()) for name in ("accuracy", "loss")}
        return more[measure.metric], drawn, more

    def _task(
        self, arm: str, seed: int, name: str, models: list[Path]
    ) -> tuple[float, list[float], Mapping[str, float]]:
        measure, features = self.plan.measures[name], self.plan.arms[arm].features
        assert measure.data is not None
        if measure.data in MADE:
            task, data = self.shared.pairs(measure.data), self.shared.pairs_folder(measure.data)
        else:
            assert measure.task is not None
            data = self.data / measure.data
            task = task_of(measure.task, data)
        # No restarts: every arm has the same seeds, also where one learns nothing.
        config = FinetuneConfig(**{"restarts": 0, **measure.settings, "seed": seed, "baseline": False})
        if features is not None:
            scored, weights = score_features(models, task, data, features, config)
            return scored.scores[task.main_metric], scored.bootstrap or [], weights
        run = FinetuneFolder(self.folder / "arms" / arm / f"seed-{seed}" / name)
        result = finetune(
            task, data, models[0], run.path, config, resume=True, device=self.device, cache=None, how_to_resume=RESUME
        )
        file = run.seed(result.chosen_seed) / BOOTSTRAP
        drawn = read_json(file, list[float]) if file.exists() else []
        return result.scores[task.main_metric], drawn, {k: v for k, v in result.scores.items() if np.isfinite(v)}


def _curve(run: Path) -> Iterator[dict[str, float]]:
    """Steps and scores of each evaluation on held-out text."""
    for record in read_log(run / LOG):
        if record.get("event") == "epoch":
            yield {name: record[name] for name in ("step", *SCORES) if record.get(name) is not None}
