"""The outcome of a fine-tuning run, as data and as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, counted
from bertkit.inference.run_files import METRICS
from bertkit.metrics.intervals import interval_text
from bertkit.system.console import aligned
from bertkit.system.json_files import parsed, printable
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One seed.

    scores: dev scores of the kept epoch. last_scores: those of the last epoch. Epochs are counted from 1.
    train_loss: mean over the last epoch. label_entropy: the loss of always answering with the label frequencies;
        None for kinds of task that have no such bound.
    dead: ``train_loss`` is not 2 % below ``label_entropy``, so nothing was learned.
    seconds: time in training steps, without evaluation, reading and tokenization.
    interval: 95 % bootstrap interval of the main metric over dev examples; None for kinds of task without one.
    classes: precision, recall, F1 and support by class, and their means; None for kinds of task without classes.
    ended_dead: it ended before its last step, because it was dead and another seed was to replace it.
    """

    seed: int
    scores: dict[str, float]
    last_scores: dict[str, float | None]
    best_epoch: int
    epochs: int
    stopped_early: bool
    train_loss: float
    label_entropy: float | None
    dead: bool
    seconds: float
    interval: Sequence[float] | None = None
    remarks: Sequence[str] = ()
    classes: dict[str, Any] | None = None
    ended_dead: bool = False


@dataclass(frozen=True, slots=True)
class FinetuneResult(Rendered):
    """A finished run folder.

    scores: dev scores of the chosen seed, whose model is in the folder.
    mean, sd, median: over the seeds; sd is the sample standard deviation, None for one seed.
    baseline: dev scores of a simple system without a neural network, by its ``name``; or None.
    interval: 95 % bootstrap interval of the mean main metric over seeds and dev examples.
    replaced: dead runs that another seed replaced; their scores are in no mean.
    said: notes that were shown before training, with the report on the data; not kept.
    """

    folder: Path
    task: str
    main_metric: str
    scores: dict[str, float]
    mean: dict[str, float]
    sd: dict[str, float] | None
    seeds: tuple[SeedResult, ...]
    chosen_seed: int
    baseline: dict[str, Any] | None
    protocol: dict[str, Any]
    notes: tuple[str, ...] = field(default=())
    median: dict[str, float] = field(default_factory=dict)
    interval: Sequence[float] | None = None
    replaced: tuple[SeedResult, ...] = ()
    said: tuple[str, ...] = field(default=(), compare=False)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""
        values = asdict(self)
        del values["folder"], values["said"]
        return {**values, **{name: list(values[name]) for name in ("seeds", "replaced", "notes")}}

    @classmethod
    def from_dict(cls, folder: Path, values: Mapping[str, Any]) -> FinetuneResult:
        """Read back what :meth:`to_dict` returned."""
        result = parsed({**values, "folder": folder}, cls, str(folder / METRICS))
        if not result.seeds or not isinstance(result.protocol.get("data"), dict):
            raise CheckpointError(f"{folder / METRICS} is damaged: it has no seeds, or no data in its protocol")
        return result

    @property
    def shown_folder(self) -> str:
        """The folder as text that can be printed whatever its bytes are."""
        return printable(self.folder)

    @property
    def classes(self) -> dict[str, Any] | None:
        """Scores by class of the seed whose model is in the folder."""
        return next(seed.classes for seed in self.seeds if seed.seed == self.chosen_seed)

    @property
    def baseline_name(self) -> str:
        """Heading of the baseline's column."""
        return str((self.baseline or {}).get("name", "TF-IDF + linear"))

    @property
    def baseline_scores(self) -> dict[str, float]:
        """The baseline's metrics; empty without a baseline."""
        return self.baseline["metrics"] if self.baseline else {}

    def score_line(self, metric: str) -> str:
        """``0.912`` for one seed, ``0.909 ± 0.004 (3 seeds)`` for several."""
        if self.sd is None:
            return f"{self.mean[metric]:.4f}"
        return f"{self.mean[metric]:.4f} ± {self.sd[metric]:.4f} ({counted(len(self.seeds), 'seed')})"

    def score_rows(self, *, absent: str = "") -> list[tuple[str, str, str]]:
        """Each metric with its score and the baseline's (``absent`` if it has none)."""
        base = {name: f"{value:.4f}" for name, value in self.baseline_scores.items()}
        return [(name, self.score_line(name), base.get(name, absent)) for name in self.scores if name != "loss"]

    def spread_line(self) -> str:
        """Median and interval of the main metric in words."""
        assert self.interval is not None
        several = len(self.seeds) > 1
        median = f"median {self.median[self.main_metric]:.4f}, " if several else ""
        drawn = "dev examples and seeds" if several else "dev examples"
        return f"{self.main_metric}: {median}95 % interval {interval_text(self.interval)} ({drawn} resampled)"

    def render(self) -> str:
        """The outcome as text: each metric beside its baseline, then notes and the folder."""
        rows = [("metric", "model", self.baseline_name if self.baseline else ""), *self.score_rows()]
        seed = next(seed for seed in self.seeds if seed.seed == self.chosen_seed)
        kept = f"kept epoch {seed.best_epoch} of {seed.epochs}" + (", stopped early" if seed.stopped_early else "")
        lines = [f"{self.task}, {self.protocol['split']} ({counted(self.protocol['data']['dev_rows'], 'row')})"]
        lines += [f"  {line}" for line in aligned(rows)]
        lines += [f"  {self.spread_line()}"] if self.interval is not None else []
        lines.append(f"  {kept}: {self.protocol['selection']}")
        lines += [f"  note: {note}" for note in self.notes if note not in self.said]
        return "\n".join([*lines, f"  {self.shown_folder}"])


