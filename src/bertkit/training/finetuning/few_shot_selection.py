"""Which way of learning from a handful of labels is best, by cross-validation on the training rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from bertkit.errors import ConfigError, counted
from bertkit.metrics.intervals import Drawn, interval_text, middle_of
from bertkit.ragged import Floats, Ints
from bertkit.system.console import Progress, aligned, clock, say
from bertkit.tasks.examples import Example
from bertkit.tasks.hold_out import deal
from bertkit.tasks.run_rows import sets_of
from bertkit.tasks.text.settings import TextTaskSettings
from bertkit.tasks.workflow import Predicted
from bertkit.training.finetuning.few_shot import can_cross_validate
from bertkit.training.finetuning.few_shot_parts import HeldOut
from bertkit.training.finetuning.finetune_settings import FewShotMethod
from bertkit.training.finetuning.seed_run import Job

#: Parts of the training rows, each of which is predicted by models that the others made.
FOLDS = 4
#: What is compared, of equally good ones the first is chosen. TF-IDF is no encoder, so that it can only be named.
METHODS: dict[str, str] = {
    "contrastive": "pairs train the encoder, linear head",
    "linear": "frozen encoder, linear head",
    "finetune": "plain fine-tuning",
    "pseudo": "contrastive, also on unlabelled texts that it is sure of",
    "tfidf": "TF-IDF, linear model",
}
#: Those that make pairs of texts of one label.
CONTRASTS = ("contrastive", "pseudo")


@dataclass(frozen=True, slots=True)
class Compared:
    """One method, scored on all training rows, each predicted by a model that has not seen it.

    interval: 95 % when rows are drawn with replacement; None where they are too few to tell.
    below: how much lower it is than the chosen method, with an interval paired by row; of the chosen one 0 and None.
    """

    method: str
    score: float
    interval: Sequence[float] | None
    below: float
    below_interval: Sequence[float] | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Selection:
    """What was compared on the training rows (in ``folds`` parts, 0: nothing); part ``few_shot`` of the protocol."""

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
            named = f"{each.method}: {METHODS[each.method]}"
            rows.append((named, f"{each.score:.4f}", interval_text(each.interval), mark, clock(each.seconds)))
        return "\n".join(f"  {line}" for line in aligned(rows))


def _span(value: float, interval: Sequence[float] | None) -> str:
    return f"{value:+.4f} ({interval_text(interval, '+')})"


def select_method(job: Job) -> tuple[Job, Selection]:
    """Choose the method that is asked for, or the best one. The parts of an interrupted selection are kept."""
    rows = cast("Sequence[Example]", job.data.rows.train)
    config, metric = job.config, job.workflow.task.main_metric
    asked = config.few_shot_method
    if asked not in ("auto", "pseudo") and not job.data.rows.cross_validated:
        return _with_method(job, asked), Selection(asked, f"{asked}, as asked for", metric, 0, len(rows))
    folds = np.array(deal(rows, FOLDS, config.seed))
    names = {"auto": [*METHODS], "pseudo": ["contrastive", "pseudo"]}.get(asked, [asked])
    if config.unlabelled is None:
        names = [name for name in names if name != "pseudo"]
    possible = _possible(names, rows, folds)
    if not possible:
        own = config.of(TextTaskSettings)
        if job.data.rows.cross_validated and (own.calibrate or own.tune_thresholds):
            raise ConfigError(
                "calibrate and tune_thresholds need labelled rows that the model has not seen: here is no dev file, "
                "and there are too few different texts to leave some out. Leave them out, or add rows"
            )
        chosen: FewShotMethod = "linear" if asked in ("auto", "pseudo") else asked
        reason = (
            "too few different texts to hold any out: CROSS-VALIDATION IS IMPOSSIBLE, nothing was compared, and the "
            f"method is {chosen}"
        )
        return _with_method(job, chosen), Selection(chosen, reason, metric, 0, len(rows))
    parts = HeldOut(job, folds)
    say(f"comparing methods in {parts.count} parts: {', '.join(possible)}")
    with Progress(parts.count * len(possible), label="comparing methods", unit="parts") as shown:
        for name in possible:
            parts.compare(name, shown.advance)
    compared = _compare(parts, None if asked == "auto" else asked)
    chosen = cast(FewShotMethod, compared[0].method)
    how = "best in cross-validation on the training rows" if asked == "auto" else "as asked for"
    if left_out := [name for name in names if name not in possible]:
        how += f"; not compared: {', '.join(left_out)}, because with some part held out no label has two texts"
    found = Selection(chosen, f"{chosen}, {how}", metric, parts.count, len(rows), compared)
    say(found.render())
    job = _with_method(job, chosen, parts.said[chosen] if job.data.rows.cross_validated else None)
    if chosen == "pseudo":
        train = parts.all_with_pseudo_labels()
        say(f"training on {counted(len(train) - len(rows), 'text')} with pseudo-labels as well")
        job = replace(job, data=replace(job.data, train=train))
    return job, found


def _possible(names: Sequence[str], rows: Sequence[Example], folds: Ints) -> list[str]:
    """Those of the methods that can learn from the rest of the rows, whichever part is held out."""
    labels = np.array([row.label for row in rows])
    counts = [np.unique(labels[folds != fold], return_counts=True)[1] for fold in np.unique(folds)]
    if not can_cross_validate(rows) or min(map(len, counts)) < 2:
        return []
    has_pairs = min(each.max() for each in counts) > 1
    return [name for name in names if has_pairs or name not in CONTRASTS]


def _with_method(job: Job, method: FewShotMethod, outputs: Floats | None = None) -> Job:
    job = job.with_config(job.config.model_copy(update={"few_shot_method": method}))
    return replace(job, data=replace(job.data, held_out_outputs=outputs))


def _compare(parts: HeldOut, asked: str | None) -> list[Compared]:
    """The methods, the one that was asked for first, or the best, which TF-IDF never is."""
    job, said = parts.job, parts.said
    rows, encoded = job.data.rows.train, job.data.train
    sets = sets_of(job.workflow, rows)
    scores, samples = {}, {}
    for name, outputs in said.items():
        given = Predicted(rows, encoded, outputs, {})
        scores[name] = job.workflow.score(given)[job.workflow.task.main_metric]
        drawn = job.workflow.main_metric_of(given, sets.draws)
        assert drawn is not None, "texts have an interval"
        samples[name] = drawn
    # Of equal scores the order of METHODS counts, because the sort is stable.
    order = sorted(said, key=lambda name: (name != asked, name == "tfidf", -scores[name]))
    best = order[0]
    return [
        Compared(
            method=name,
            score=round(scores[name], 6),
            interval=_rounded(sets.interval(samples[name], job.workflow.row_bounds())),
            below=round(scores[best] - scores[name], 6),
            below_interval=_rounded(None if name == best else _difference(samples[best] - samples[name])),
            seconds=round(parts.seconds[name], 2),
        )
        for name in order
    ]


def _difference(values: Drawn) -> tuple[float, float] | None:
    low, high = middle_of(values.tolist())
    return (low, high) if low < high else None


def _rounded(interval: Sequence[float] | None) -> list[float] | None:
    return None if interval is None else [round(value, 6) for value in interval]
