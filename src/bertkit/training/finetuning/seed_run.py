"""One seed of a fine-tuning run: train, score, write what is kept; and the protocol of all seeds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import counted
from bertkit.inference.protocol import short_name, versions
from bertkit.inference.run_files import BOOTSTRAP, METRICS
from bertkit.model.adapters import add_adapters
from bertkit.model.text_comparison import TextComparison
from bertkit.ragged import Ragged
from bertkit.system.atomic_files import disk_guard, write_atomically
from bertkit.system.console import clock, say
from bertkit.system.device import find_device, hardware
from bertkit.system.interrupts import Interrupted
from bertkit.system.json_files import printable, write_json
from bertkit.system.model_sources import is_of_hub
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Encoded, Example
from bertkit.tasks.report import DataReport
from bertkit.tasks.run_rows import Rows, Scored, score_set
from bertkit.tasks.task_settings import uses
from bertkit.tasks.workflow import AnyWorkflow, Predicted
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.finetuning.few_shot import fit_few_labels
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_results import SeedResult
from bertkit.training.finetuning.finetune_settings import FEW_SHOT_FIELDS, LORA_FIELDS, FinetuneConfig
from bertkit.training.finetuning.fit import Dev, Fit, FitOptions, fit
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.determinism import is_repeatable
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.run_folder import CHECKPOINTS, LOG, RunLog

if TYPE_CHECKING:
    from bertkit.model.auto import AnyModel


@dataclass(frozen=True, slots=True)
class TaskData:
    """Encoded examples and the report on them; ``source`` is where they were, as the user named it.

    held_out_outputs: of rows that are cross-validated, what models that have not seen them said; None where no row
        could be left out.
    """

    rows: Rows
    train: Encoded
    dev: Encoded
    report: DataReport
    more: Mapping[str, Encoded] = field(default_factory=dict)
    source: str = ""
    held_out_outputs: Any = None

    @property
    def split(self) -> str:
        """What is scored, in words."""
        if not self.rows.cross_validated:
            return "dev"
        return "train, not held out" if self.held_out_outputs is None else "train, cross-validated"

    def facts(self, max_length: int) -> dict[str, Json]:
        """The part ``data`` of the protocol block."""
        rows, parts = self.rows, {"train": self.train, "dev": self.dev}
        files = {"train": rows.train.path, "dev": rows.dev.path}
        return {
            **{f"{split}_file": "" if path is None else printable(path.name) for split, path in files.items()},
            **({"hub_dataset": self.source.removeprefix("hub:")} if self.source.startswith("hub:") else {}),
            "dev_held_out_of_train": rows.held_out,
            **({"dev_is_train": True} if rows.cross_validated else {}),
            "train_rows": len(rows.train),
            "train_rows_not_drawn": rows.num_before_cut - len(rows.train),
            "dev_rows": len(rows.dev),
            **{f"{name}_rows": len(examples) for name, examples in rows.more.items()},
            "bad_rows_left_out": {"train": len(rows.train.bad), "dev": len(rows.dev.bad)},
            **_labels_left_out(rows),
            "max_length": max_length,
            "truncated_share": {split: round(float(part.truncated.mean()), 6) for split, part in parts.items()},
            "dev_rows_also_in_train": self.report.overlap.get("dev", 0),
            "data_sha256": rows.sha256,
        }


def _labels_left_out(rows: Rows) -> dict[str, Json]:
    found = {name: part.left_out for name, part in (("train", rows.train), ("dev", rows.dev)) if part.left_out}
    return {"labels_left_out": found} if found else {}


def encode(
    rows: Rows, workflow: AnyWorkflow, tokenizer: PreTrainedTokenizer, settings: ReadingSettings, source: str | Path
) -> TaskData:
    """Token ids of all examples, and the data report; ``source`` is where the data was."""
    splits = {"train": rows.train, "dev": rows.dev, **rows.more}
    encoded = {name: workflow.encode(part, tokenizer, settings, labelled=True) for name, part in splits.items()}
    train, dev = encoded.pop("train"), encoded.pop("dev")
    split_rows, of_splits = {"train": rows.train, "dev": rows.dev}, {"train": train, "dev": dev}
    if rows.cross_validated:
        split_rows, of_splits = {"train": rows.train}, {"train": train}
    report = workflow.report(split_rows, of_splits, settings)
    return TaskData(rows, train, dev, report, encoded, str(source))


SHORT_RUN = (
    "SHORT RUN: after {updates} the training loss is no better than the label frequencies give; more were not asked for"
)
#: Settings that the training of a single seed does not depend on.
_NOT_OF_A_SEED = {"seed", "seeds", "baseline", "checkpoint_every_s", "restarts", "worst", "search", "keep"}
_NOT_OF_A_SEED |= {"tensorboard", "mlflow", "engine", "workers", "compile"}


@dataclass(frozen=True, slots=True)
class StartModel:
    """The checkpoint that training begins with: where it is, how the user called it, and its revision on the Hub."""

    path: Path
    name: str
    revision: str | None = None

    def load(self, workflow: AnyWorkflow, config: FinetuneConfig, *, seed: int, device: str | None) -> AnyModel:
        """The model that is trained, with a new head if the task needs one, and with adapters if they are asked for."""
        made = workflow.new_model(self.path, seed=seed, device=device, settings=config)
        here = user_path(self.name)
        found_again = str(here.resolve()) if here.exists() else self.name
        if (adapters := config.adapters(found_again, self.revision)) is not None:
            add_adapters(made.sentences.encoder if isinstance(made, TextComparison) else made, adapters, seed=seed)
        model: AnyModel = made
        return model


def adapters_of(model: AnyModel, config: FinetuneConfig) -> str:
    """What is trained of a model with adapters, in words."""
    trained, whole = (
        sum(p.numel() for p in model.parameters() if p.requires_grad or not only) for only in (True, False)
    )
    targets = config.lora_targets or "all linear layers"
    return (
        f"LoRA of rank {config.lora} on {targets}, and the head: {trained:,} of {whole:,} parameters "
        f"({100 * trained / whole:.1f} %)"
    )


@dataclass(frozen=True, slots=True)
class Job:
    """All that the seeds of one run share; ``identity`` is what a checkpoint must agree with.

    adapters: what is trained beside the start checkpoint, in words; empty where it is trained itself.
    """

    workflow: AnyWorkflow
    data: TaskData
    config: FinetuneConfig
    run: FinetuneFolder
    start: StartModel
    tokenizer: PreTrainedTokenizer
    identity: dict[str, Json]
    device: str
    cache: Path | None
    callbacks: Sequence[Callback] = ()
    adapters: str = ""

    @property
    def is_short(self) -> bool:
        """Whether the seeds are too short to be called dead; see :meth:`FinetuneConfig.is_short`."""
        return self.config.is_short(len(self.data.train))

    def with_config(self, config: FinetuneConfig) -> Job:
        """The same with other settings."""
        return replace(self, config=config, identity={**self.identity, "config": settings_of_seed(config)})

    def prepared(self) -> Job:
        """The same with training rows that the start checkpoint has added to; see :meth:`Workflow.prepare_training`."""
        rows, data = self.data.rows.train, self.data.train
        try:
            train = self.workflow.prepare_training(rows, data, self.start.path, self.run.path, self.config, self.device)
        except Interrupted as stop:
            raise Interrupted(
                f"{stop} before training; what was found is kept. {self.run.how_to_resume}", stop.signum
            ) from None
        return replace(self, data=replace(self.data, train=train))

    def train(self, seed: int, options: FitOptions) -> Fit:
        """Train once: a new head, data order and dropout from ``seed``."""
        with seeded(seed):
            model = self.start.load(self.workflow, self.config, seed=seed, device=self.device)
            if options.folder is not None:
                _check_room(model, options.folder, self.config)
            rows, config = self.data.rows, self.config
            dev = None if rows.cross_validated else Dev(rows.dev, self.data.dev)
            options = replace(options, how_to_resume=self.run.how_to_resume)
            workflow, train = self.workflow, self.data.train
            if config.learns_by_vectors:
                assert isinstance(train, Ragged), "few_shot refused windows"
                given = cast("Sequence[Example]", rows.train)
                return fit_few_labels(model, workflow, given, train, dev, config, seed=seed, options=options)
            return fit(model, workflow, train, dev, config, seed=seed, options=options)


def settings_of_seed(config: FinetuneConfig) -> dict[str, Json]:
    """What the training of a single seed depends on, and a resumed one must agree with."""
    later = {name: use.as_before for name, use in uses().items() if use.as_before is not None}
    later |= {"metric_for_best": (), "max_steps": (), "deterministic": ()}
    usual = {name: field.default for name, field in FinetuneConfig.model_fields.items()}
    unset = {name for name, values in later.items() if getattr(config, name) in (usual[name], *values)}
    unset |= set() if config.few_shot else set(FEW_SHOT_FIELDS)
    unset |= set(LORA_FIELDS) if config.lora is None else set()
    return config.model_dump(exclude=_NOT_OF_A_SEED | unset)


def _check_room(model: AnyModel, folder: Path, config: FinetuneConfig) -> None:
    """Refuse a seed whose models and training states would not fit on the disk, before its first step."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    state = weights // 100 if config.freeze_encoder else 4 * weights  # weights, two moments, the best weights
    models = 1 if config.keep == "best" else 2
    folder.mkdir(parents=True, exist_ok=True)
    less = "" if config.freeze_encoder or config.lora else "; --freeze-encoder and --lora need far less"
    advice = f"Free some space or choose another --out{less}"
    # Two states are kept, and a third is there while it is written.
    with disk_guard(folder, models * weights + 3 * state, what="the model and the training states", advice=advice):
        pass


