"""What an evaluated run confuses, and how far its probabilities can be trusted: ``bertkit.visualize.confusion``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertkit.errors import ConfigError, counted, did_you_mean, plural
from bertkit.inference.runs import how_to_read
from bertkit.metrics.calibration import Bins
from bertkit.system.model_sources import resolve
from bertkit.tasks.examples import Row
from bertkit.tasks.workflow import AnyWorkflow
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.evaluation_pictures import bins_of_rows, confusion_and_calibration, counts_of_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Pairs of labels that a terminal shows.
_MOST_SHOWN = 10
#: How the files of predictions begin, of the run itself and of later evaluations.
_PREFIXES = ("", "evaluation-")


@dataclass(frozen=True, slots=True)
class Confusion(Drawn):
    """What was predicted in place of what was right.

    split: name of the scored set. num_rows: of texts; of tags, words; num_right: those predicted as labelled.
    unit: what a row is, ``"row"`` or ``"word"``.
    labels, matrix: a row for each true label ``(L, L)``; of very many labels the frequent ones, and the others
        together. matrix is None where a text has any number of labels.
    calibration: accuracy by predicted probability; None where no probabilities were kept.
    """

    title: ClassVar[str] = "Confusion"
    split: str
    num_rows: int
    num_right: int
    labels: Sequence[str]
    matrix: npt.NDArray[np.int64] | None
    calibration: Bins | None
    unit: str = "row"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: arrays as lists, what was not measured as None."""
        bins = self.calibration
        return {
            "split": self.split,
            "num_rows": self.num_rows,
            "num_right": self.num_right,
            "labels": list(self.labels),
            "matrix": None if self.matrix is None else self.matrix.tolist(),
            "calibration": None
            if bins is None
            else {
                "count": bins.count.tolist(),
                "probability": bins.confidence.tolist(),
                "accuracy": bins.accuracy.tolist(),
                "error": bins.error,
            },
        }

    def render(self) -> str:
        """Accuracy, the most frequent confusions, the calibration error."""
        lines = [f"{self.split}: {counted(self.num_rows, self.unit)}"]
        if self.matrix is not None:
            lines[0] += f", {self.num_right / self.num_rows:.1%} right"
            lines += self._confused(self.matrix)
        if self.calibration is not None:
            lines.append(f"calibration error {self.calibration.error:.4f} (mean distance of probability and accuracy)")
        return "\n".join(lines)

    def _confused(self, matrix: npt.NDArray[np.int64]) -> list[str]:
        wrong = Counter({(r, c): int(n) for (r, c), n in np.ndenumerate(matrix) if r != c and n})
        if among := int(matrix.trace()) - self.num_right:  # the last row joins rare labels, and they are confused too
            wrong[len(matrix) - 1, len(matrix) - 1] = among
        lines = [f"{plural(self.unit):>7}  of its label  true label -> predicted"] if wrong else []
        for (row, column), count in wrong.most_common(_MOST_SHOWN):
            share = count / matrix[row].sum()
            lines.append(f"{count:7,}  {share:12.1%}  {self.labels[row]} -> {self.labels[column]}")
        return lines

    def figure(self) -> Figure:
        return confusion_and_calibration(self.matrix, self.labels, self.calibration, self.split)


def confusion(run: str | Path, split: str = "dev") -> Confusion:
    """The confusion matrix and the calibration of a scored set of a run.

    Args:
        run: a folder of ``bertkit finetune``; what it wrote of dev is read, and of what ``bertkit evaluate`` scored.
        split: dev, or the name of a later evaluation: that in ``evaluation-NAME.json``.

    Raises:
        ConfigError: no such set, or a task without labels.
        CheckpointError: no run folder, or damaged files.
    """
    workflow, rows = scored_rows(run, split)
    several = isinstance(rows[0]["gold"], list)
    probable = "probabilities" in rows[0]
    labels = workflow.label_names
    if not several:  # those that occur
        found = {str(label) for row in rows for label in (row["gold"], row["predicted"])}
        labels = [*filter(found.__contains__, labels), *sorted(found - set(labels))]
    matrix, shown = (None, labels) if several else counts_of_rows(rows, labels)
    num_right = sum(row["gold"] == row["predicted"] for row in rows)
    bins, unit = bins_of_rows(rows) if probable else None, "word" if workflow.of_tokens else "row"
    return Confusion(split, len(rows), num_right, shown, matrix, bins, unit)


def scored_rows(run: str | Path, split: str) -> tuple[AnyWorkflow, list[Row]]:
    """The workflow of a run, and the gold and predicted labels of a set that it was scored on."""
    workflow, folder, prefix = scored_set(run, split)
    rows = workflow.label_rows(folder, split, prefix)
    if not rows:
        raise ConfigError(
            f"task {workflow.task.name} has no labels that could be confused"
            if rows is None
            else f"{folder}: the predictions of {split!r} have no row"
        )
    return workflow, rows


def scored_set(run: str | Path, split: str) -> tuple[AnyWorkflow, Path, str]:
    """The workflow of a run, its folder, and how the names of the files begin that it keeps of a scored set."""
    folder = resolve(run)
    found = how_to_read(folder)
    if found is None:
        raise ConfigError(f"{folder} is not a run folder of 'bertkit finetune'; a checkpoint keeps no predictions")
    workflow = found[0]
    known: dict[str, str] = {}
    for prefix in _PREFIXES:
        for path in sorted(folder.glob(f"{prefix}predictions-*")):
            name = path.stem.removeprefix(f"{prefix}predictions-")
            known.setdefault(name, prefix)
    if split not in known:
        listed = ", ".join(known) or "none; score it with 'bertkit evaluate'"
        raise ConfigError(f"{folder} has no predictions of {split!r}{did_you_mean(split, known)}; it has: {listed}")
    return workflow, folder, known[split]
