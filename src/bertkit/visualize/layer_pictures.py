"""Pictures of layers: curves of probes, and how similar layers are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertkit.visualize.figures import BLUE, GREY, ORANGE, Floats, add_axes, empty_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Layers of each model up to which the numbers stand in a heat map.
MOST_NUMBERS = 14
_LONGEST = 30


class Curve(NamedTuple):
    """The probes of the layers of a model."""

    name: str
    accuracy: Floats
    low: Floats
    high: Floats
    control: Floats


class HeatMap(NamedTuple):
    """How similar layers of one model (down) are to layers of another or the same (across)."""

    down: str
    across: str
    values: Floats


def layers_figure(curves: Sequence[Curve], majority: float | None, heat: HeatMap | None) -> Figure:
    """Curves of probes, or a heat map, or both beside each other."""
    parts = bool(curves) + (heat is not None)
    figure = empty_figure(1.2 + 5.3 * parts, 5.0)
    if curves:
        _draw_curves(add_axes(figure, 1, parts, 1), curves, majority)
    if heat is not None:
        _draw_heat(figure, add_axes(figure, 1, parts, parts), heat)
    return figure


def _draw_curves(axes: Axes, curves: Sequence[Curve], majority: float | None) -> None:
    for curve, color, mark in zip(curves, (BLUE, ORANGE), ("o", "s"), strict=False):
        layers, name = np.arange(len(curve.accuracy)), f"{_short(curve.name)}: " if len(curves) > 1 else ""
        axes.fill_between(layers, curve.low, curve.high, color=color, alpha=0.15, linewidth=0)
        axes.plot(layers, curve.accuracy, color=color, marker=mark, label=f"{name}labels")
        axes.plot(layers, curve.control, color=color, marker=mark, linestyle="--", alpha=0.7, label=f"{name}control")
    if majority is not None:
        axes.axhline(majority, color=GREY, linestyle=":", label="most frequent label")
    axes.set_xlabel("layer (0: embeddings)")
    axes.set_ylabel("accuracy of a linear probe on dev")
    axes.set_xticks(_ticks(max(len(curve.accuracy) for curve in curves)))
    lowest = min([each.min() for curve in curves for each in (curve.low, curve.control)])
    axes.set_ylim(bottom=max(0.0, np.floor(10 * min(lowest, 0.9 if majority is None else majority)) / 10), top=1.02)
    axes.legend(
        frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3 if len(curves) == 1 else 2
    )


def _draw_heat(figure: Figure, axes: Axes, heat: HeatMap) -> None:
    image = axes.imshow(np.clip(heat.values, 0, 1), cmap="Blues", vmin=0.0, vmax=1.0, origin="lower")
    axes.grid(visible=False)
    axes.set_facecolor("#f0e0c0")  # a layer in which all examples are the same has no similarity
    same = heat.down == heat.across
    axes.set_xlabel("layer" if same else f"layer of {_short(heat.across)}")
    axes.set_ylabel("layer" if same else f"layer of {_short(heat.down)}")
    axes.set_yticks(_ticks(heat.values.shape[0]))
    axes.set_xticks(_ticks(heat.values.shape[1]))
    if max(heat.values.shape) <= MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(heat.values):
            shown = "-" if np.isnan(value) else "1" if value > 0.995 else f"{max(value, 0.0):.2f}"[1:]
            color = "white" if value > 0.6 else "black"
            axes.text(column, row, shown, ha="center", va="center", fontsize=8, color=color)
    figure.colorbar(image, ax=axes, shrink=0.8, label="similarity (CKA)")


def _ticks(count: int) -> list[int]:
    return list(range(0, count, 1 + count // 20))


def _short(name: str) -> str:
    return plain(name if len(name) <= _LONGEST else "…" + name[1 - _LONGEST :])
