"""Pictures of what heads do: for each statistic a grid of layers and heads, and a page with a table that sorts."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.visualize.figures import empty_figure, plain
from bertkit.visualize.page import Json, asset, document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 5


def heads_figure(grids: Mapping[str, npt.NDArray[np.float64]], facts: str) -> Figure:
    """A grid ``(layers, heads)`` for each statistic, each with a scale of its own."""
    layers, heads = next(iter(grids.values())).shape
    down = -(-len(grids) // ACROSS)
    width, height = max(2.2, 0.16 * heads), max(1.4, 0.16 * layers)
    figure = empty_figure(ACROSS * (width + 0.75), down * (height + 0.8) + 0.3)
    cells = figure.subplots(down, ACROSS, squeeze=False)
    for axes in cells.flat[len(grids) :]:
        axes.set_visible(False)
    for axes, (name, values) in zip(cells.flat, grids.items(), strict=False):
        edges = (0.5, heads + 0.5, layers + 0.5, 0.5)
        image = axes.imshow(values, cmap="Blues", vmin=0.0, aspect="auto", interpolation="nearest", extent=edges)
        axes.set_title(plain(name), fontsize=10)
        axes.grid(visible=False)
        axes.set_xticks(_ticks(heads), _ticks(heads), fontsize=8)
        axes.set_yticks(_ticks(layers), _ticks(layers), fontsize=8)
        axes.set_xlabel("head", fontsize=8)
        axes.set_ylabel("layer", fontsize=8)
        figure.colorbar(image, ax=axes, pad=0.02).ax.tick_params(labelsize=8)
    figure.suptitle(facts, fontsize=10)
    return figure


def _ticks(count: int) -> list[int]:
    step = max(1, -(-count // 8))
    return list(range(1, count + 1, step))


def heads_page(title: str, names: Mapping[str, str], rows: Sequence[Mapping[str, int | float]], facts: str) -> str:
    """A page with a grid for each statistic, and a table of all heads."""
    head = f'<style>\n{asset("heads.css")}</style>\n<p class="quiet">{html.escape(facts)}</p>'
    data: dict[str, Json] = {
        "names": dict(names),
        "rows": [{key: float(f"{value:.6g}") for key, value in row.items()} for row in rows],
    }
    return document(title, f'{head}<main id="heads"></main>', data=data, script="heads.js")