def scores_of(taught: FinetuneResult, plain: FinetuneResult | None) -> dict[str, Json]:
    """The scores of a run with something, and of the same run without it, where that was made."""
    return {
        name: {"mean": run.mean, "sd": run.sd, "seeds": [seed.seed for seed in run.seeds]}
        for name, run in (("with", taught), ("without", plain))
        if run is not None
    }


def summarize(seeds: Sequence[SeedResult]) -> tuple[dict[str, float], dict[str, float] | None, dict[str, float]]:
    """Mean, sample standard deviation (None for one seed) and median of every score."""
    values = {name: [seed.scores[name] for seed in seeds] for name in seeds[0].scores}
    mean, median = ({n: take(v) for n, v in values.items()} for take in (statistics.fmean, statistics.median))
    return mean, {n: statistics.stdev(v) for n, v in values.items()} if len(seeds) > 1 else None, median


def choose_seed(seeds: Sequence[SeedResult], metric: str) -> SeedResult:
    """The seed with the best dev score; if equal, the one with the lowest dev loss, then the first."""
    return max(seeds, key=lambda seed: (seed.scores[metric], -seed.scores.get("loss", math.inf)))


def notes_on(
    seeds: Sequence[SeedResult], metric: str, baseline: Mapping[str, Any] | None, replaced: Sequence[SeedResult] = ()
) -> list[str]:
    """Sentences that belong beside the scores."""
    notes = []
    if replaced:
        gone = ", ".join(str(seed.seed) for seed in replaced)
        scores = ", ".join(f"{seed.scores[metric]:.4f}" for seed in replaced)
        notes.append(
            f"RESTARTED: seed {gone} ended dead (training loss no better than the label frequencies give) and was "
            f"replaced by the next seed; the mean does not contain it ({metric} {scores})"
        )
    if dead := [str(seed.seed) for seed in seeds if seed.dead]:
        notes.append(
            f"DEAD RUN: seed {', '.join(dead)} ended with a training loss no better than the label frequencies give; "
            f"try another seed, a lower learning rate or more epochs"
        )
    for remark in dict.fromkeys(remark for seed in seeds for remark in seed.remarks):
        which = ", ".join(str(seed.seed) for seed in seeds if remark in seed.remarks)
        notes.append(f"seed {which}: {remark}" if len(seeds) > 1 else remark)
    if len(seeds) > 1:
        best = max(seed.scores[metric] for seed in seeds)
        notes.append(f"the model in this folder is the best of {len(seeds)} seeds on dev ({metric} {best:.4f})")
    bound = math.nan if baseline is None else baseline["metrics"].get(metric, math.nan)
    if baseline is not None and statistics.fmean(seed.scores[metric] for seed in seeds) <= bound:
        simple = baseline.get("name", "TF-IDF with a linear model")
        notes.append(f"the model is not better than {simple} here ({metric})")
    return notes
