"""The picture of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertkit.visualize.figures import BLACK, COLORS, WIDTH, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def relative_times(bars: Mapping[str, Sequence[float]], groups: Sequence[str], base: str) -> Figure:
    """Times of several systems, each with one value a group of bars, as shares of those of ``base``, which are 1."""
    figure, axes = new_figure(WIDTH, 1.5 + 0.22 * len(groups) * (len(bars) + 1))
    places, height = np.arange(len(groups)), 0.85 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        own = places + (number - (len(bars) - 1) / 2) * height
        # From 1 outwards on a logarithmic scale, so that twice and half as fast look alike.
        widths = np.asarray(values) - 1.0
        axes.barh(own, widths, left=1.0, height=0.9 * height, color=COLORS[number % len(COLORS)], label=plain(name))
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
    axes.set_xlabel(f"time, {plain(base)} = 1 (further left is faster)")
    axes.grid(visible=False, axis="y")
    figure.legend(loc="outside upper center", ncols=min(4, len(bars)), frameon=False)
    return figure
