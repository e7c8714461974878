"""Pictures of attention: heads as matrices, one head as lines between words, and a page with all of them.

Letters of the array shapes: L layers, N heads, Q tokens that attend, K tokens that are attended to.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.visualize.figures import BLUE, empty_figure, new_figure, plain
from bertkit.visualize.page import Json, asset, document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float32]
#: Tokens at most whose names stand beside a matrix, and that a picture of lines shows; cells of a matrix on a side.
MOST_LABELS, MOST_LINES, MOST_CELLS = 40, 100, 128
#: Bytes of attention in a page before base64, which adds a third.
MOST_PAGE_BYTES = 6_000_000
LONGEST_LABEL = 16


@dataclass(frozen=True, slots=True)
class AttentionMap:
    """The attention of all layers and heads between some tokens.

    rows, columns: names of the tokens that attend, Q, and of those that are attended to, K.
    row_texts, column_texts: 0 or 1, the text that a token comes from; None for a special token.
    values: probabilities ``(L, N, Q, K)``; rows sum to 1.
    rollout: ``(L, Q, K)``, from a layer back to the input; None for a map that is not an encoder's.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_texts: tuple[int | None, ...]
    column_texts: tuple[int | None, ...]
    values: Floats
    rollout: Floats | None = None

    def first(self, size: int) -> AttentionMap:
        """That of the first tokens, at most ``size`` on each side."""
        rollout = None if self.rollout is None else self.rollout[:, :size, :size]
        texts = self.row_texts[:size], self.column_texts[:size]
        return AttentionMap(self.rows[:size], self.columns[:size], *texts, self.values[..., :size, :size], rollout)


