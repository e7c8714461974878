"""Fine-tune a BERT on a task: data report, seeds, baseline, and a run folder that says how good the model is."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import cast

import numpy as np

from bertkit.checkpoints.fit import own_pooling
from bertkit.config.any_config import AnyConfig, is_encoder_decoder
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.decision import read_decision
from bertkit.errors import ConfigError, DataError, MissingExtraError, counted
from bertkit.habit_table import says_what_it_needs
from bertkit.inference.protocol import model_hash
from bertkit.inference.run_files import BOOTSTRAP, METRICS, SETTINGS, RunSettings
from bertkit.metrics.intervals import bootstrap_means
from bertkit.system.atomic_files import sha256_file, write_atomically
from bertkit.system.console import say
from bertkit.system.device import Device, find_device
from bertkit.system.json_files import parsed, printable, read_json, write_json
from bertkit.system.memory import memory_guard
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.system.task_engines import Tasks
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Example
from bertkit.tasks.reading.given_rows import Data, Given, given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES
from bertkit.tasks.registry import Task, task_from_dict, task_to_dict
from bertkit.tasks.run_rows import TRAINED_ON, read_rows, sets_of, text_hashes
from bertkit.tasks.workflow import AnyWorkflow, workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.training.finetuning.feature_cache import cache_folder
from bertkit.training.finetuning.few_shot import advice_on, check_few_shot
from bertkit.training.finetuning.few_shot_selection import Selection, select_method
from bertkit.training.finetuning.finetune_folder import EXAMPLES, PARTS, FinetuneFolder
from bertkit.training.finetuning.finetune_request import chosen, trackers_of
from bertkit.training.finetuning.finetune_results import FinetuneResult, SeedResult, choose_seed, notes_on, summarize
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.hyperparameter_search import SEARCHED, Search, given_names, search, space_of
from bertkit.training.finetuning.memory_estimate import memory_line
from bertkit.training.finetuning.model_card import model_card
from bertkit.training.finetuning.run_tasks import run_seeds, tasks_of
from bertkit.training.finetuning.seed_run import (
    Job,
    StartModel,
    adapters_of,
    encode,
    protocol_block,
    settings_of_seed,
)
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.precision import fastest_precision, plain_precision
from bertkit.training.trainer.run_folder import LOG, RunFolder, read_log

#: What to do when memory runs out while training.
MEMORY_ADVICE = (
    "Use a smaller --max-tokens (only rounding and dropout differ), a smaller --max-length (longer texts are cut), "
    "a smaller model, --lora, or --freeze-encoder"
)


@says_what_it_needs('finetune("csv", data=table, model="bertkit-tiny-en", out="run")', "settings")
def finetune(
    task: str | Task,
    data: Data,
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    dev: Data | None = None,
    resume: bool = False,
    device: Device = None,
    revision: str | None = None,
    cache: str | Path | None = "auto",
    callbacks: Sequence[Callback] = (),
    how_to_resume: str = FinetuneFolder.how_to_resume,
    workflow_for: Callable[[Task], AnyWorkflow] = workflow_of,
    added: Mapping[str, Json] | None = None,
    **options: object,
) -> FinetuneResult:
    """Fine-tune, evaluate, compare, and leave a run folder (see :mod:`bertkit.training.finetuning.finetune_folder`).

    ``finetune("csv", data="f.csv", text="body", label="stars", model=..., out=..., epochs=3)`` is the command ``bertkit
    finetune csv --data f.csv --text body --label stars --model ... --out ... --epochs 3``.

    Args:
        task: a name, see :func:`bertkit.tasks.task_of`, or a task, for example from :func:`bertkit.tasks.csv_task`.
        data: the task's folder, a folder that contains it, or a training file; or rows in memory, with the columns
            that a file has: a DataFrame of pandas or polars, a pyarrow.Table, a datasets.Dataset, a list of dicts, a
            dict of lists; or such data by split, ``{"train": ..., "dev": ...}``. Messages count rows in memory from 0.
        model: start checkpoint: a folder, a safetensors file, or a name on the Hub.
        out: the run folder; new, or with ``resume=True`` that of an earlier run.
        config: settings; None means all defaults.
        dev: data to evaluate on, where ``data`` is for training alone.
        resume: continue the run in ``out``. Settings and data must be the same, except that ``compile`` may change, and
            ``seeds`` may be any number from those that are finished on; the missing ones are trained, as if all had
            been asked for from the start. A run that has all its seeds is returned unchanged.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        revision: branch, tag or commit of a Hub checkpoint.
        cache: folder for the features of a frozen encoder; ``"auto"`` is the user's cache folder, None computes anew.
        callbacks: called during the training of each seed, see :mod:`bertkit.training.trainer.callbacks`.
        how_to_resume: advice at the end of the message when a run is stopped; a sentence without its full stop.
        workflow_for: makes the workflow of the task, which may add something to that of its kind, such as a teacher.
        added: what it adds, in plain values; a resumed run must agree.
        options: settings by name, which take precedence over those of ``config``; and how the data of a task that is
            given by its name is read, as on the command line: ``text=``, ``label=`` ...

    Returns:
        Scores with their protocol; ``result.render()`` is the text for people.

    Raises:
        DataError, CheckpointError, ConfigError: the data, the checkpoint or the settings are wrong; nothing was
            trained.
        TrainingError: a loss that is not finite; see the message for the batch.
        Interrupted: Ctrl-C or SIGTERM while training, after saving; call again with ``resume=True``.
        ResourceError: no room on the disk or in memory; what was saved before is intact.
    """
    place = str(find_device(device, "cpu"))
    data = given_data(data, dev, SPLIT_NAMES)
    config, task = chosen(task, data, config or FinetuneConfig(), options)
    run = FinetuneFolder(out)
    run.how_to_resume = how_to_resume
    start = StartModel(resolve(model, revision=revision), str(model), revision)
    with run.claimed(), memory_guard(MEMORY_ADVICE):
        config = with_precision(config, start.path, run, place)
        settings = _identity(task, data, start, config, added)
        callbacks = [*callbacks, *trackers_of(config)]
        free = _may_change(config, run)
        run.check(settings, resume=resume, free={*free, EXAMPLES})
        finished = run.finished_with(config.seeds)
        if finished is not None and not isinstance(data, Given):
            return _nothing_to_do(run, finished, config)
        identity: dict[str, Json] = {"task": task.name}
        identity |= {name: settings[name] for name in ("model_sha256", "added") if name in settings}
        with tasks_of(config, run, start, place) as tasks:
            job = _prepare(workflow_for(task), data, start, config, run, place)
            job = replace(job, identity=identity | job.identity, cache=_folder(cache), callbacks=callbacks)
            run.check(settings | {EXAMPLES: job.data.rows.hashes}, resume=resume, free=free)
            if finished is not None:  # with the same rows, which no name could say
                return _nothing_to_do(run, finished, config)
            run.begin(settings | {EXAMPLES: job.data.rows.hashes})
            return _train(job.prepared(), config, tasks, resume=resume)


def _may_change(config: FinetuneConfig, run: FinetuneFolder) -> set[str]:
    """The settings that a resumed run may change."""
    free = {"keep", "tensorboard", "mlflow", "engine", "compile"}
    free |= {"seeds"} if config.seeds >= run.fewest_seeds else set()
    return free if config.search else {*free, "workers"}


def _folder(cache: str | Path | None) -> Path | None:
    return None if cache is None else cache_folder() if cache == "auto" else Path(cache)


def _train(job: Job, config: FinetuneConfig, tasks: Tasks, *, resume: bool) -> FinetuneResult:
    """What the settings leave open is chosen by trying, then the seeds run."""
    job, selection = select_method(job) if config.few_shot else (job, None)
    found = None
    if space := space_of(config, job.config):
        found = search(job, space, config.search, tasks, resume=resume)
        job = job.with_config(job.config.model_copy(update=found.chosen))
    result = _finish(job, *run_seeds(job, tasks, resume=resume), found, selection)
    shutil.rmtree(job.run.path / PARTS, ignore_errors=True)
    return result


def _nothing_to_do(run: FinetuneFolder, finished: FinetuneResult, config: FinetuneConfig) -> FinetuneResult:
    say(f"{printable(run.path)} is finished; nothing to do")
    if config.keep == "best" and "keep" in config.model_fields_set:
        run.keep_best((*finished.seeds, *finished.replaced), finished.chosen_seed)
    return finished


def _hash_of(file: str) -> str:
    if not (path := user_path(file)).is_file():
        raise DataError(f"unlabelled={file!r} is not a file; give one with a text in each line, or a table")
    return sha256_file(path)


def with_precision(config: FinetuneConfig, start: Path, run: RunFolder, device: str) -> FinetuneConfig:
    """With the number format that the run began with, on another processor too; for a new one the fastest."""
    if config.precision is not None:
        return config
    # 16 bits were compared with fp32 for encoders alone, trained as a whole.
    other = config.freeze_encoder or config.lora or config.few_shot or is_encoder_decoder(config_path(start))
    precision = run.precision or (plain_precision if other else fastest_precision)(device)
    return config.model_copy(update={"precision": precision})


def _identity(
    task: Task, data: str | Path, start: StartModel, config: FinetuneConfig, added: Mapping[str, Json] | None
) -> dict[str, Json]:
    return {
        "task": task_to_dict(task),
        "data": printable(data),
        "model": printable(start.name),
        "revision": start.revision,
        "model_sha256": model_hash(start.path),
        "config": config.model_dump() | ({"workers": None} if config.workers == 1 else {}),
        **({} if config.search is None else {"given": given_names(config)}),
        **({} if config.unlabelled is None else {"unlabelled_sha256": _hash_of(config.unlabelled)}),
        **({"added": dict(added)} if added else {}),
    }


def load_run_config(run: str | Path) -> FinetuneConfig:
    """The settings of the run in a folder, for ``finetune(..., resume=True)`` without repeating them."""
    path, defaults = Path(run) / SETTINGS, FinetuneConfig().model_dump()
    saved = read_json(path, RunSettings)
    free = (SEARCHED.keys() - set(saved.given)) | {"keep"}
    values = {name: value for name, value in saved.config.items() if name not in free or value != defaults.get(name)}
    if "pooling" not in saved.config and "pooling" in workflow_of(task_from_dict(saved.task)).shared_settings:
        values["pooling"] = "cls"  # a run of the first release, which had no other, whatever the checkpoint says
    return parsed(values, FinetuneConfig, str(path))


def pooled_for_few_labels(config: FinetuneConfig, start: Path) -> FinetuneConfig:
    """With the mean of the tokens for few labels, unless the settings or the start checkpoint say something else."""
    if config.few_shot and config.pooling is None and own_pooling(checkpoint_folder(start)) is None:
        return config.model_copy(update={"pooling": "mean"})
    return config


def resolved(workflow: AnyWorkflow, shape: AnyConfig, config: FinetuneConfig, num_rows: int) -> FinetuneConfig:
    """The settings for a kind of task and a model of this shape, with nothing left open."""
    longest, kind = workflow.default_max_length, workflow.network(shape).kind
    return config.resolved(model=shape, num_train_rows=num_rows, longest=longest, head=kind)


def _prepare(
    workflow: AnyWorkflow, data: str | Path, start: StartModel, config: FinetuneConfig, run: FinetuneFolder, device: str
) -> Job:
    """Read, encode and report the data; make every choice that the settings left open."""
    workflow.check_settings(config)
    check_few_shot(workflow, config, encoder=not is_encoder_decoder(config_path(start.path)))
    config = workflow.settings_for(checkpoint_folder(start.path), config)
    config = pooled_for_few_labels(config, start.path)
    rows = read_rows(workflow, data, config, cross_validated=config.few_shot)
    if rows.cross_validated and config.seeds > 1:
        raise ConfigError(
            f"seeds={config.seeds} with few_shot needs a dev file: without one the score comes from "
            "cross-validation with a single seed. Leave seeds out, or add a dev file"
        )
    if rows.cross_validated and config.dev_share != FinetuneConfig.model_fields["dev_share"].default:
        raise ConfigError(
            f"dev_share={config.dev_share} cannot be combined with few_shot, which holds no rows out: without a dev "
            "file all are trained on, and the score comes from cross-validation. Leave dev_share out, or add a dev file"
        )
    shape = workflow.start_shape(start.path, config)
    adapters = ""
    if config.lora is not None:  # told before the texts are encoded, as is what is wrong with their targets
        adapters = adapters_of(start.load(workflow, config, seed=config.seed, device=None), config)
    if run.is_of_first_release:  # which never stopped early unless told to
        config = config.model_copy(update={"patience": config.patience or 0})
    tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start.path))
    encoded = encode(rows, workflow, tokenizer, resolved(workflow, shape, config, len(rows.train)), data)
    config = resolved(workflow, shape, config, len(encoded.train))
    say(encoded.report.render())
    if rows.num_before_cut > len(rows.train):
        say(f"  training on {len(rows.train):,} of {rows.num_before_cut:,} rows (max_train_rows)")
    if advice := advice_on(workflow, cast("Sequence[Example]", rows.train), config):
        say(advice)
    family = "BERT" if isinstance(shape, BertConfig) else "encoder-decoder"
    say(
        f"fine-tuning {shape.num_hidden_layers} x {shape.hidden_size} {family} ({printable(start.name)}): "
        f"{f'epochs {config.epochs}' if config.max_steps is None else f'steps {config.max_steps}'}, "
        f"learning rate {config.learning_rate:g}, "
        f"batch {config.batch_size * config.accumulation}, "
        f"{counted(config.seeds, 'seed')}, "
        + ("encoder frozen" if config.freeze_encoder else str(config.precision))
        + (f", {adapters}" if adapters else "")
    )
    if isinstance(shape, BertConfig) and (line := memory_line(shape, encoded.train.lengths.tolist(), config, device)):
        say(line)
    identity: dict[str, Json] = {"config": settings_of_seed(config), "data_sha256": rows.sha256}
    return Job(workflow, encoded, config, run, start, tokenizer, identity, device, None, adapters=adapters)


def _elsewhere(shape: AnyConfig) -> list[str]:
    """Why other software does not read the model, and how to make one that it reads; nothing where it does."""
    if not (isinstance(shape, BertConfig) and shape.differs_elsewhere):
        return []
    if shape.attention_direction == "right-to-left":
        return ["READ BY BERTKIT ALONE: no other software has an encoder that attends to the right only"]
    known = " or ".join(shape.family.poolings)
    return [
        f"READ BY BERTKIT ALONE: transformers has no classifier on the {shape.pooling} of the tokens and refuses this "
        f"folder; a run with pooling={known!r} (--pooling {known}) is read there, with equal outputs"
    ]


def _finish(
    job: Job, seeds: list[SeedResult], replaced: list[SeedResult], found: Search | None, selection: Selection | None
) -> FinetuneResult:
    """Baseline, mean and sd, the chosen model at the top of the folder, pictures and card; ``metrics.json`` last."""
    workflow, config, rows, run = job.workflow, job.config, job.data.rows, job.run
    task: Task = workflow.task
    baseline = workflow.baseline(rows.train, rows.dev) if config.baseline and not rows.cross_validated else None
    mean, sd, median = summarize(seeds)
    chosen = choose_seed(seeds, task.main_metric)
    decision = read_decision(run.seed(chosen.seed) / "best")
    samples = [run.seed(seed.seed) / BOOTSTRAP for seed in seeds]
    interval = None  # of the mean main metric over dev examples and seeds, for kinds of task that have one
    if all(file.exists() for file in samples):
        drawn = bootstrap_means([read_json(file, list[float]) for file in samples])
        interval = sets_of(workflow, rows.dev).interval(drawn, workflow.row_bounds())
    result = FinetuneResult(
        folder=run.path,
        task=task.name,
        main_metric=task.main_metric,
        scores=chosen.scores,
        seeds=tuple(seeds),
        chosen_seed=chosen.seed,
        baseline=baseline,
        protocol=protocol_block(
            job,
            [seed.seed for seed in seeds],
            None if found is None else asdict(found),
            None if selection is None else asdict(selection),
        ),
        notes=(
            *task.notes,
            *(() if selection is None else selection.notes()),
            *workflow.notes_on(decision),
            *notes_on(seeds, task.main_metric, baseline, replaced),
            *_elsewhere(workflow.start_shape(job.start.path, config)),
        ),
        interval=interval,
        said=task.notes,
        replaced=tuple(replaced),
        mean=mean,
        sd=sd,
        median=median,
    )
    run.publish(chosen.seed)
    pictures: tuple[str, ...] = ()
    try:
        from bertkit.visualize.figures import save_figure
        from bertkit.visualize.training_pictures import loss_curve

        curve = loss_curve(list(read_log(run.path / LOG)), metric=task.main_metric)
        figures = {"loss": curve, **workflow.draw(run.path)}
        pictures = tuple(save_figure(figure, run.path / f"{name}.png").name for name, figure in figures.items())
    except MissingExtraError as error:
        say(f"no plots: {error}")
    np.save(kept := BytesIO(), np.unique(text_hashes(workflow, rows.train)))
    write_atomically(run.path / TRAINED_ON, kept.getvalue())
    write_atomically(run.path / "README.md", model_card(result, workflow.card(), decision, pictures))
    write_json(run.path / METRICS, result.to_dict())
    return result