def run_seed(job: Job, seed: int, *, resume: bool, replaceable: bool) -> SeedResult:
    """Train one seed, or read its result if it is finished.

    If ``replaceable``, another seed will replace this one if it is dead, so it need not run to its end.
    """
    if (finished := job.run.seed_result(seed)) is not None:
        if replaceable or not finished.ended_dead:
            return finished
        shutil.rmtree(job.run.seed(seed))
    with closing(RunLog(job.run.seed(seed) / LOG, job.run.how_to_resume)) as log:
        options = FitOptions(
            folder=job.run.seed(seed) / CHECKPOINTS,
            resume=resume,
            identity=job.identity,
            log=log,
            on_resume=log.drop_after,
            callbacks=job.callbacks,
            cache=job.cache,
            label=_label(job, seed),
            end_when_dead=replaceable and not job.is_short,
        )
        trained = job.train(seed, options)
    result = _save(job, seed, trained, ended=options.end_when_dead)
    say_score(job, result)
    return result


def say_score(job: Job, result: SeedResult) -> None:
    """Say how good a finished seed is."""
    label, main = _label(job, result.seed), job.workflow.task.main_metric
    say(f"{label}: {job.data.split} {main} {result.scores[main]:.4f} in {clock(result.seconds)}")


def _label(job: Job, seed: int) -> str:
    return "fine-tuning" if job.config.seeds == 1 else f"seed {seed}"