def matrices_figure(matrices: Floats, titles: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Small matrices ``(n, Q, K)`` beside each other in one scale of colors, at most four in a row."""
    across = min(4, len(matrices))
    down = -(-len(matrices) // across)
    labelled = max(len(rows), len(columns)) <= MOST_LABELS
    width, height = (max(1.9, 0.15 * len(side)) if labelled else 2.6 for side in (columns, rows))
    if len(matrices) == 1:
        width, height = max(width, 4.0), max(height, 4.0)
    margin = 1.2 if labelled else 0.6
    figure = empty_figure(across * (width + 0.15) + margin + 0.9, down * (height + 0.35) + margin)
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    most, cells = float(matrices.max()), _shrunk(_shrunk(matrices, 1), 2)
    edges = (-0.5, len(columns) - 0.5, len(rows) - 0.5, -0.5)
    for place, axes in enumerate(grid.flat):
        if place >= len(matrices):
            axes.set_visible(False)
            continue
        image = axes.imshow(
            cells[place], cmap="Blues", vmin=0.0, vmax=most, aspect="auto", interpolation="nearest", extent=edges
        )
        axes.set_title(titles[place], fontsize=9)
        axes.grid(visible=False)
        if labelled:
            axes.set_xticks(range(len(columns)), _labels(columns), rotation=90, fontsize=8)
            axes.set_yticks(range(len(rows)), _labels(rows), fontsize=8)
            axes.tick_params(length=0)
        # Of a column that the last row leaves empty, the lowest matrix has the names.
        axes.tick_params(labelbottom=place + across >= len(matrices))
    figure.colorbar(image, ax=grid, shrink=0.6, label="attention", pad=0.01)
    figure.supylabel("from", fontsize=9)
    figure.supxlabel("to" if cells.shape == matrices.shape else "to (each cell is the largest of several)", fontsize=9)
    return figure


def _shrunk(matrices: Floats, axis: int) -> Floats:
    """At most :data:`MOST_CELLS` along an axis, each the largest of those that it stands for."""
    size = matrices.shape[axis]
    if size <= MOST_CELLS:
        return matrices
    found: Floats = np.maximum.reduceat(matrices, np.arange(MOST_CELLS) * size // MOST_CELLS, axis=axis)
    return found


def lines_figure(matrix: Floats, title: str, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """Words in two columns, with lines from each to what it attends to, the stronger the darker."""
    from matplotlib.collections import LineCollection

    left, right = rows[:MOST_LINES], columns[:MOST_LINES]
    shown = matrix[: len(left), : len(right)]
    tallest = max(len(left), len(right))
    figure, axes = new_figure(5.0, max(2.5, 0.24 * tallest + 0.8))
    from_row, to_column = np.nonzero(shown > 0.005)
    strengths = np.minimum(shown[from_row, to_column], 1.0)  # sums of pieces may round to a little more
    order = np.argsort(strengths)
    ends = [[(0.0, from_row[at]), (1.0, to_column[at])] for at in order]
    axes.add_collection(LineCollection(ends, colors=BLUE, linewidths=1.6, alpha=strengths[order]))
    for names, x, side in ((left, -0.04, "right"), (right, 1.04, "left")):
        for y, name in enumerate(_labels(names)):
            axes.text(x, y, name, ha=side, va="center", fontsize=9)
    axes.set_xlim(-0.8, 1.8)
    axes.set_ylim(tallest - 0.5, -0.5)
    axes.axis("off")
    cut = max(len(rows), len(columns)) > MOST_LINES
    axes.set_title(title + (f"\nthe first {MOST_LINES} of {max(len(rows), len(columns))}" if cut else ""), fontsize=10)
    return figure


def _labels(names: Sequence[str]) -> list[str]:
    cut = (name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…" for name in names)
    return [plain(name) for name in cut]


def attention_page(title: str, maps: Mapping[str, AttentionMap], shown: Mapping[str, Json], facts: str) -> str:
    """A page with all views: ``maps`` by name, ``shown`` what it begins with (map, view, layer, head)."""
    data, notes = page_data(maps, str(shown["map"]), int(str(shown["layer"])))
    told = "".join(f"<p class='quiet'>{html.escape(line)}</p>" for line in (facts, *notes))
    body = f'<style>\n{asset("attention.css")}</style>\n{told}<main id="attention"></main>'
    return document(title, body, data={"maps": data, "shown": dict(shown)}, script="attention.js")


def page_data(maps: Mapping[str, AttentionMap], chosen: str, layer: int) -> tuple[list[dict[str, Json]], list[str]]:
    """What the page's script reads of as much of the attention as a page can hold, and what was left out.

    Probabilities are the squares of bytes / 255: exact to .004, and above .002 to a tenth. If all layers are too
    large, the chosen one remains; if that is too large, its first tokens.
    """
    layers = {name: list(range(1, len(each.values) + 1)) for name, each in maps.items()}
    notes = []
    if sum(each.values.size for each in maps.values()) > MOST_PAGE_BYTES:
        maps, layers = {chosen: maps[chosen]}, {chosen: [layer]}
        notes.append(f"All layers are too large for a page: this one has layer {layer} alone.")
        size = int((MOST_PAGE_BYTES / maps[chosen].values.shape[1]) ** 0.5)
        longest = max(len(maps[chosen].rows), len(maps[chosen].columns))
        if longest > size:
            maps = {chosen: maps[chosen].first(size)}
            notes.append(f"Of {longest:,} tokens it has the first {size:,}.")
    data: list[dict[str, Json]] = []
    for name, each in maps.items():
        kept = [number - 1 for number in layers[name]]
        data.append(
            {
                "name": name,
                "rows": each.rows,
                "columns": each.columns,
                "rowTexts": each.row_texts,
                "columnTexts": each.column_texts,
                "layers": layers[name],
                "heads": each.values.shape[1],
                "values": _packed(each.values[kept]),
                "rollout": None if each.rollout is None else _packed(each.rollout[kept]),
            }
        )
    return data, notes


def _packed(values: Floats) -> str:
    bytes_ = np.round(np.sqrt(np.clip(values, 0, 1)) * 255).astype(np.uint8)
    return base64.b64encode(bytes_.tobytes()).decode("ascii")
