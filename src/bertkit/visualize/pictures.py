"""Pictures of a run: loss curve, confusion matrix, predicted against true scores; and of a benchmark.

Drawn with matplotlib's object interface: no window, no global state, nothing that a notebook or a server would notice.
Each function writes a PNG file and returns its path.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, require
from bertkit.metrics.calibration import calibration_bins
from bertkit.metrics.scores import confusion_matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
#: A line of a log or of predictions, as ``json`` reads it.
Record = Mapping[str, Any]
#: Steps and values.
Points = Sequence[tuple[int, float]]

#: Inches and dots an inch: 8 x 5 at 100 is 800 x 500 pixels.
WIDTH, HEIGHT, DPI = 8.0, 5.0, 100
#: Colors that stay apart for color-blind readers and in grey (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#999999", "#000000"
COLORS = (BLUE, ORANGE, GREEN, GREY, BLACK, "#56B4E9", "#E69F00", "#CC79A7", "#F0E442")
SCORE_COLORS = {"precision": BLUE, "recall": ORANGE, "f1": BLACK}
#: From this many labels on, the numbers in a confusion matrix would not be readable.
MOST_NUMBERS = 25
#: Labels in a confusion matrix; of more, those that most rows have.
MOST_LABELS = 60


def loss_curve(records: Sequence[Record], path: str | Path, *, metric: str | None = None) -> Path:
    """Training loss of every step; dev loss and score (``metric``) of every epoch of a ``log.jsonl``, best marked."""
    steps, epochs = _steps_and_epochs(records)
    losses, dev = np.array([record["loss"] for record in steps]), _points(epochs, "dev_loss")
    figure, axes = _draw_losses(steps, losses, dev, names=("train loss", "dev loss"))
    axes.set_ylabel("loss")
    top = max([_smooth(losses).max(), *(value for _, value in dev)])
    axes.set_ylim(0, 1.08 * top if math.isfinite(top) and top > 0 else None)
    _draw_legend(figure, axes, None if metric is None else _draw_score(axes, epochs, metric))
    return _save(figure, path)


def pretrain_curve(records: Sequence[Record], path: str | Path, *, unigram_entropy: float) -> Path:
    """Loss of every step and of held-out text, of words only, against the unigram entropy, with accuracies.

    A loss that stays at the line is that of a model that knows how frequent words are, and nothing of their context.

    ``records`` are the lines of the run's ``log.jsonl`` (an InputError if none is a step); the entropy is in nats.
    """
    steps, epochs = _steps_and_epochs(records)
    losses = np.array([record.get("masked_lm_loss", record["loss"]) for record in steps])
    dev = _points(epochs, "dev_masked_lm_loss") or _points(epochs, "dev_denoising_loss")
    figure, axes = _draw_losses(steps, losses, dev, names=("training loss", "held-out loss"))
    name = f"unigram entropy {unigram_entropy:.2f}"
    axes.axhline(unigram_entropy, color=GREY, linestyle="--", linewidth=1.4, label=name)
    axes.set_ylabel("loss per token (nats)")
    axes.set_ylim(0, 1.08 * max([_smooth(losses).max(), unigram_entropy, *(value for _, value in dev)]))
    _draw_legend(figure, axes, _draw_accuracies(axes, epochs), columns=3)
    return _save(figure, path)


def _steps_and_epochs(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    steps = [record for record in records if "event" not in record]
    if not steps:
        raise InputError("there is no training step in the log, so no curve to draw")
    return steps, [record for record in records if record.get("event") == "epoch"]


def _points(epochs: Sequence[Record], name: str) -> list[tuple[int, float]]:
    return [(record["step"], record[name]) for record in epochs if record.get(name) is not None]


def _draw_losses(
    steps: Sequence[Record], losses: Floats, dev: Points, *, names: tuple[str, str]
) -> tuple[Figure, Axes]:
    """A new figure with the loss of every step, raw and smoothed, and of every evaluation, under their names."""
    figure, axes = _figure(WIDTH, HEIGHT)
    x = [record["step"] for record in steps]
    axes.plot(x, losses, color=BLUE, alpha=0.25, linewidth=0.8)
    axes.plot(x, _smooth(losses), color=BLUE, linewidth=1.8, label=names[0])
    _draw_points(axes, dev, ORANGE, "o", names[1])
    axes.set_xlabel("optimizer step")
    axes.set_xlim(0, x[-1])
    return figure, axes


def _draw_points(axes: Axes, points: Points, color: str, marker: str, name: str) -> None:
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=color, marker=marker, clip_on=False, linewidth=1.5, label=name)


def _draw_accuracies(axes: Axes, epochs: Sequence[Record]) -> Axes | None:
    """Held-out accuracies of pre-training on a right axis from 0 to 1, so that two runs' pictures can be compared."""
    terms = ("masked_lm", "next_sentence", "denoising")
    words, pairs, writing = (_points(epochs, f"dev_{term}_accuracy") for term in terms)
    if not words and not pairs and not writing:
        return None
    right = _right_axis(axes, "held-out accuracy")
    _draw_points(right, words, GREEN, "s", "masked-LM accuracy")
    _draw_points(right, pairs, BLACK, "^", "next-sentence accuracy")
    _draw_points(right, writing, GREEN, "s", "token accuracy")
    right.set_ylim(0, 1)
    return right


