"""Fine-tune a BERT on a task: data report, seeds, baseline, and a run folder that says how good the model is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bertkit.checkpoints.huggingface import config_path
from bertkit.config import BertConfig
from bertkit.console import clock, say
from bertkit.errors import CheckpointError, MissingExtraError
from bertkit.files import write_atomically
from bertkit.sources import resolve
from bertkit.tasks import TextTask, get_task
from bertkit.tasks.baseline import tfidf_baseline
from bertkit.tokenization import BertTokenizer
from bertkit.training.card import model_card
from bertkit.training.data import TaskData, encode, read_rows
from bertkit.training.fit import Fit, fit_classifier, new_classifier
from bertkit.training.frozen import cache_folder
from bertkit.training.generators import seeded
from bertkit.training.interrupts import Interrupted
from bertkit.training.predictions import prediction_rows, to_jsonl, with_examples
from bertkit.training.protocol import model_hash, protocol_block
from bertkit.training.results import FinetuneResult, SeedResult, choose_seed, notes_on, summarize
from bertkit.training.runfolder import METRICS, SETTINGS, FinetuneFolder, RunLog, read_json, read_log, write_json
from bertkit.training.scoring import predict_logits, score_logits
from bertkit.training.settings import FinetuneConfig


@dataclass(frozen=True, slots=True)
class Job:
    """All that the seeds of one run share."""

    task: TextTask
    data: TaskData
    config: FinetuneConfig
    run: FinetuneFolder
    start: Path
    tokenizer: BertTokenizer
    identity: dict[str, Any]
    device: str | None
    cache: Path | None


def finetune(
    task: str | TextTask,
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
    """Fine-tune, evaluate, compare, and leave a run folder (see :mod:`bertkit.training.runfolder`).

    Args:
        task: a name (``cola sst2 mrpc stsb qqp rte wnli qnli imdb tweets``) or a task, for example from
            :func:`bertkit.tasks.csv_task`.
        data: the task's folder, a folder that contains it, or a training file.
        model: start checkpoint: a folder, a safetensors file, or a name on the Hub.
        out: the run folder; new, or with ``resume=True`` that of an unfinished run.
        config: settings; None means all defaults.
        resume: go on where the run in ``out`` stopped. Settings and data must be the same. A finished run is
            returned as it is.
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
    task = get_task(task) if isinstance(task, str) else task
    config = config or FinetuneConfig()
    run = FinetuneFolder(out)
    start = resolve(model, revision=revision)
    with run.claimed():
        sha256 = model_hash(start)
        settings = {
            "task": task.to_dict(),
            "data": str(data),
            "model": str(model),
            "revision": revision,
            "model_sha256": sha256,
            "config": config.model_dump(),
        }
        run.check(settings, resume=resume)
        if run.is_finished:
            say(f"{run.path} is finished; nothing to do")
            return FinetuneResult.from_dict(run.path, read_json(run.path / METRICS))
        job = _prepare(task, data, config, run, start, sha256, device, cache)
        run.begin(settings)
        seeds = [_run_seed(job, seed, resume=resume) for seed in range(config.seed, config.seed + config.seeds)]
        return _finish(job, seeds, str(model), sha256)


def load_run_config(run: str | Path) -> FinetuneConfig:
    """The settings of the run in a folder, for ``finetune(..., resume=True)`` without repeating them.

    Raises:
        CheckpointError: the folder holds no run.
    """
    return FinetuneConfig(**read_json(Path(run) / SETTINGS)["config"])


def _prepare(
    task: TextTask,
    data: str | Path,
    config: FinetuneConfig,
    run: FinetuneFolder,
    start: Path,
    sha256: str,
    device: str | None,
    cache: str | Path | None,
) -> Job:
    """Read, encode and report the data; make every choice that the settings left open."""
    rows = read_rows(task, data, config)
    shape = BertConfig.from_json_file(config_path(start))
    config = config.resolved(task=task.name, model=shape, num_train_rows=len(rows.train))
    assert config.max_length is not None
    tokenizer = BertTokenizer.from_pretrained(start if start.is_dir() else start.parent)
    encoded = encode(rows, task, tokenizer, config.max_length)
    say(encoded.report.render())
    if rows.num_before_cut > len(rows.train):
        say(f"  training on {len(rows.train):,} of {rows.num_before_cut:,} rows (max_train_rows)")
    say(
        f"fine-tuning {shape.num_hidden_layers} x {shape.hidden_size} BERT ({start.name}): epochs {config.epochs}, "
        f"learning rate {config.learning_rate:g}, batch {config.batch_size * config.accumulation}, "
        f"{config.seeds} seed{'s' if config.seeds > 1 else ''}" + (", encoder frozen" if config.freeze_encoder else "")
    )
    identity = {
        "config": config.model_dump(exclude={"seed", "seeds", "baseline", "checkpoint_every_s"}),
        "task": task.name,
        "model_sha256": sha256,
        "data_sha256": rows.sha256,
    }
    folder = None if cache is None else cache_folder() if cache == "auto" else Path(cache)
    return Job(task, encoded, config, run, start, tokenizer, identity, device, folder)


