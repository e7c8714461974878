"""One seed of a fine-tuning run: train, score, write what is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bertkit.inference.run_files import BOOTSTRAP, METRICS
from bertkit.metrics.intervals import interval_of
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import clock, say
from bertkit.system.json_files import write_json
from bertkit.tasks.decision_file import write_decision
from bertkit.tasks.scored_set import score_set
from bertkit.tasks.workflow import AnyWorkflow, Decision, Predicted
from bertkit.training.finetuning.finetune_folder import FinetuneFolder
from bertkit.training.finetuning.finetune_results import SeedResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import Dev, Fit, fit
from bertkit.training.finetuning.task_data import TaskData
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.run_log import LOG, RunLog

#: Settings that a single seed's training does not depend on.
_NOT_OF_A_SEED = {"seed", "seeds", "baseline", "checkpoint_every_s", "restarts", "worst", "search"}


@dataclass(frozen=True, slots=True)
class Job:
    """All that the seeds of one run share."""

    workflow: AnyWorkflow
    data: TaskData
    config: FinetuneConfig
    run: FinetuneFolder
    start: Path
    tokenizer: Any
    identity: dict[str, Any]
    device: str | None
    cache: Path | None

    def with_config(self, config: FinetuneConfig) -> Job:
        """The same with other settings."""
        return replace(self, config=config, identity={**self.identity, "config": settings_of_seed(config)})


def settings_of_seed(config: FinetuneConfig) -> dict[str, Any]:
    """What a single seed's training depends on, and a resumed one must agree with."""
    return config.model_dump(exclude=_NOT_OF_A_SEED)


def run_seed(job: Job, seed: int, *, resume: bool, replaceable: bool) -> SeedResult:
    """One run, or its result where it is already finished.

    Args:
        job: what is trained.
        seed: new head, data order, dropout.
        resume: go on from the newest checkpoint of the seed, if there is one.
        replaceable: another seed will take the place of this one if it turns out dead, so it need not run to its end.
    """
    folder = job.run.seed(seed)
    if (finished := job.run.seed_result(seed)) is not None:
        return finished
    label = "fine-tuning" if job.config.seeds == 1 else f"seed {seed}"
    with seeded(seed):
        model = job.workflow.new_model(job.start, seed=seed, device=job.device, settings=job.config)
        with RunLog(folder / LOG) as log:
            trained = fit(
                model,
                job.workflow,
                job.data.train,
                Dev(job.data.rows.dev, job.data.dev),
                job.config,
                seed=seed,
                folder=job.run.checkpoints(seed),
                log=log,
                on_resume=log.drop_after,
                identity=job.identity,
                cache=job.cache,
                resume=resume,
                label=label,
                end_when_dead=replaceable,
            )
    result = _save(job, seed, trained)
    main = job.workflow.task.main_metric
    say(f"{label}: dev {main} {result.scores[main]:.4f} in {clock(result.seconds)}")
    return result


def _save(job: Job, seed: int, trained: Fit) -> SeedResult:
    """Write models, predictions and scores of a finished seed; ``metrics.json`` last, then the state is not needed."""
    folder, at = job.run.seed(seed), trained.progression
    workflow, model, data = job.workflow, trained.model, job.data
    dev = Predicted(data.rows.dev, data.dev, workflow.outputs(model, data.dev, label="scoring dev"), {})
    scored = score_set(workflow, dev, "dev", settings=job.config, worst=job.config.worst)
    if scored.table:
        say(scored.table)
    scores, files = dict(scored.scores), dict(scored.files)
    for name, encoded in data.more.items():
        outputs = workflow.outputs(model, encoded, label=f"scoring dev-{name}")
        found = Predicted(data.rows.more[name], encoded, outputs, scored.decision)
        more = score_set(workflow, found, f"dev-{name}", resample=False)
        scores |= {f"{metric}_{name}": value for metric, value in more.scores.items() if metric != "loss"}
        files |= more.files
    for name, text in files.items():
        write_atomically(folder / name, text)
    if scored.bootstrap is not None:
        write_json(folder / BOOTSTRAP, scored.bootstrap)
    _save_models(job, trained, folder, scored.decision)
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
        label_entropy=trained.label_entropy,
        dead=trained.dead,
        seconds=round(at.seconds, 2),
        interval=interval_of(scored.bootstrap),
        remarks=scored.remarks,
    )
    write_json(folder / METRICS, asdict(result))
    job.run.drop_checkpoints(seed)
    return result


def _save_models(job: Job, trained: Fit, folder: Path, decision: Decision) -> None:
    """The best model, and the last one where it is another."""
    model = trained.model
    _save_model(model, job.tokenizer, folder / "best")
    write_decision(folder / "best", decision)
    if trained.last_weights is not None:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in trained.last_weights:
                    parameter.copy_(trained.last_weights[name])
        _save_model(model, job.tokenizer, folder / "last")


def _save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