def _save(job: Job, seed: int, trained: Fit, *, ended: bool) -> SeedResult:
    """Write model, predictions and scores of a finished seed; ``metrics.json`` last, then its states are deleted."""
    folder, at = job.run.seed(seed), trained.progression
    scored, scores, files = _score(job, trained.model)
    for name, text in files.items():
        write_atomically(folder / name, text)
    if scored.bootstrap is not None:
        write_json(folder / BOOTSTRAP, scored.bootstrap)
    _save_models(job, trained, folder)
    job.workflow.write_decision(folder / "best", scored.decision, job.config)
    last = at.epochs[-1]
    short = trained.dead and job.is_short
    result = SeedResult(
        seed=seed,
        scores=scores,
        last_scores={name.removeprefix("dev_"): value for name, value in last.items() if name.startswith("dev_")},
        best_epoch=next(epoch["epoch"] for epoch in at.epochs if epoch["step"] == at.best_step),
        epochs=last["epoch"],
        stopped_early=at.stopped_early,
        train_loss=last["train_loss"],
        label_entropy=trained.label_entropy,
        dead=trained.dead and not short,
        seconds=round(at.seconds, 2),
        interval=scored.interval,
        classes=scored.classes,
        remarks=[*scored.remarks, *([SHORT_RUN.format(updates=counted(at.step, "update"))] if short else [])],
        ended_dead=trained.dead and at.stopped_early and ended,
    )
    write_json(folder / METRICS, asdict(result))
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    return result