def _run_seed(job: Job, seed: int, *, resume: bool) -> SeedResult:
    """One run, or its result where it is already finished."""
    folder = job.run.seed(seed)
    if (folder / METRICS).exists():
        return SeedResult(**read_json(folder / METRICS))
    with seeded(seed):
        model = new_classifier(job.start, job.task, seed=seed, device=job.device)
        label = "fine-tuning" if job.config.seeds == 1 else f"seed {seed}"
        with _log(folder) as log:
            fit = fit_classifier(
                model,
                job.task,
                job.data.train,
                job.data.dev,
                job.config,
                seed=seed,
                folder=job.run.checkpoints(seed),
                log=log,
                on_resume=log.drop_after,
                identity=job.identity,
                cache=job.cache,
                resume=resume,
                label=label,
            )
    result = _save_seed(job, seed, fit)
    say(f"{label}: dev {job.task.main_metric} {result.scores[job.task.main_metric]:.4f} in {clock(result.seconds)}")
    return result


@contextmanager
def _log(folder: Path) -> Iterator[RunLog]:
    log = RunLog(folder / "log.jsonl")
    try:
        yield log
    finally:
        log.close()


def _save_seed(job: Job, seed: int, fit: Fit) -> SeedResult:
    """Write models, predictions and scores of a finished seed; ``metrics.json`` last, then the state is not needed."""
    folder, dev = job.run.seed(seed), job.data.dev
    assert dev.labels is not None
    model, at = fit.model, fit.progression
    logits = predict_logits(model, dev, label="scoring dev")
    scores = score_logits(job.task, logits, dev.labels)
    rows = prediction_rows(logits, model.config, dev.truncated)
    lines = with_examples(rows, job.data.rows.dev, job.task.id2label)
    write_atomically(folder / "predictions-dev.jsonl", to_jsonl(lines))
    _save_model(model, job.tokenizer, folder / "best")
    if fit.last_weights is not None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in fit.last_weights:
                    parameter.copy_(fit.last_weights[name])
        _save_model(model, job.tokenizer, folder / "last")
    last = {name.removeprefix("dev_"): value for name, value in at.epochs[-1].items() if name.startswith("dev_")}
    best = next(epoch["epoch"] for epoch in at.epochs if epoch["step"] == at.best_step)
    result = SeedResult(
        seed=seed,
        scores=scores,
        last_scores=last,
        best_epoch=best,
        epochs=at.epochs[-1]["epoch"],
        stopped_early=at.stopped_early,
        train_loss=at.epochs[-1]["train_loss"],
        label_entropy=fit.label_entropy,
        dead=fit.dead,
        seconds=round(at.seconds, 2),
    )
    write_json(folder / METRICS, asdict(result))
    job.run.drop_checkpoints(seed)
    return result


def _save_model(model: Any, tokenizer: BertTokenizer, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _finish(job: Job, seeds: list[SeedResult], model: str, sha256: str) -> FinetuneResult:
    """Baseline, mean and sd, the chosen model at the top of the folder, pictures and card; ``metrics.json`` last."""
    task, config, data = job.task, job.config, job.data
    assert config.max_length is not None
    baseline = tfidf_baseline(data.rows.train, data.rows.dev, task) if config.baseline else None
    mean, sd = summarize(seeds)
    chosen = choose_seed(seeds, task.main_metric)
    protocol = protocol_block(
        task,
        config,
        start={"name": _public_name(model), "sha256": sha256},
        data=data.facts(config.max_length),
        seeds=[seed.seed for seed in seeds],
        device=job.device,
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
        notes=tuple([*task.notes, *notes_on(seeds, task.main_metric, baseline)]),
    )
    job.run.publish(chosen.seed)
    pictures = _draw(job.run.path, task)
    write_atomically(job.run.path / "README.md", model_card(result, task.id2label, pictures))
    write_json(job.run.path / METRICS, result.to_dict())
    return result


def _public_name(model: str) -> str:
    """A Hub name as it is; of a path the last two parts, which name the model but not its owner's folders."""
    path = Path(model).expanduser()
    return "/".join(path.resolve().parts[-2:]).removeprefix("/") if path.exists() else model


def _draw(run: Path, task: TextTask) -> tuple[str, ...]:
    """Loss curve and confusion matrix; says so where matplotlib is missing."""
    from bertkit import visualize

    try:
        visualize.loss_curve(read_log(run / "log.jsonl"), run / "loss.png", metric=task.main_metric)
        if task.labels is None:
            visualize.regression(read_log(run / "predictions-dev.jsonl"), run / "scores.png")
            return ("loss.png", "scores.png")
        visualize.confusion_of_rows(read_log(run / "predictions-dev.jsonl"), task.labels, run / "confusion.png")
    except MissingExtraError as error:
        say(f"no pictures: {error}")
        return ()
    return ("loss.png", "confusion.png")


__all__ = ["CheckpointError", "FinetuneConfig", "FinetuneResult", "Interrupted", "finetune", "load_run_config"]
