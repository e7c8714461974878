"""Which way of learning from a handful of labels is best: cross-validation on the training rows, and nothing else."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from bertkit.metrics.scores import bootstrap_draws, interval_of
from bertkit.ragged import Flags, Floats, Ints, Ragged
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, clock, quiet, say
from bertkit.tasks import TextTask
from bertkit.tasks.examples import Example, Examples, Located
from bertkit.tasks.hold_out import deal, part
from bertkit.tasks.text.baseline import tfidf_predictions
from bertkit.tasks.workflow import Predicted
from bertkit.training.finetuning.few_shot import can_cross_validate
from bertkit.training.finetuning.finetune_folder import PARTS
from bertkit.training.finetuning.finetune_settings import FewShotMethod
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.seed_run import Job, TaskData

#: Parts of the training rows, each of which is predicted by models that the others made.
FOLDS = 4
#: What is compared, of equally good ones the first is chosen. TF-IDF is no encoder, so that it can only be named.
METHODS: dict[str, str] = {
    "contrastive": "pairs train the encoder, linear head",
    "linear": "frozen encoder, linear head",
    "finetune": "plain fine-tuning",
    "tfidf": "TF-IDF, linear model",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """One method.

    score: main metric over all training rows, each predicted by a model that has not seen it. interval: 95 % of its
    values when rows are drawn with replacement.
    below: how much lower it is than the chosen method, and the interval of that, paired by row; of the chosen one 0.
    seconds: of all parts.
    """

    method: str
    score: float
    interval: Sequence[float]
    below: float
    below_interval: Sequence[float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Selection:
    """What was compared on the training rows; the part ``few_shot`` of the protocol block.

    chosen: the method. folds: parts of the rows; 0 where no row could be left out. reason: why it was chosen.
    """

    chosen: FewShotMethod
    reason: str
    metric: str
    folds: int
    rows: int
    compared: Sequence[Compared] = ()

    def notes(self) -> list[str]:
        """What belongs beside the scores."""
        said = [f"few labels: {self.reason}"]
        best = max(self.compared, key=lambda each: each.score, default=None)
        if best is not None and best.method == "tfidf" and best.score > self._score:
            said.append(
                f"TF-IDF WITH A LINEAR MODEL IS BETTER HERE ({self.metric} {best.score:.4f} in cross-validation); this "
                "folder holds the best of the other methods"
            )
        return said

    @property
    def _score(self) -> float:
        return next(each.score for each in self.compared if each.method == self.chosen)

    def render(self) -> str:
        """A table for people."""
        head = ("method", f"{self.metric}, {self.folds} parts", "95 % interval", "below the chosen", "time")
        rows = [head]
        for each in self.compared:
            mark = "chosen" if each.method == self.chosen else _span(each.below, each.below_interval)
            low, high = each.interval
            named = f"{each.method}: {METHODS[each.method]}"
            rows.append((named, f"{each.score:.4f}", f"{low:.4f} to {high:.4f}", mark, clock(each.seconds)))
        return "\n".join(f"  {line}" for line in aligned(rows))


def _span(value: float, interval: Sequence[float]) -> str:
    low, high = interval
    return f"{value:+.4f} ({low:+.4f} to {high:+.4f})"


def select_method(job: Job) -> tuple[Job, Selection]:
    """Choose the method that is asked for, or that is best; with what it said of rows that it had not seen.

    The finished parts of an interrupted selection are in the run folder.
    """
    rows = cast("Sequence[Example]", job.data.rows.train)
    asked, metric = job.config.few_shot_method, job.workflow.task.main_metric
    if not can_cross_validate(rows):
        chosen: FewShotMethod = "linear" if asked == "auto" else asked
        reason = (
            "fewer than two labels have two different texts or more, so no row can be left out: CROSS-VALIDATION IS "
            f"IMPOSSIBLE, nothing was compared, and the method is {chosen}, "
            + ("which needs the fewest labels" if asked == "auto" else "as asked for")
        )
        return _with_method(job, chosen, None), Selection(chosen, reason, metric, 0, len(rows))
    if asked != "auto" and not job.data.rows.cross_validated:
        return _with_method(job, asked, None), Selection(asked, f"{asked}, as asked for", metric, 0, len(rows))
    names = list(METHODS) if asked == "auto" else [asked]
    folds = np.array(deal(rows, FOLDS, job.config.seed))
    said = {name: _held_out(job, name, folds) for name in names}
    compared = _compare(job, said)
    chosen = cast(FewShotMethod, compared[0].method)
    how = "best in cross-validation on the training rows" if asked == "auto" else "as asked for"
    found = Selection(chosen, f"{chosen}, {how}", metric, int(folds.max()) + 1, len(rows), compared)
    say(found.render())
    return _with_method(job, chosen, said[chosen][0] if job.data.rows.cross_validated else None), found


def _with_method(job: Job, method: FewShotMethod, outputs: Floats | None) -> Job:
    job = job.with_config(job.config.model_copy(update={"few_shot_method": method}))
    return replace(job, data=replace(job.data, held_out_outputs=outputs))


def _held_out(job: Job, method: str, folds: Ints) -> tuple[Floats, float]:
    """What models of a method say of rows that they have not seen, ``(N, C)`` logits, and how long that took."""
    outputs: Floats = np.zeros((len(folds), job.workflow.task.num_labels), np.float32)
    began = time.monotonic()
    for fold in range(int(folds.max()) + 1):
        file = job.run.path / PARTS / f"{method}-{fold}.npy"
        if file.exists():
            outputs[folds == fold] = np.load(file)
            continue
        say(f"comparing methods: {method}, part {fold + 1} of {int(folds.max()) + 1}")
        with quiet():
            outputs[folds == fold] = found = _predicted(job, method, folds != fold)
        _save(file, found)
    return outputs, time.monotonic() - began


def _save(file: Path, array: Floats) -> None:
    file.parent.mkdir(exist_ok=True)
    content = io.BytesIO()
    np.save(content, array)
    write_atomically(file, content.getvalue())


def _predicted(job: Job, method: str, inside: Flags) -> Floats:
    """Logits of the rows outside, of a model of those inside; of TF-IDF 1 for its answer."""
    task: TextTask = job.workflow.task
    outside = np.flatnonzero(~inside)
    stay, out = part(cast("Sequence[Example]", job.data.rows.train), set(outside.tolist()))
    if method == "tfidf":
        labels, _ = tfidf_predictions(stay, out, task)
        answers: Floats = np.eye(task.num_labels, dtype=np.float32)[labels]
        return answers
    encoded = cast(Ragged, job.data.train)
    seen = encoded.select(np.flatnonzero(inside))
    inner = cast("Examples[Located]", stay)
    data = TaskData(replace(job.data.rows, train=inner, dev=inner), seen, seen, job.data.report)
    own = _with_method(replace(job, data=data, callbacks=()), cast(FewShotMethod, method), None)
    model = own.train(job.config.seed, FitOptions()).model
    engine = own.workflow.scoring_engine(model)
    logits: Floats = own.workflow.outputs(engine, encoded.select(outside), label="scoring")
    return logits


def _compare(job: Job, said: dict[str, tuple[Floats, float]]) -> list[Compared]:
    """The methods, the best first; TF-IDF is never first."""
    rows, encoded = job.data.rows.train, job.data.train
    draws = bootstrap_draws(len(rows))
    scores, samples = {}, {}
    for name, (outputs, _) in said.items():
        given = Predicted(rows, encoded, outputs, {})
        scores[name] = job.workflow.score(given)[job.workflow.task.main_metric]
        drawn = job.workflow.main_metric_of(given, draws)
        assert drawn is not None, "texts have an interval"
        samples[name] = drawn
    # Of equal scores the order of METHODS counts, because the sort is stable.
    order = sorted(said, key=lambda name: (name == "tfidf", -scores[name]))
    best = order[0]
    return [
        Compared(
            method=name,
            score=round(scores[name], 6),
            interval=_rounded(samples[name]),
            below=round(scores[best] - scores[name], 6),
            below_interval=_rounded(samples[best] - samples[name]),
            seconds=round(said[name][1], 2),
        )
        for name in order
    ]


def _rounded(values: npt.NDArray[np.float64]) -> list[float]:
    return [round(value, 6) for value in interval_of(values.tolist()) or ()]
