"""Curves of a training run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bertkit.errors import InputError
from bertkit.visualize.figures import (
    BLACK,
    BLUE,
    COLORS,
    GREEN,
    GREY,
    HEIGHT,
    ORANGE,
    WIDTH,
    Floats,
    Record,
    add_axes,
    draw_legend,
    empty_figure,
    new_figure,
    plain,
    right_axis,
    smooth,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Steps and values.
Points = Sequence[tuple[int, float]]
#: Losses of words in pre-training: a run has one of them.
_WORDS = ("masked_lm", "denoising", "next_word")
#: Scores on dev that get a picture of their own, the first of a log.
MOST_SCORES = 4
#: Room above and below the curves, as a share of the height that they take.
_MARGIN = 0.05
#: Names of the numbers in a log, for people.
_LABELS = {"lr": "learning rate", "grad_norm": "gradient norm", "dev_loss": "dev loss", "loss": "training loss"}


@dataclass(frozen=True, slots=True)
class Curve:
    """Values at optimizer steps."""

    steps: Sequence[int]
    values: Sequence[float]


def compare_curves(runs: Mapping[str, Mapping[str, Curve]]) -> Figure:
    """A small picture for each number that the logs of runs have, with a line for each run."""
    names = list(dict.fromkeys(name for curves in runs.values() for name in curves))
    scores = [name for name in names if name.startswith("dev_") and name != "dev_loss"][:MOST_SCORES]
    speeds = [name for name in names if name.endswith("_per_s")]
    shown = [name for name in ("loss", "dev_loss", *scores, "lr", "grad_norm", *speeds) if name in names]
    columns = min(3, len(shown))
    rows = math.ceil(len(shown) / columns)
    figure = empty_figure(4.2 * columns, 3.0 * rows + 0.4)
    for number, name in enumerate(shown):
        axes = add_axes(figure, rows, columns, number + 1)
        noisy = not name.startswith("dev_") and name != "lr"
        ranges = [
            _draw_curve(axes, curves[name], color, run, noisy=noisy)
            for color, (run, curves) in zip(COLORS, runs.items(), strict=False)
            if name in curves
        ]
        low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        if low < high:
            axes.set_ylim(low - _MARGIN * (high - low), high + _MARGIN * (high - low))
        axes.set_title(_LABELS.get(name, name.replace("_per_s", " per second").replace("_", " ")), fontsize=10)
        axes.set_xlabel("optimizer step", fontsize=8)
        axes.locator_params(axis="x", integer=True)
        axes.tick_params(labelsize=8)
    if len(runs) > 1:
        lines, labels = max((axes.get_legend_handles_labels() for axes in figure.axes), key=lambda found: len(found[1]))
        figure.legend(lines, labels, loc="outside upper center", ncols=min(3, len(runs)), frameon=False)
    return figure


def _draw_curve(axes: Axes, curve: Curve, color: str, run: str, *, noisy: bool) -> tuple[float, float]:
    """Draw a curve; the lowest and the highest value that must be seen of it."""
    values = np.asarray(curve.values)
    low, high = values.min(), values.max()
    marker = "o" if len(values) <= 30 else ""
    if noisy and not marker:
        axes.plot(curve.steps, values, color=color, alpha=0.25, linewidth=0.7)
        smoothed = smooth(values)
        high = max(np.quantile(values, 0.995), smoothed.max())  # spikes of single steps would flatten the rest
        values = smoothed
    axes.plot(curve.steps, values, color=color, marker=marker, markersize=3, linewidth=1.4, label=plain(run))
    return float(low), float(high)


def loss_curve(records: Sequence[Record], *, metric: str | None = None) -> Figure:
    """Training loss of every step; dev loss and score (``metric``) of every epoch of a ``log.jsonl``, best marked."""
    steps, epochs = _steps_and_epochs(records)
    losses, dev = np.array([record["loss"] for record in steps]), _points(epochs, "dev_loss")
    figure, axes = _draw_losses(steps, losses, dev, names=("train loss", "dev loss"))
    axes.set_ylabel("loss")
    top = max([smooth(losses).max(), *(value for _, value in dev)])
    axes.set_ylim(0, 1.08 * top if math.isfinite(top) and top > 0 else None)
    draw_legend(figure, axes, None if metric is None else _draw_score(axes, epochs, metric))
    return figure


def pretrain_curve(records: Sequence[Record], *, unigram_entropy: float) -> Figure:
    """Loss of every step and of held-out text, of words only, against the unigram entropy, with accuracies.

    A loss that stays at the line is that of a model that knows how frequent words are, and nothing of their context.

    ``records`` are the lines of the run's ``log.jsonl`` (an InputError if none is a step); the entropy is in nats.
    """
    steps, epochs = _steps_and_epochs(records)
    losses = np.array([record.get("masked_lm_loss", record["loss"]) for record in steps])
    dev = next(filter(None, (_points(epochs, f"dev_{term}_loss") for term in _WORDS)), [])
    figure, axes = _draw_losses(steps, losses, dev, names=("training loss", "held-out loss"))
    name = f"unigram entropy {unigram_entropy:.2f}"
    axes.axhline(unigram_entropy, color=GREY, linestyle="--", linewidth=1.4, label=name)
    axes.set_ylabel("loss per token (nats)")
    axes.set_ylim(0, 1.08 * max([smooth(losses).max(), unigram_entropy, *(value for _, value in dev)]))
    draw_legend(figure, axes, _draw_accuracies(axes, epochs), columns=3)
    return figure


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
    figure, axes = new_figure(WIDTH, HEIGHT)
    x = [record["step"] for record in steps]
    axes.plot(x, losses, color=BLUE, alpha=0.25, linewidth=0.8)
    axes.plot(x, smooth(losses), color=BLUE, linewidth=1.8, label=names[0])
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
    terms = ("masked_lm", "next_sentence", "denoising", "next_word")
    words, pairs, writing, next_words = (_points(epochs, f"dev_{term}_accuracy") for term in terms)
    writing = writing or next_words
    if not words and not pairs and not writing:
        return None
    right = right_axis(axes, "held-out accuracy")
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
    right = right_axis(axes, f"dev {metric}")
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