def _draw_score(axes: Axes, epochs: Sequence[Record], metric: str) -> Axes | None:
    name = f"dev_{metric}"
    points = _points(epochs, name)
    if not points:
        return None
    right = _right_axis(axes, f"dev {metric}")
    _draw_points(right, points, GREEN, "s", f"dev {metric}")
    # As the trainer chooses: of equal scores the one with the lower dev loss.
    known = [record for record in epochs if record.get(name) is not None]
    kept = max(known, key=lambda r: (r[name], -math.inf if r.get("dev_loss") is None else -r["dev_loss"]))
    right.annotate(
        f"best {kept[name]:.3f}",
        (kept["step"], kept[name]),
        xytext=(0, 9),
        textcoords="offset points",
        ha="center",
        color=GREEN,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )
    right.axvline(kept["step"], color=GREEN, linestyle=":", linewidth=1.2)
    values = [value for _, value in points]
    room = max(0.02, 0.25 * (max(values) - min(values)))
    right.set_ylim(min(values) - room, max(values) + room)
    return right


def confusion(matrix: npt.ArrayLike, labels: Sequence[str], path: str | Path) -> Path:
    """A confusion matrix, a row for each true label: color is the share of that row, the number is the count."""
    counts = np.asarray(matrix)
    size = len(labels)
    if counts.shape != (size, size):
        raise InputError(f"a confusion matrix of {size} labels has shape {(size, size)}, got {counts.shape}")
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = min(12.0, 4.5 + 0.35 * size)
    figure, axes = _figure(side + 1.5, side)
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    names = [_plain(label if len(label) <= 18 else label[:17] + "…") for label in labels]
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
    return _save(figure, path)


def confusion_of_rows(rows: Sequence[Record], labels: Sequence[str], path: str | Path) -> Path:
    """:func:`confusion` of the lines of a ``predictions-*.jsonl`` (``gold`` and ``predicted``).

    Of more than :data:`MOST_LABELS` labels those that most rows have, and all others together.
    """
    counts = Counter(row["gold"] for row in rows)
    frequent = set(sorted(labels, key=lambda label: -counts[label])[:MOST_LABELS])
    shown = [label for label in labels if label in frequent]
    number = {**dict.fromkeys(labels, len(shown)), **{label: index for index, label in enumerate(shown)}}
    if len(labels) > len(shown):
        shown.append(f"{len(labels) - len(shown):,} others")
    predicted, right = ([number[row[name]] for row in rows] for name in ("predicted", "gold"))
    return confusion(confusion_matrix(predicted, right, len(shown)), shown, path)


def reliability_of_rows(rows: Sequence[Record], path: str | Path) -> Path:
    """A reliability diagram, accuracy against predicted probability, of the lines of a ``predictions-*.jsonl``.

    Reads ``gold`` and ``probabilities``, which are those of the likeliest labels where there are many.
    """
    if isinstance(rows[0]["gold"], list):
        each = [(share, label in row["gold"]) for row in rows for label, share in row["probabilities"].items()]
    else:
        likeliest = [max(row["probabilities"].items(), key=itemgetter(1)) for row in rows]
        each = [(share, label == row["gold"]) for (label, share), row in zip(likeliest, rows, strict=True)]
    shares, correct = np.array(each).T
    found = calibration_bins(np.clip(shares, 0, 1), correct)
    figure, axes = _figure(6.0, 6.0)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="perfect calibration")
    axes.plot(found.confidence, found.accuracy, color=BLUE, linewidth=1.4, alpha=0.7)
    size, name = 12 + 240 * found.count / found.count.sum(), f"dev: error {found.error:.3f}"
    axes.scatter(found.confidence, found.accuracy, s=size, color=BLUE, label=name, zorder=3)
    axes.set_xlabel("probability")
    axes.set_ylabel("accuracy")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_aspect("equal")
    axes.legend(frameon=False, loc="upper left")
    return _save(figure, path)


