"""Curves of training runs, from the logs in their folders: ``bertkit.visualize.training``."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bertkit.errors import CheckpointError, ConfigError, counted
from bertkit.system.paths import user_path
from bertkit.training.trainer.run_folder import LOG, read_log
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.training_pictures import Curve, compare_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Points of a curve; of more steps, each point is the mean of several.
MOST_POINTS = 2000
#: Runs that one picture can hold apart.
MOST_RUNS = 9
#: Numbers of a log that are no curves.
_NO_CURVES = {"step", "epoch", "seconds", "peak_share", "loss_scale"}


@dataclass(frozen=True, slots=True)
class TrainingCurves(Drawn):
    """What the logs of runs say: name of a run -> name of a number -> its curve over optimizer steps.

    Numbers of every step: ``loss``, ``lr``, ``grad_norm``, ``tokens_per_s`` or ``rows_per_s``; of every evaluation:
    ``dev_loss`` and the scores on dev.
    """

    title: ClassVar[str] = "Training"
    runs: dict[str, dict[str, Curve]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": {
                run: {name: {"steps": list(c.steps), "values": list(c.values)} for name, c in curves.items()}
                for run, curves in self.runs.items()
            }
        }

    def render(self) -> str:
        """A few lines for each run: steps, the last loss, the best of each score on dev."""
        lines = []
        for run, curves in self.runs.items():
            loss = curves["loss"]
            lines.append(
                f"{run}: {counted(loss.steps[-1], 'step')}, loss {loss.values[0]:.4f} to {loss.values[-1]:.4f}"
            )
            for name, curve in curves.items():
                if name.startswith("dev_"):
                    best = (min if name.endswith("loss") else max)(curve.values)
                    step = curve.steps[curve.values.index(best)]
                    lines.append(f"  {name}: best {best:.4f} at step {step:,}, last {curve.values[-1]:.4f}")
                elif name.endswith("_per_s"):
                    lines.append(f"  {name}: median {np.median(curve.values):,.0f}")
        return "\n".join(lines)

    def figure(self) -> Figure:
        return compare_curves(self.runs)


def training(*runs: str | Path) -> TrainingCurves:
    """Curves of one or more runs of ``finetune``, ``pretrain``, ``adapt`` or ``distill``.

    Args:
        runs: their folders, also while they are training; a run of several seeds has the log of the best one.

    Raises:
        ConfigError: no run, more than :data:`MOST_RUNS`, or one twice.
        CheckpointError: a folder without a log or with a damaged one, or a log without a step.
    """
    if not 1 <= len(runs) <= MOST_RUNS:
        raise ConfigError(f"training draws 1 to {MOST_RUNS} runs, got {len(runs)}")
    folders = [user_path(run) for run in runs]
    return TrainingCurves({name: _curves(folder) for name, folder in zip(_names(folders), folders, strict=True)})


def _names(folders: Sequence[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    twice = next(folder for number, folder in enumerate(folders) if parts[number] in parts[:number])
    raise ConfigError(f"{twice} is given twice")


def _curves(folder: Path) -> dict[str, Curve]:
    path = folder / LOG
    if not path.is_file():
        raise CheckpointError(f"{folder} has no {LOG}: it is no run folder, or its run has not begun to train")
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for record in read_log(path):
        ours = record.keys() - _NO_CURVES - {"event", "train_loss"}
        for name in sorted(ours):
            value = record[name]
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
                found[name].append((record["step"], float(value)))
    if "loss" not in found:
        raise CheckpointError(f"{path} has no training step yet; try again when the run has made its first one")
    return {name: _thinned(points) for name, points in found.items()}


def _thinned(points: Sequence[tuple[int, float]]) -> Curve:
    """At most :data:`MOST_POINTS`: means over as many steps as that takes, at the last of them."""
    steps, values = np.array([step for step, _ in points]), np.array([value for _, value in points])
    every = math.ceil(len(points) / MOST_POINTS)
    starts = np.arange(0, len(points), every)
    ends = np.minimum(starts + every, len(points))
    means = np.add.reduceat(values, starts) / (ends - starts)
    return Curve(tuple(steps[ends - 1].tolist()), tuple(means.tolist()))
