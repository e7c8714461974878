"""Fine-tune a BERT on a task: data report, seeds, baseline, and a run folder that says how good the model is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from bertkit.errors import CheckpointError, MissingExtraError
from bertkit.inference.protocol import model_hash
from bertkit.inference.run_files import BOOTSTRAP, METRICS, SETTINGS, RunSettings
from bertkit.metrics.intervals import bootstrap_means, interval_of
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say
from bertkit.system.interrupts import Interrupted
from bertkit.system.json_files import parsed, read_json, write_json
from bertkit.system.model_sources import resolve
from bertkit.tasks import task_of
from bertkit.tasks.decision_file import read_decision
from bertkit.tasks.registry import Task, task_to_dict
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.workflow import AnyWorkflow, workflow_of
from bertkit.tokenization import AutoTokenizer
from bertkit.training.finetuning.finetune_folder import EXAMPLES, FinetuneFolder
from bertkit.training.finetuning.finetune_results import (
    FinetuneResult,
    SeedResult,
    choose_seed,
    medians,
    notes_on,
    summarize,
)
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.frozen_encoder import cache_folder
from bertkit.training.finetuning.hyperparameter_search import SEARCHED, Search, given_names, search, space_of
from bertkit.training.finetuning.model_card import model_card
from bertkit.training.finetuning.protocol_block import protocol_block
from bertkit.training.finetuning.seed_run import Job, run_seed, settings_of_seed
from bertkit.training.finetuning.task_data import encode
from bertkit.training.trainer.run_log import LOG, read_log


def finetune(
    task: str | Task,
    data: str | Path,
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    resume: bool = False,
    device: str | None = None,
    revision: str | None = None,
    cache: str | Path | None = "auto",
) -> FinetuneResult:
    """Fine-tune, evaluate, compare, and leave a run folder (see :mod:`bertkit.training.trainer.run_folder`).

    Args:
        task: a name, see :func:`bertkit.tasks.task_of`, or a task, for example from :func:`bertkit.tasks.csv_task`.
        data: the task's folder, a folder that contains it, or a training file.
        model: start checkpoint: a folder, a safetensors file, or a name on the Hub.
        out: the run folder; new, or with ``resume=True`` that of an unfinished run.
        config: settings; None means all defaults.
        resume: go on where the run in ``out`` stopped. Settings and data must be the same, but ``seeds`` may be any
            number from those that are finished: a run then trains those that it has not, as if it had been asked for
            all from the beginning. One that has all its seeds is returned as it is.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.
        cache: folder for the features of a frozen encoder; ``"auto"`` is the user's cache folder, None computes anew.

    Returns:
        Scores with their protocol; ``result.render()`` is the text for people.

    Raises:
        DataError, CheckpointError, ConfigError: the data, the checkpoint or the settings are wrong; nothing was
            trained.
        TrainingError: a loss that is not finite; see the message for the batch.
        Interrupted: Ctrl-C or SIGTERM while training, after saving; call again with ``resume=True``.
        ResourceError: the disk is full; what was saved before is intact.
    """
    task = task_of(task, data) if isinstance(task, str) else task
    config, workflow = config or FinetuneConfig(), workflow_of(task)
    run = FinetuneFolder(out)
    start = resolve(model, revision=revision)
    with run.claimed():
        sha256 = model_hash(start)
        settings = {
            "task": task_to_dict(task),
            "data": str(data),
            "model": str(model),
            "revision": revision,
            "model_sha256": sha256,
            "config": config.model_dump(),
            **({} if config.search is None else {"given": given_names(config)}),
        }
        free = {"seeds"} if config.seeds >= run.fewest_seeds else set()
        run.check(settings, resume=resume, free={*free, EXAMPLES})
        if run.is_finished and len((finished := run.result()).seeds) == config.seeds:
            say(f"{run.path} is finished; nothing to do")
            return finished
        job = _prepare(workflow, data, config, run, start, sha256, device, cache)
        settings[EXAMPLES] = job.data.rows.hashes
        run.check(settings, resume=resume, free=free)
        run.begin(settings)
        space = space_of(config, job.config)
        found = search(job, space, config.search, resume=resume) if space else None
        if found is not None:
            job = job.with_config(job.config.model_copy(update=found.chosen))
        seeds, replaced = _run_seeds(job, resume=resume)
        return _finish(job, seeds, replaced, found, str(model), sha256)


def load_run_config(run: str | Path) -> FinetuneConfig:
    """The settings of the run in a folder, for ``finetune(..., resume=True)`` without repeating them.

    Raises:
        CheckpointError: the folder holds no run.
    """
    path, defaults = Path(run) / SETTINGS, FinetuneConfig().model_dump()
    told = read_json(path, RunSettings)
    free = SEARCHED.keys() - set(told.given)
    values = {name: value for name, value in told.config.items() if name not in free or value != defaults.get(name)}
    return parsed(values, FinetuneConfig, str(path))


def _prepare(
    workflow: AnyWorkflow,
    data: str | Path,
    config: FinetuneConfig,
    run: FinetuneFolder,
    start: Path,
    sha256: str,
    device: str | None,
    cache: str | Path | None,
) -> Job:
    """Read, encode and report the data; make every choice that the settings left open."""
    workflow.check_settings(config)
    rows = read_rows(workflow, data, config)
    shape = workflow.start_shape(start, config)

    def resolved(num_rows: int) -> FinetuneConfig:
        longest = workflow.default_max_length
        kind = workflow.model_class.kind
        return config.resolved(
            task=workflow.task.name, model=shape, num_train_rows=num_rows, longest=longest, head=kind
        )

    tokenizer = AutoTokenizer.from_pretrained(start if start.is_dir() else start.parent)
    encoded = encode(rows, workflow, tokenizer, resolved(len(rows.train)))
    config = resolved(len(encoded.train))
    say(encoded.report.render())
    if rows.num_before_cut > len(rows.train):
        say(f"  training on {len(rows.train):,} of {rows.num_before_cut:,} rows (max_train_rows)")
    say(
        f"fine-tuning {shape.num_hidden_layers} x {shape.hidden_size} BERT ({start.name}): epochs {config.epochs}, "
        f"learning rate {config.learning_rate:g}, batch {config.batch_size * config.accumulation}, "
        f"{config.seeds} seed{'s' if config.seeds > 1 else ''}" + (", encoder frozen" if config.freeze_encoder else "")
    )
    identity = {
        "config": settings_of_seed(config),
        "task": workflow.task.name,
        "model_sha256": sha256,
        "data_sha256": rows.sha256,
    }
    folder = None if cache is None else cache_folder() if cache == "auto" else Path(cache)
    return Job(workflow, encoded, config, run, start, tokenizer, identity, device, folder)


def _run_seeds(job: Job, *, resume: bool) -> tuple[list[SeedResult], list[SeedResult]]:
    """The results of the seeds, and of the dead ones whose place the next seed took."""
    config = job.config
    replaced: list[SeedResult] = []
    # A head alone on fixed features has one minimum, or is small: where it learns nothing, no other seed will.
    allowed = 0 if config.freeze_encoder else config.restarts
    following = config.seed + config.seeds
    seeds = []
    for seed in range(config.seed, following):
        result = run_seed(job, seed, resume=resume, replaceable=len(replaced) < allowed)
        while result.dead and len(replaced) < allowed:
            say(f"seed {result.seed} learned nothing: starting again with seed {following}")
            replaced.append(result)
            result = run_seed(job, following, resume=resume, replaceable=len(replaced) < allowed)
            following += 1
        seeds.append(result)
    return seeds, replaced


def _finish(
    job: Job, seeds: list[SeedResult], replaced: list[SeedResult], found: Search | None, model: str, sha256: str
) -> FinetuneResult:
    """Baseline, mean and sd, the chosen model at the top of the folder, pictures and card; ``metrics.json`` last."""
    workflow, config, rows = job.workflow, job.config, job.data.rows
    task: Task = workflow.task
    assert config.max_length is not None
    baseline = workflow.baseline(rows.train, rows.dev, config.seed) if config.baseline else None
    mean, sd = summarize(seeds)
    chosen = choose_seed(seeds, task.main_metric)
    tuned = workflow.notes_on(read_decision(job.run.seed(chosen.seed) / "best"))
    protocol = protocol_block(
        task,
        config,
        start={"name": _public_name(model), "sha256": sha256},
        data=job.data.facts(config.max_length),
        seeds=[seed.seed for seed in seeds],
        device=job.device,
        facts=workflow.facts(config),
        reads_vectors=workflow.reads_vectors,
        search=None if found is None else asdict(found),
    )
    result = FinetuneResult(
        folder=job.run.path,
        task=task.name,
        main_metric=task.main_metric,
        scores=chosen.scores,
        mean=mean,
        sd=sd,
        seeds=tuple(seeds),
        chosen_seed=chosen.seed,
        baseline=baseline,
        protocol=protocol,
        notes=(*task.notes, *tuned, *notes_on(seeds, task.main_metric, baseline, replaced)),
        median=medians(seeds),
        interval=_interval(job, seeds),
        replaced=tuple(replaced),
    )
    job.run.publish(chosen.seed)
    pictures = _draw(job.run.path, workflow)
    write_atomically(job.run.path / "README.md", model_card(result, workflow.card(), pictures))
    write_json(job.run.path / METRICS, result.to_dict())
    return result


def _interval(job: Job, seeds: list[SeedResult]) -> list[float] | None:
    """Of the mean main metric over dev examples and seeds; None where the kind of task tells none."""
    files = [job.run.seed(seed.seed) / BOOTSTRAP for seed in seeds]
    if not all(file.exists() for file in files):
        return None
    return interval_of(bootstrap_means([read_json(file, list[float]) for file in files]))


def _public_name(model: str) -> str:
    """A Hub name as it is; of a path the last two parts, which name the model but not its owner's folders."""
    path = Path(model).expanduser()
    return "/".join(path.resolve().parts[-2:]).removeprefix("/") if path.exists() else model


def _draw(run: Path, workflow: AnyWorkflow) -> tuple[str, ...]:
    """Loss curve and the pictures of the kind of task; says so where matplotlib is missing."""
    from bertkit.visualize import pictures as visualize

    try:
        visualize.loss_curve(list(read_log(run / LOG)), run / "loss.png", metric=workflow.task.main_metric)
        return ("loss.png", *workflow.draw(run))
    except MissingExtraError as error:
        say(f"no pictures: {error}")
        return ()


__all__ = ["CheckpointError", "FinetuneConfig", "FinetuneResult", "Interrupted", "finetune", "load_run_config"]
