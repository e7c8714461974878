"""What a fine-tuning run found out, as data and as text. Imports no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.inference.run_files import METRICS
from bertkit.system.json_files import parsed


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One run.

    scores: dev scores of the epoch with the best main metric. last_scores: those of the last epoch.
    best_epoch, epochs: counted from 1. train_loss: mean over the last epoch. label_entropy: the loss of always
        answering with the label frequencies. dead: ``train_loss`` is not 2 % below it, so nothing was learned.
    seconds: spent in training steps, without evaluation, reading and tokenising.
    interval: of the main metric, in which 95 % of its values lie when dev examples are drawn with replacement; None
        where the kind of task does not tell one.
    remarks: what no score should hide, such as that all answers are the same.
    """

    seed: int
    scores: dict[str, float]
    last_scores: dict[str, float | None]
    best_epoch: int
    epochs: int
    stopped_early: bool
    train_loss: float
    label_entropy: float
    dead: bool
    seconds: float
    interval: Sequence[float] | None = None
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    """A finished run folder.

    scores: dev scores of the chosen seed, whose model the folder holds.
    mean, sd: over the seeds; sd is the sample standard deviation, None for one seed.
    baseline: dev scores of a simple system without a neural network, by its ``name``; or None.
    protocol: everything one has to know to compare the scores with others.
    notes: what a reader should be told in words.
    median: over the seeds.
    interval: of the mean main metric: 95 % of its values when seeds and dev examples are drawn with replacement.
    replaced: dead runs whose place another seed took; their scores are in no mean.
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

    def to_dict(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""
        values = asdict(self)
        del values["folder"]
        lists = {name: [asdict(seed) for seed in getattr(self, name)] for name in ("seeds", "replaced")}
        return {**values, **lists, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, folder: Path, values: Mapping[str, Any]) -> FinetuneResult:
        """Read back what :meth:`to_dict` returned.

        Raises:
            CheckpointError: it returned something else.
        """
        result = parsed({**values, "folder": folder}, cls, str(folder / METRICS))
        if not result.seeds or not isinstance(result.protocol.get("data"), dict):
            raise CheckpointError(f"{folder / METRICS} is damaged: it has no seeds, or no data in its protocol")
        return result

    @property
    def baseline_name(self) -> str:
        """What the column of the baseline is called."""
        return str((self.baseline or {}).get("name", "TF-IDF + linear"))

    def score_line(self, metric: str) -> str:
        """``0.912`` for one seed, ``0.909 ± 0.004 (3 seeds)`` for several."""
        if self.sd is None:
            return f"{self.mean[metric]:.4f}"
        return f"{self.mean[metric]:.4f} ± {self.sd[metric]:.4f} ({len(self.seeds)} seeds)"

    def spread_line(self) -> str:
        """Median and interval of the main metric in words."""
        assert self.interval is not None
        low, high = self.interval
        drawn = "dev examples" if len(self.seeds) == 1 else "dev examples and seeds"
        median = "" if len(self.seeds) == 1 else f"median {self.median[self.main_metric]:.4f}, "
        return f"{self.main_metric}: {median}95 % interval {low:.4f} to {high:.4f} ({drawn} resampled)"

    def render(self) -> str:
        """The outcome as text: each metric beside its baseline, then notes and the folder."""
        rows = [("metric", "BERT", self.baseline_name if self.baseline else "")]
        known = self.baseline["metrics"] if self.baseline else {}
        for metric in self.scores:
            if metric != "loss":
                rows.append((metric, self.score_line(metric), f"{known[metric]:.4f}" if metric in known else ""))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.task}, {self.protocol['split']} ({self.protocol['data']['dev_rows']:,} rows)"]
        lines += ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"  {self.spread_line()}"] if self.interval is not None else []
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([*lines, f"  {self.folder}"])


def summarize(seeds: Sequence[SeedResult]) -> tuple[dict[str, float], dict[str, float] | None]:
    """Mean, and sample standard deviation for more than one seed, of every score."""
    mean = {name: statistics.fmean(seed.scores[name] for seed in seeds) for name in seeds[0].scores}
    if len(seeds) == 1:
        return mean, None
    return mean, {name: statistics.stdev(seed.scores[name] for seed in seeds) for name in seeds[0].scores}


def medians(seeds: Sequence[SeedResult]) -> dict[str, float]:
    """Median over the seeds of every score."""
    return {name: statistics.median(seed.scores[name] for seed in seeds) for name in seeds[0].scores}


def choose_seed(seeds: Sequence[SeedResult], metric: str) -> SeedResult:
    """The seed with the best dev score; of equals the first."""
    return max(seeds, key=lambda seed: seed.scores[metric])


def notes_on(
    seeds: Sequence[SeedResult],
    metric: str,
    baseline: Mapping[str, Any] | None,
    replaced: Sequence[SeedResult] = (),
) -> list[str]:
    """Sentences that no score should hide."""
    told = []
    if replaced:
        gone = ", ".join(str(seed.seed) for seed in replaced)
        told.append(
            f"RESTARTED: seed {gone} ended dead (training loss no better than the label frequencies give) and was "
            f"replaced by the next seed; the mean does not contain it ({metric} "
            + ", ".join(f"{seed.scores[metric]:.4f}" for seed in replaced)
            + ")"
        )
    dead = [str(seed.seed) for seed in seeds if seed.dead]
    if dead:
        told.append(
            f"DEAD RUN: seed {', '.join(dead)} ended with a training loss no better than the label frequencies give; "
            f"try another seed, a lower learning rate or more epochs"
        )
    for remark in dict.fromkeys(remark for seed in seeds for remark in seed.remarks):
        which = ", ".join(str(seed.seed) for seed in seeds if remark in seed.remarks)
        told.append(f"seed {which}: {remark}" if len(seeds) > 1 else remark)
    best = max(seed.scores[metric] for seed in seeds)
    if len(seeds) > 1:
        told.append(f"the model in this folder is the best of {len(seeds)} seeds on dev ({metric} {best:.4f})")
    bound = math.nan if baseline is None else baseline["metrics"].get(metric, math.nan)
    if baseline is not None and statistics.fmean(seed.scores[metric] for seed in seeds) <= bound:
        simple = baseline.get("name", "TF-IDF with a linear model")
        told.append(f"BERT is not better than {simple} here ({metric})")
    return told
