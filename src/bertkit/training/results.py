"""What a fine-tuning run found out, as data and as text. Imports no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class SeedResult:
    """One run.

    scores: dev scores of the epoch with the best main metric. last_scores: those of the last epoch.
    best_epoch, epochs: counted from 1. train_loss: mean over the last epoch. label_entropy: the loss of always
        answering with the label frequencies. dead: ``train_loss`` is not 2 % below it, so nothing was learned.
    seconds: spent in training steps, without evaluation, reading and tokenising.
    """

    seed: int
    scores: dict[str, float]
    last_scores: dict[str, float]
    best_epoch: int
    epochs: int
    stopped_early: bool
    train_loss: float
    label_entropy: float
    dead: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    """A finished run folder.

    scores: dev scores of the chosen seed, whose model the folder holds.
    mean, sd: over the seeds; sd is the sample standard deviation, None for one seed.
    baseline: dev scores of TF-IDF with a linear model, or None.
    protocol: everything one has to know to compare the scores with others.
    notes: what a reader should be told in words.
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

    def to_dict(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""
        values = asdict(self)
        del values["folder"]
        return {**values, "seeds": [asdict(seed) for seed in self.seeds], "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, folder: Path, values: Mapping[str, Any]) -> FinetuneResult:
        """Read back what :meth:`to_dict` gave."""
        seeds = tuple(SeedResult(**seed) for seed in values["seeds"])
        return cls(folder=folder, **{**values, "seeds": seeds, "notes": tuple(values["notes"])})

    def score_line(self, metric: str) -> str:
        """``0.912`` for one seed, ``0.909 ± 0.004 (3 seeds)`` for several."""
        if self.sd is None:
            return f"{self.mean[metric]:.4f}"
        return f"{self.mean[metric]:.4f} ± {self.sd[metric]:.4f} ({len(self.seeds)} seeds)"

    def render(self) -> str:
        """The outcome as text: each metric beside its baseline, then notes and the folder."""
        rows = [("metric", "BERT", "TF-IDF + linear" if self.baseline else "")]
        for metric in self.scores:
            if metric != "loss":
                base = f"{self.baseline['metrics'][metric]:.4f}" if self.baseline else ""
                rows.append((metric, self.score_line(metric), base))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [f"{self.task}, {self.protocol['split']} ({self.protocol['data']['dev_rows']:,} rows)"]
        lines += ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([*lines, f"  {self.folder}"])


def summarize(seeds: Sequence[SeedResult]) -> tuple[dict[str, float], dict[str, float] | None]:
    """Mean, and sample standard deviation for more than one seed, of every score."""
    mean = {name: statistics.fmean(seed.scores[name] for seed in seeds) for name in seeds[0].scores}
    if len(seeds) == 1:
        return mean, None
    return mean, {name: statistics.stdev(seed.scores[name] for seed in seeds) for name in seeds[0].scores}


def choose_seed(seeds: Sequence[SeedResult], metric: str) -> SeedResult:
    """The seed with the best dev score; of equals the first."""
    return max(seeds, key=lambda seed: seed.scores[metric])


def notes_on(seeds: Sequence[SeedResult], metric: str, baseline: Mapping[str, Any] | None) -> list[str]:
    """Sentences that no score should hide."""
    told = []
    dead = [str(seed.seed) for seed in seeds if seed.dead]
    if dead:
        told.append(
            f"DEAD RUN: seed {', '.join(dead)} ended with a training loss no better than the label frequencies give; "
            f"try another seed, a lower learning rate or more epochs"
        )
    best = max(seed.scores[metric] for seed in seeds)
    if len(seeds) > 1:
        told.append(f"the model in this folder is the best of {len(seeds)} seeds on dev ({metric} {best:.4f})")
    if baseline is not None and not math.isnan(baseline["metrics"][metric]):
        mean = statistics.fmean(seed.scores[metric] for seed in seeds)
        if mean <= baseline["metrics"][metric]:
            told.append(f"BERT is not better than TF-IDF with a linear model here ({metric})")
    return told