def scores_by_type(by_type: Mapping[str, Mapping[str, float]], path: str | Path) -> Path:
    """Precision, recall and F1 of each type, the most frequent type first (``by_type`` of an ``entities-*.json``)."""
    kinds = sorted(by_type, key=lambda kind: (-by_type[kind]["support"], kind))[:MOST_NUMBERS]
    figure, axes = _figure(6.5, 1.2 + 0.55 * max(len(kinds), 1))
    places = np.arange(len(kinds))
    for shift, (name, color) in zip((-0.26, 0.0, 0.26), SCORE_COLORS.items(), strict=True):
        values = [by_type[kind][name] for kind in kinds]
        axes.barh(places + shift, values, height=0.24, color=color, label=name)
        for place, value in zip(places + shift, values, strict=True):
            axes.text(value + 0.01, place, f"{value:.2f}", va="center", fontsize=8, color="#404040")
    axes.set_yticks(places, [f"{_plain(kind)} ({int(by_type[kind]['support']):,})" for kind in kinds])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.08)
    axes.set_xlabel("score by type (number of entities)")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return _save(figure, path)


def regression(rows: Sequence[Record], path: str | Path) -> Path:
    """Predicted against true scores, one point per row of a ``predictions-*.jsonl``."""
    right = np.array([row["gold"] for row in rows], dtype=np.float64)
    predicted = np.array([row["predicted"] for row in rows], dtype=np.float64)
    figure, axes = _figure(6.0, 6.0)
    axes.scatter(right, predicted, s=14, color=BLUE, alpha=0.35, linewidths=0)
    low, high = min(right.min(), predicted.min()), max(right.max(), predicted.max())
    axes.plot([low, high], [low, high], color=GREY, linestyle="--", linewidth=1.2, label="predicted = true")
    axes.set_xlabel("true score")
    axes.set_ylabel("predicted score")
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False)
    return _save(figure, path)


def relative_times(bars: Mapping[str, Sequence[float]], groups: Sequence[str], base: str, path: str | Path) -> Path:
    """Times of several systems, each with one value a group of bars, as shares of those of ``base``, which are 1."""
    figure, axes = _figure(WIDTH, 1.5 + 0.22 * len(groups) * (len(bars) + 1))
    places, height = np.arange(len(groups)), 0.85 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        own = places + (number - (len(bars) - 1) / 2) * height
        # From 1 outwards on a logarithmic scale, so that twice and half as fast look alike.
        widths = np.asarray(values) - 1.0
        axes.barh(own, widths, left=1.0, height=0.9 * height, color=COLORS[number % len(COLORS)], label=_plain(name))
        for place, value in zip(own, values, strict=True):
            side = "left" if value >= 1 else "right"
            axes.text(value, place, f" {value:.2f} ", va="center", ha=side, fontsize=7, color="#404040")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1.0, color=BLACK, linewidth=1.0)
    axes.set_yticks(places, list(groups))
    axes.invert_yaxis()
    every = [value for values in bars.values() for value in values]
    axes.set_xlim(0.7 * min(1.0, *every), 1.4 * max(1.0, *every))
    axes.set_xlabel(f"time, {_plain(base)} = 1 (further left is faster)")
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside upper center", ncols=min(4, len(bars)), frameon=False)
    return _save(figure, path)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    module = require("matplotlib.figure", extra="plots", needed_for="drawing pictures")
    figure: Figure = module.Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _right_axis(axes: Axes, name: str) -> Axes:
    right = axes.twinx()
    right.spines["top"].set_visible(False)
    right.set_ylabel(name)
    return right


def _plain(name: str) -> str:
    """A name with dollar signs escaped, which matplotlib would read as mathematics."""
    return name.replace("$", r"\$")


def _smooth(values: Floats) -> Floats:
    """Mean over a window of a twentieth of the steps, cut off at both ends."""
    half = max(1, len(values) // 40)
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    start, end = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    smoothed: Floats = (total[end] - total[start]) / (end - start)
    return smoothed


def _draw_legend(figure: Figure, axes: Axes, right: Axes | None, *, columns: int | None = None) -> None:
    """One legend for the curves of both axes, above them."""
    lines, names = axes.get_legend_handles_labels()
    more = ([], []) if right is None else right.get_legend_handles_labels()
    lines, names = [*lines, *more[0]], [*names, *more[1]]
    figure.legend(lines, names, loc="outside upper center", ncols=columns or len(names), frameon=False)


def _save(figure: Figure, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    return path