def _score(job: Job, model: AnyModel) -> tuple[Scored, dict[str, float], dict[str, str]]:
    """The result for dev, and all scores and files: those of the further labelled sets, too."""
    workflow, data, engine = job.workflow, job.data, job.workflow.scoring_engine(model)
    outputs = data.held_out_outputs
    if outputs is None:
        outputs = workflow.outputs(engine, data.dev, label="scoring dev")
    dev = Predicted(data.rows.dev, data.dev, outputs, {})
    scored = score_set(workflow, dev, "dev", settings=job.config, worst=job.config.worst)
    if scored.table:
        say(scored.table)
    scores, files = dict(scored.scores), dict(scored.files)
    for name, encoded in data.more.items():
        outputs = workflow.outputs(engine, encoded, label=f"scoring dev-{name}")
        found = Predicted(data.rows.more[name], encoded, outputs, scored.decision)
        more = score_set(workflow, found, f"dev-{name}", resample=False)
        scores |= {f"{metric}_{name}": value for metric, value in more.scores.items() if metric != "loss"}
        files |= more.files
    return scored, scores, files


def _save_models(job: Job, trained: Fit, folder: Path) -> None:
    model, last = trained.model, trained.last_weights
    model.save_pretrained(folder / "best")
    job.tokenizer.save_pretrained(folder / "best")
    if job.config.keep == "all" and last is not None:
        with torch.no_grad():
            for name, value in last.items():
                model.get_parameter(name).copy_(value)
        model.save_pretrained(folder / "last")
        job.tokenizer.save_pretrained(folder / "last")


def protocol_block(
    job: Job, seeds: Sequence[int], search: dict[str, Json] | None, few_shot: dict[str, Json] | None = None
) -> dict[str, Json]:
    """The protocol block of ``metrics.json``: all that went into the scores, without which none can be compared."""
    config, task = job.config, job.workflow.task
    assert config.max_length is not None, "settings must be resolved"
    original = config.protocol == "original"
    best = f"epoch with the best dev {task.main_metric} (if equal, the lowest dev loss), of each seed"
    keeps_best = config.keeps_best_epoch and not config.learns_by_vectors and not job.data.rows.cross_validated
    trained = job.adapters or "all parameters"
    if config.freeze_encoder:
        kind = {"cls": "[CLS]", None: "</s>"}.get(config.pooling, config.pooling)  # None: of an encoder-decoder
        reads_vectors = job.workflow.reads_vectors
        trained = f"classification head on frozen {kind} features" if reads_vectors else "head on a frozen encoder"
    if config.learns_by_vectors:
        how = "trained by pairs of texts" if config.contrasts else "that was not trained"
        trained = f"linear head, on an encoder {how}"
    return {
        "protocol": config.protocol,
        "split": job.data.split,
        "metrics": list(task.metrics),
        "main_metric": task.main_metric,
        **job.workflow.facts(config),
        "selection": best if keeps_best else "last epoch of each seed",
        "seeds": list(seeds),
        "start_checkpoint": {
            "name": short_name(job.start.name),
            "sha256": job.identity["model_sha256"],
            "from_hub": is_of_hub(job.start.name),
        },
        "data": job.data.facts(config.max_length),
        **({} if config.pooling is None else {"pooling": config.pooling}),
        "what_is_trained": trained,
        **({} if config.lora is None else {"lora": {name: getattr(config, name) for name in LORA_FIELDS}}),
        "learning_rate": config.learning_rate,
        "epochs": 1 if config.learns_by_vectors else config.epochs,
        **({} if config.max_steps is None else {"max_steps": config.max_steps}),
        "batch_size": config.batch_size * config.accumulation,
        "optimizer": "Adam with decoupled weight decay, " + ("no bias correction" if original else "bias-corrected"),
        "betas": [0.9, 0.999],
        "eps": 1e-6,
        "weight_decay": config.weight_decay,
        "layer_decay": config.layer_decay,
        "warmup": config.warmup,
        "schedule": "linear warm-up from 0, linear decay" if original else "linear warm-up, linear decay to 0",
        "max_grad_norm": config.max_grad_norm,
        "precision": config.precision,
        "class_weights": config.class_weights,
        "patience": config.patience,
        "search": search,
        **({} if few_shot is None else {"few_shot": few_shot}),
        "versions": versions(),
        "hardware": hardware(job.device),
        "resumes_bit_for_bit": is_repeatable(find_device(job.device, "cpu"), deterministic=config.deterministic),
    }
