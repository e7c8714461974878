"""Pre-train a model on a token store, from scratch or a checkpoint.

An encoder learns masked words, with or without the next sentence (Devlin et al. 2019, sections 3.1 and A.2); BART and
T5 learn to write what was removed (Lewis et al. 2019, section 2.2; Raffel et al. 2020, section 3.1.4).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.number_formats import Precision
from bertkit.data.corpus.store_folders import MANIFEST
from bertkit.data.store.token_store import TokenStore
from bertkit.inference.protocol import model_hash, versions
from bertkit.inference.run_files import METRICS
from bertkit.optim import (
    OPTIMIZERS,
    Schedule,
    budget_schedule,
    linear_schedule,
    original_schedule,
    parameter_groups,
    polynomial_schedule,
    trapezoid_schedule,
)
from bertkit.system.atomic_files import sha256_file
from bertkit.system.console import say
from bertkit.system.device import Device, hardware
from bertkit.system.json_files import parsed, read_json, write_json
from bertkit.system.untrusted_files import Json
from bertkit.training.pretraining.initial_model import Start, make_network
from bertkit.training.pretraining.objectives import Model, Network, with_objective
from bertkit.training.pretraining.operations import MeasuredPlan, matmul_peak
from bertkit.training.pretraining.pretrain_data import (
    held_out_data,
    held_out_scores,
    loss_floor,
    training_data,
    vocabulary_of,
)
from bertkit.training.pretraining.pretrain_report import Report
from bertkit.training.pretraining.pretrain_settings import FREE_SETTINGS, PretrainConfig
from bertkit.training.trainer.assembly import RunOptions, make_trainer, run_trainer
from bertkit.training.trainer.batch_plan import Plan, Prefetched
from bertkit.training.trainer.compiling import will_compile
from bertkit.training.trainer.determinism import is_repeatable
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import Evaluate, LoopOptions, Progression
from bertkit.training.trainer.parallel import Parallel, parallel_from_environment
from bertkit.training.trainer.precision import DTYPES, fastest_precision, float32_products_in, plain_precision
from bertkit.training.trainer.run_folder import CHECKPOINTS, RunFolder
from bertkit.training.trainer.snapshot import step_folders
from bertkit.training.trainer.trackers import MLflowCallback

#: What to do after a stop: such a run is resumed unless its user refuses.
ON_ITS_OWN = "Run the same command to resume"


class PretrainFolder(RunFolder):
    """The folder of a pre-training run, which is resumed unless ``--no-resume`` is given::

    RUN/
        model/           the model and its tokenizer: load RUN/model like any checkpoint
        pretrain.json    settings, data and start of the run
        metrics.json     settings and scores; written last
        log.jsonl        one line per step and per evaluation
        checkpoints/     training state while the run is unfinished
    """

    settings_file, states = "pretrain.json", CHECKPOINTS
    how_to_resume = "Run the same command without --no-resume to continue"

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.model, self.checkpoints = self.path / "model", self.path / CHECKPOINTS


@dataclass(frozen=True, slots=True)
class PretrainResult:
    """A finished run.

    scores: of the last evaluation on held-out text, those that are finite; empty without held-out text.
    unigram_entropy: of the targets, in nats: the loss of a model that knows only how frequent words are.
    speed: ``tokens_per_s`` and ``peak_share``, medians over the last steps.
    new_parts, num_new_words: what the initial checkpoint, and its tokenizer, did not have.
    """

    model: Path
    progression: Progression
    scores: Mapping[str, float]
    unigram_entropy: float
    speed: Mapping[str, float]
    new_parts: tuple[str, ...] = ()
    num_new_words: int = 0


def pretrain(
    store: TokenStore,
    out: str | Path,
    config: PretrainConfig | None = None,
    *,
    model: Model,
    dev: TokenStore | None = None,
    resume: bool = True,
    device: Device = "cpu",
    loss_for: Callable[[Network], nn.Module] = lambda network: network,
    added: Mapping[str, Json] | None = None,
) -> PretrainResult:
    """Train to the end, or return the result of a run that has finished.

    model: a config, for new weights drawn from ``config.seed``; or a checkpoint or a model in memory, for continued
        pre-training. A checkpoint's missing heads are newly initialized. A model in memory is trained in place,
        moved to ``device`` and left with ``config.gradient_checkpointing``; if ``config.dropout`` differs from its
        own, a copy is trained instead.
    dev: held-out text, scored after each epoch or every ``config.eval_every_steps`` steps, and at the end.
    resume: continue from the newest checkpoint in ``out``, bit for bit (except for a run with a time budget, whose
        learning rate follows the clock); False makes a run in ``out`` an error.
    device: where to train. Under ``torchrun`` only its kind, ``cpu`` or ``cuda``: each process has its own.
    loss_for: makes what the training loop sees of the network, which may have another loss.
    added: what that depends on, in plain values; a resumed run must agree.
    """
    config = with_objective(config or PretrainConfig(), model)
    config.check()
    run = PretrainFolder(out)
    parallel = parallel_from_environment(device, config.parallel)
    with contextlib.ExitStack() as held:
        held.callback(parallel.close)
        parallel.on_first(lambda: held.enter_context(run.claimed()))
        if config.precision is None:
            settled = partial(_default_precision, run, config, model, parallel.device)
            config = config.replace(precision=parallel.on_first(settled))
        identity = {**_identity(store, config, model, dev), **({"added": dict(added)} if added else {})}
        parallel.on_first(lambda: run.check(identity, resume=resume, free=FREE_SETTINGS))
        if parallel.on_first(lambda: run.is_finished):
            say(f"{run.path} is finished; nothing to do. Choose another folder to start a new run")
            return parallel.on_first(lambda: _read_result(run))
        if dev is not None:
            dev.check_tokenizer(store.tokenizer())
        given = not parallel.is_first or bool(step_folders(run.checkpoints))  # they hold the weights
        network, start = make_network(model, store, config.replace(word_embeddings="random") if given else config)
        network.set_gradient_checkpointing(config.gradient_checkpointing)
        parallel.prepare(network)
        vocabulary = vocabulary_of(store, config)
        ranks = {"rank": parallel.rank, "num_ranks": parallel.num_ranks}
        data = training_data(store, vocabulary, config, clock=lambda: trainer.at.seconds, **ranks)
        num_workers = _num_workers(config, parallel.device)
        ahead = held.enter_context(Prefetched(data, num_workers=num_workers, end=config.num_steps))
        evaluate = None
        if dev is not None:
            evaluate = held_out_scores(network, held_out_data(dev, vocabulary, config), config.dev_examples)
        held.enter_context(seeded(config.seed))
        floor = parallel.on_first(lambda: loss_floor(store, vocabulary, data))
        targets = "training text" if config.noise is None else "targets"
        say(f"unigram entropy of the {targets}: {floor:.3f} nats, the loss of knowing only word frequencies")
        plan = _measured(ahead, network, config, parallel.device)
        report = Report(run, floor, curve=config.curve, tensorboard=config.tensorboard)
        options = _options(run, identity, plan, report, begins=parallel.is_first)
        if config.mlflow and parallel.is_first:
            options = replace(options, callbacks=[MLflowCallback()])
        trainer = _trainer(loss_for(network), plan, config, options, evaluate, parallel)
        parallel.on_first(lambda: run.begin(identity))  # every check of the settings has passed
        with contextlib.closing(report):
            run_trainer(trainer, options)
        trainer.save()  # if the disk has no room for the model, training is not lost
        whole = parallel.whole_model(network)
        return parallel.on_first(lambda: _finish(run, whole, store, config, start, report, trainer))


def _default_precision(run: PretrainFolder, config: PretrainConfig, model: Model, device: torch.device) -> Precision:
    """That of the run in the folder; of a new one the fastest of an encoder, on a CPU of one that is trained already.

    Only these cases were compared with fp32.
    """
    compared = config.noise is None and (
        device.type == "cuda" or not isinstance(model, BertConfig | EncoderDecoderConfig)
    )
    return run.precision or (fastest_precision if compared else plain_precision)(device)


def _measured(data: Plan[Batch], network: Network, config: PretrainConfig, device: torch.device) -> MeasuredPlan:
    """The data, with the work that it is for the network; of a teacher nothing is counted."""
    assert config.precision is not None, "settings must be resolved"
    with float32_products_in(config.precision):
        peak = matmul_peak(network.config, rows=config.max_tokens, device=device, dtype=DTYPES[config.precision])
    return MeasuredPlan(data, network.config, peak)


def _options(
    run: PretrainFolder, identity: Mapping[str, Any], plan: MeasuredPlan, report: Report, *, begins: bool
) -> RunOptions:
    """Where the run keeps its state; its log is cut to that by the process that ``begins`` it."""
    settings = {key: value for key, value in identity["config"].items() if key not in FREE_SETTINGS}
    return RunOptions(
        run.checkpoints,
        resume=True,
        identity={**settings, **{name: identity[name] for name in ("model", "store", "added") if name in identity}},
        log=lambda record: report(plan.with_share(record)),
        on_resume=report.begin if begins else lambda step, evaluated_step: None,
        label="pre-training",
        how_to_resume=ON_ITS_OWN,
    )


def _trainer(
    network: nn.Module,
    plan: MeasuredPlan,
    config: PretrainConfig,
    options: RunOptions,
    evaluate: Evaluate | None,
    parallel: Parallel,
) -> Trainer[Batch]:
    optimizer = OPTIMIZERS[config.optimizer](
        parameter_groups(network, weight_decay=config.weight_decay),
        learning_rate=config.learning_rate,
        betas=(0.9, config.adam_beta2),
    )
    trainer: Trainer[Batch] = make_trainer(
        network,
        plan,
        config,
        loop_options(config, options, compiles=_compiles(config, parallel)),
        optimizer=optimizer,
        schedule=make_schedule(config, lambda: trainer.at.seconds),
        evaluate=evaluate,
        parallel=parallel,
    )
    return trainer


def _compiles(config: PretrainConfig, parallel: Parallel) -> bool:
    """Whether to compile: if asked to, and by itself where a run is long enough on a device that gains."""
    assert config.precision is not None, "settings must be resolved"
    fits = config.noise is None and not parallel.is_sharded and not config.deterministic
    steps, seconds = config.num_steps, config.max_seconds
    return will_compile(config.compile, parallel.device, config.precision, steps, seconds, fits=fits)


def _num_workers(config: PretrainConfig, device: torch.device) -> int:
    """Threads that prefetch batches. A CPU that computes with all its cores gains nothing from them."""
    if config.num_workers is not None:
        return config.num_workers
    return 0 if device.type == "cpu" else 1


def loop_options(config: PretrainConfig, options: RunOptions, *, compiles: bool = False) -> LoopOptions:
    """The settings that concern the training loop; ``compiles``: what ``config.compile`` comes to on the device."""
    assert config.precision is not None, "settings must be resolved"
    return replace(
        options.loop(config, config.num_steps, config.learning_rate, config.precision),
        keep=config.keep_checkpoints,
        max_seconds=config.max_seconds,
        evaluate_every_steps=config.eval_every_steps,
        compile=compiles,
        deterministic=config.deterministic,
    )


def make_schedule(config: PretrainConfig, clock: Callable[[], float]) -> Schedule:
    """The learning-rate schedule by steps, by time, or by the smaller factor of both, which ends at 0."""
    schedules, steps, warmup = [], config.num_steps, config.warmup
    if config.max_seconds is not None:
        cooldown = config.cooldown if config.schedule == "trapezoid" else None
        schedules.append(budget_schedule(config.max_seconds, clock, warmup=warmup, cooldown=cooldown))
    if config.max_seconds is None or config.max_steps is not None:
        match config.schedule:
            case "linear":
                schedules.append(linear_schedule(steps, warmup=warmup))
            case "polynomial":
                schedules.append(polynomial_schedule(steps, warmup=warmup, power=config.power, end=config.end_rate))
            case "trapezoid":
                schedules.append(trapezoid_schedule(steps, warmup=warmup, cooldown=config.cooldown))
            case "original":
                schedules.append(original_schedule(steps, warmup=warmup))
    return lambda step: min(schedule(step) for schedule in schedules)


def _identity(store: TokenStore, config: PretrainConfig, model: Model, dev: TokenStore | None) -> dict[str, Any]:
    if isinstance(model, str | Path):
        start: dict[str, Json] = {"sha256": model_hash(model)}
    else:
        start = (model if isinstance(model, BertConfig | EncoderDecoderConfig) else model.config).to_dict()

    def name(store: TokenStore) -> str:  # its content identifies it, not its location
        counts, sha256 = store.manifest.counts, sha256_file(store.path / MANIFEST)
        # As earlier versions wrote it, whatever the numbers are: runs are recognized by it.
        parts = f"{counts.num_documents:,}", "documents,", f"{counts.num_tokens:,}", "tokens, sha256", sha256[:16]
        return " ".join(parts)

    return {
        "config": config.model_dump(),
        "model": start,
        "store": name(store),
        "dev": None if dev is None else name(dev),
    }


def _finish(
    run: PretrainFolder,
    network: nn.Module | None,
    store: TokenStore,
    config: PretrainConfig,
    start: Start,
    report: Report,
    trainer: Trainer[Batch],
) -> PretrainResult:
    """Save the model and then the summary, which marks the run as finished."""
    assert isinstance(network, Network), "rank 0 has the whole model"
    network.eval()
    network.save_pretrained(run.model)
    store.tokenizer().save_pretrained(run.model)
    assert isinstance(trainer.plan, MeasuredPlan)
    last = trainer.at.epochs[-1]
    record = {
        "settings": config.model_dump(),
        **({} if config.noise is None else {"noise": asdict(config.noise)}),
        "start": asdict(start),
        "progression": asdict(trainer.at),
        "dev": {key.removeprefix("dev_"): value for key, value in last.items() if key.startswith("dev_")},
        "unigram_entropy": report.floor,
        "speed": report.speed(),
        "matmul_peak_flops_per_s": trainer.plan.peak,
        "versions": versions(),
        "hardware": {**hardware(trainer.device), "processes": trainer.parallel.num_ranks},
        "resumes_bit_for_bit": is_repeatable(trainer.device, deterministic=config.deterministic),
    }
    write_json(run.path / METRICS, record)
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    return _read_result(run)


def _read_result(run: PretrainFolder) -> PretrainResult:
    path = run.path / METRICS
    record = read_json(path, dict[str, Any])
    start = parsed(record.get("start"), dict[str, Any], f"{path}: start")
    new_words = parsed(start.get("new_words") or {}, dict[str, int | str], f"{path}: start.new_words")
    scores = parsed(record.get("dev"), dict[str, float | None], f"{path}: dev")  # None: the score was not finite
    values = {
        "model": run.model,
        **{name: record.get(name) for name in ("progression", "unigram_entropy", "speed")},
        "scores": {name: score for name, score in scores.items() if score is not None},
        "new_parts": start.get("new_parts"),
        "num_new_words": new_words.get("count", 0),
    }
    return parsed(values, PretrainResult, str(path))
