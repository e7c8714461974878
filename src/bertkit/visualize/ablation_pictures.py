"""Pictures of ablations: differences from the base with their intervals, and loss curves of several arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bertkit.visualize.figures import BLUE, COLORS, GREY, WIDTH, draw_legend, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Inches that a row takes, and all else.
_ROW, _FRAME = 0.42, 1.3
_STYLES = ("-", "--", ":", "-.")


class Interval(NamedTuple):
    """A difference by name, and where it may lie."""

    name: str
    difference: float | None
    interval: tuple[float, float] | None


def difference_picture(rows: Sequence[Interval], *, title: str, base: str) -> Figure:
    """A point with its 95 % interval for each row, the first row on top, and a line at 0."""
    figure, axes = new_figure(WIDTH, _FRAME + _ROW * max(1, len(rows)))
    axes.axvline(0.0, color=GREY, linestyle="--", linewidth=1.2)
    for place, (_, difference, interval) in enumerate(rows):
        if interval is not None:
            axes.plot(interval, (place, place), color=BLUE, linewidth=2.4, solid_capstyle="round")
        if difference is not None:
            axes.plot([difference], [place], color=BLUE, marker="o", markersize=6)
    axes.set_yticks(range(len(rows)), [plain(_short(row.name)) for row in rows])
    axes.set_ylim(max(1, len(rows)) - 0.5, -0.5)
    axes.set_xlabel(plain(f"difference from: {_short(base)}"))
    axes.set_title(plain(title), loc="left", fontsize=11)
    return figure


def loss_picture(curves: Mapping[str, Sequence[Sequence[tuple[float, float]]]]) -> Figure:
    """Held-out loss by optimizer step, a color an arm, a line a seed."""
    figure, axes = new_figure(WIDTH, 5.0)
    for number, (name, of_seeds) in enumerate(curves.items()):
        color, style = COLORS[number % len(COLORS)], _STYLES[number // len(COLORS) % len(_STYLES)]
        for seed, points in enumerate(of_seeds):
            x, y = zip(*points, strict=True)
            axes.plot(x, y, style, color=color, linewidth=1.5, label=None if seed else plain(_short(name)))
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("held-out masked-LM loss (nats)")
    draw_legend(figure, axes, None, columns=2)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 44 else name[:43] + "…"
