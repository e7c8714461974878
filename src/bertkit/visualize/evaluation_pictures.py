"""Pictures of an evaluation: confusion matrix, calibration, scores by type, predicted against true scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.calibration import Bins, calibration_bins
from bertkit.metrics.scores import confusion_matrix
from bertkit.metrics.threshold_curves import ThresholdCurve, threshold_curve
from bertkit.visualize.figures import (
    BLACK,
    BLUE,
    COLORS,
    GREY,
    ORANGE,
    Record,
    add_axes,
    empty_figure,
    new_figure,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCORE_COLORS = {"precision": BLUE, "recall": ORANGE, "f1": BLACK}
#: From this many labels on, the numbers in a confusion matrix would not be readable.
MOST_NUMBERS = 25
#: Labels in a confusion matrix; of more, those that most rows have.
MOST_LABELS = 60
#: Labels whose curves are told apart in one picture.
MOST_CURVES = 8


def confusion(matrix: npt.ArrayLike, labels: Sequence[str]) -> Figure:
    """A confusion matrix, a row for each true label: color is the share of that row, the number is the count."""
    side = _side(len(labels))
    figure, axes = new_figure(side + 1.5, side)
    _draw_matrix(figure, axes, matrix, labels)
    return figure


def confusion_and_calibration(
    matrix: npt.ArrayLike | None, labels: Sequence[str], bins: Bins | None, name: str
) -> Figure:
    """The two side by side, or the one that there is."""
    if matrix is None:
        assert bins is not None
        return reliability(bins, name)
    if bins is None:
        return confusion(matrix, labels)
    side = _side(len(labels))
    figure = empty_figure(2 * side + 1.5, side)
    _draw_matrix(figure, add_axes(figure, 1, 2, 1), matrix, labels)
    _draw_bins(add_axes(figure, 1, 2, 2), bins, name)
    return figure


def _side(size: int) -> float:
    return min(12.0, 4.5 + 0.35 * size)


def short_names(labels: Sequence[str], length: int = 24) -> list[str]:
    """Labels cut to a length for an axis: those that would look alike lose their middle, or get a number."""
    ends = length // 2 - 1
    cut = [label if len(label) <= length else f"{label[: length - 1]}…" for label in labels]
    alike = Counter(cut)
    cut = [
        f"{label[:ends]}…{label[-ends:]}" if alike[name] > 1 and len(label) > length else name
        for name, label in zip(cut, labels, strict=True)
    ]
    alike = Counter(cut)
    return [f"{name} ({number})" if alike[name] > 1 else name for number, name in enumerate(cut, start=1)]


def _draw_matrix(figure: Figure, axes: Axes, matrix: npt.ArrayLike, labels: Sequence[str]) -> None:
    counts = np.asarray(matrix)
    size = len(labels)
    if counts.shape != (size, size):
        raise InputError(f"a confusion matrix of {size} labels has shape {(size, size)}, got {counts.shape}")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    names = [plain(name) for name in short_names(labels)]
    axes.set_xticks(range(size), names, rotation=0 if size <= 4 else 90)
    axes.set_yticks(range(size), names)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true label")
    if size <= MOST_NUMBERS:
        for row, column in np.ndindex(size, size):
            dark = shares[row, column] > 0.5
            text = f"{counts[row, column]:,}" + (f"\n{100 * shares[row, column]:.0f} %" if size <= 8 else "")
            axes.text(
                column, row, text, ha="center", va="center",
                color="white" if dark else "black", fontsize=11 if size <= 8 else 7,
            )  # fmt: skip
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, shrink=0.8, label="share of the true label's rows")


def confusion_of_rows(rows: Sequence[Record], labels: Sequence[str]) -> Figure:
    """:func:`confusion` of the lines of a ``predictions-*.jsonl`` (``gold`` and ``predicted``)."""
    return confusion(*counts_of_rows(rows, labels))


def counts_of_rows(rows: Sequence[Record], labels: Sequence[str]) -> tuple[npt.NDArray[np.int64], list[str]]:
    """The confusion matrix of such lines, and its labels.

    Labels that no line has are left out. Of more than :data:`MOST_LABELS` those that most rows have, and all others
    together.
    """
    counts = Counter(row["gold"] for row in rows)
    there = counts.keys() | {row["predicted"] for row in rows}
    labels = [label for label in labels if label in there]
    frequent = set(sorted(labels, key=lambda label: -counts[label])[:MOST_LABELS])
    shown = [label for label in labels if label in frequent]
    number = {**dict.fromkeys(labels, len(shown)), **{label: index for index, label in enumerate(shown)}}
    if len(labels) > len(shown):
        shown.append(f"{len(labels) - len(shown):,} others")
    predicted, right = ([number[row[name]] for row in rows] for name in ("predicted", "gold"))
    return confusion_matrix(predicted, right, len(shown)), shown


def curves_of_rows(rows: Sequence[Record], labels: Sequence[str]) -> Figure | None:
    """ROC and precision-recall curves, of each label against all others, of lines with ``probabilities``.

    Of two labels that exclude each other the second is drawn; of more than :data:`MOST_CURVES` those that most rows
    have. None where no label has rows with and without it, or not every line has all probabilities.
    """
    several = isinstance(rows[0]["gold"], list)
    found = labels[1:] if len(labels) == 2 and not several else labels
    counts = Counter(label for row in rows for label in (row["gold"] if several else [row["gold"]]))
    frequent = sorted(found, key=lambda label: -counts[label])[:MOST_CURVES]
    curves = {}
    for label in frequent:
        right = [label in row["gold"] if several else label == row["gold"] for row in rows]
        if all(label in row["probabilities"] for row in rows) and 0 < sum(right) < len(right):
            curves[label] = threshold_curve([row["probabilities"][label] for row in rows], right)
    return threshold_pictures(curves) if curves else None


def threshold_pictures(curves: Mapping[str, ThresholdCurve]) -> Figure:
    """ROC curves on the left, precision-recall curves on the right, with their areas."""
    figure = empty_figure(11.0, 5.0)
    roc, precise = add_axes(figure, 1, 2, 1), add_axes(figure, 1, 2, 2)
    names = [plain(name) for name in short_names(list(curves))]
    for name, curve, color in zip(names, curves.values(), COLORS, strict=False):
        false, true = ([0.0, *rate.tolist()] for rate in (curve.false_rate, curve.true_rate))
        roc.plot(false, true, color=color, linewidth=1.6, label=f"{name}: {curve.area:.3f}")
        average = f"{name}: {curve.average_precision:.3f}"
        precise.step(curve.true_rate, curve.precision, where="pre", color=color, linewidth=1.6, label=average)
    roc.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2)
    for axes, title, across, up in (
        (roc, "area under the ROC curve", "share of the other rows taken", "share of the label's rows taken"),
        (precise, "average precision", "recall", "precision"),
    ):
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.legend(frameon=False, loc="lower right" if axes is roc else "lower left", title=title, fontsize=9)
    return figure


def reliability_of_rows(rows: Sequence[Record], name: str = "dev") -> Figure:
    """A reliability diagram, accuracy against predicted probability, of the lines of a ``predictions-*.jsonl``."""
    return reliability(bins_of_rows(rows), name)


def bins_of_rows(rows: Sequence[Record]) -> Bins:
    """The calibration of such lines.

    Reads ``gold`` and ``probabilities``, which are those of the likeliest labels where there are many.
    """
    if isinstance(rows[0]["gold"], list):
        each = [(share, label in row["gold"]) for row in rows for label, share in row["probabilities"].items()]
    else:
        likeliest = [max(row["probabilities"].items(), key=itemgetter(1)) for row in rows]
        each = [(share, label == row["gold"]) for (label, share), row in zip(likeliest, rows, strict=True)]
    shares, correct = np.array(each).T
    return calibration_bins(np.clip(shares, 0, 1), correct)


def reliability(bins: Bins, name: str) -> Figure:
    """A reliability diagram of the rows that ``name`` names."""
    figure, axes = new_figure(6.0, 6.0)
    _draw_bins(axes, bins, name)
    return figure


def _draw_bins(axes: Axes, found: Bins, rows: str) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="perfect calibration")
    axes.plot(found.confidence, found.accuracy, color=BLUE, linewidth=1.4, alpha=0.7)
    size, name = 12 + 240 * found.count / found.count.sum(), f"{plain(rows)}: error {found.error:.3f}"
    axes.scatter(found.confidence, found.accuracy, s=size, color=BLUE, label=name, zorder=3, clip_on=False)
    axes.set_xlabel("probability")
    axes.set_ylabel("accuracy")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.legend(frameon=False, loc="upper left")


def scores_by_type(by_type: Mapping[str, Mapping[str, float]]) -> Figure:
    """Precision, recall and F1 of each type, the most frequent type first (``by_type`` of an ``entities-*.json``)."""
    kinds = sorted(by_type, key=lambda kind: (-by_type[kind]["support"], kind))[:MOST_NUMBERS]
    figure, axes = new_figure(6.5, 1.2 + 0.55 * max(len(kinds), 1))
    places = np.arange(len(kinds))
    for shift, (name, color) in zip((-0.26, 0.0, 0.26), SCORE_COLORS.items(), strict=True):
        values = [by_type[kind][name] for kind in kinds]
        axes.barh(places + shift, values, height=0.24, color=color, label=name)
        for place, value in zip(places + shift, values, strict=True):
            axes.text(value + 0.01, place, f"{value:.2f}", va="center", fontsize=8, color="#404040")
    axes.set_yticks(places, [f"{plain(kind)} ({int(by_type[kind]['support']):,})" for kind in kinds])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.08)
    axes.set_xlabel("score by type (number of entities)")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def regression(rows: Sequence[Record]) -> Figure:
    """Predicted against true scores, one point per row of a ``predictions-*.jsonl``."""
    right = np.array([row["gold"] for row in rows], dtype=np.float64)
    predicted = np.array([row["predicted"] for row in rows], dtype=np.float64)
    figure, axes = new_figure(6.0, 6.0)
    axes.scatter(right, predicted, s=14, color=BLUE, alpha=0.35, linewidths=0)
    low, high = min(right.min(), predicted.min()), max(right.max(), predicted.max())
    axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=1.2, label="predicted = true")
    axes.set_xlabel("true score")
    axes.set_ylabel("predicted score")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False)
    return figure
