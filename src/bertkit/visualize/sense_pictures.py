"""The senses of a word: its sentences as points by several kinds of vectors, and the scores of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.visualize.figures import BLUE, GREY, ORANGE, empty_figure, plain
from bertkit.visualize.point_map import STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def senses_figure(
    word: str,
    senses: Sequence[str],
    places: Mapping[str, npt.NDArray[np.float64]],
    layers: Sequence[float],
    neighbours: float,
) -> Figure:
    """Three panels of points ``(N, 2)``, colored by sense, and one with the mean score of each layer."""
    figure = empty_figure(10.0, 8.0)
    panels = figure.subplots(2, 2).flat
    names = list(dict.fromkeys(senses))
    for axes, (title, points) in zip(panels, places.items(), strict=False):
        _points(axes, f"{word}: {title}", np.array([names.index(sense) for sense in senses]), names, points)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(6, len(labels)), frameon=False)
    _scores(panels[3], layers, neighbours)
    return figure


def _points(
    axes: Axes, title: str, numbers: npt.NDArray[np.int64], names: list[str], points: npt.NDArray[np.float64]
) -> None:
    for number, name in enumerate(names):
        color, marker = STYLES[number % len(STYLES)]
        own = points[numbers == number]
        axes.scatter(
            own[:, 0], own[:, 1], s=60, c=color, marker=marker, alpha=0.8, edgecolors="#333333", label=plain(name)
        )
    axes.set_title(plain(title), fontsize=10, loc="left")
    axes.tick_params(labelsize=8)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _scores(axes: Axes, layers: Sequence[float], neighbours: float) -> None:
    axes.plot(range(len(layers)), layers, color=BLUE, marker="o", label="the word in its sentence")
    axes.axhline(neighbours, color=ORANGE, linestyle="--", label="the word vectors around it")
    axes.axhline(0.0, color=GREY, linestyle=":", linewidth=2, label="its own word vector")
    axes.set_title("all words: adjusted Rand index", fontsize=10, loc="left")
    axes.set_xlabel("layer (0: embeddings)", fontsize=9)
    axes.set_xticks(range(0, len(layers), max(1, len(layers) // 12)))
    axes.set_ylim(min(-0.05, *layers, neighbours), 1.0)
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=9)
    axes.grid(color="#e6e6e6", linewidth=0.8)
