"""Pictures of mistakes: slices with intervals, tables of rows."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from bertkit.metrics.intervals import wilson_interval
from bertkit.visualize.figures import BLUE, GREY, ORANGE, new_figure, plain
from bertkit.visualize.html_text import table
from bertkit.visualize.page import document

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Slices in a picture: the weakest.
MOST_SLICES = 30


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of scored rows: its accuracy, with the 95 % interval of Wilson (1927).

    is_weak: the whole interval lies below the accuracy of all rows.
    """

    name: str
    num_rows: int
    accuracy: float
    low: float
    high: float
    is_weak: bool = False

    @classmethod
    def of(cls, name: str, right: npt.NDArray[np.bool_], whole: Slice | None = None) -> Self:
        """The slice of rows that were predicted right or not, one or more."""
        low, high = wilson_interval(int(right.sum()), len(right))
        return cls(name, len(right), float(right.mean()), low, high, whole is not None and high < whole.accuracy)

    @property
    def text(self) -> str:
        """Accuracy and interval."""
        return f"{self.accuracy:.3f} ({self.low:.3f} to {self.high:.3f})"


def slices_figure(whole: Slice, slices: Sequence[Slice]) -> Figure:
    """Accuracy of each slice with its interval, the weakest first, beside that of all rows."""
    shown = [whole, *slices[:MOST_SLICES]]
    figure, axes = new_figure(8.0, 1.2 + 0.3 * len(shown))
    for place, each in enumerate(shown):
        color = ORANGE if each.is_weak else BLUE
        axes.plot([each.low, each.high], [place, place], color=color, linewidth=1.6)
        # A marker of its own, for those who do not see the color.
        axes.plot(each.accuracy, place, color=color, marker="v" if each.is_weak else "o", markersize=6)
    axes.axvline(whole.accuracy, color=GREY, linestyle="--", linewidth=1.0)
    names = [each.name if len(each.name) <= 40 else each.name[:39] + "…" for each in shown]
    counts = [f"{plain(name)} ({each.num_rows:,})" for name, each in zip(names, shown, strict=True)]
    axes.set_yticks(range(len(shown)), counts, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.02)
    axes.set_xlabel("accuracy with its 95 % interval (triangles: below all rows)")
    return figure


def errors_page(
    title: str, summary: str, tables: Mapping[str, Sequence[Mapping[str, object]]], slices: Sequence[Slice]
) -> str:
    """A page with a table of the slices and one of each list of rows."""
    lines = [(s.name, f"{s.num_rows:,}", s.text, "below all rows" if s.is_weak else "") for s in slices]
    columns = ("slice", "rows", "accuracy (95 %)", "")
    parts = [f"<p>{html.escape(summary)}</p>", "<h2>Slices</h2>", table(columns, lines, most=None)]
    for name, rows in tables.items():
        parts.append(f"<h2>{html.escape(name)}</h2>")
        if rows:
            names = [column.replace("_", " ") for column in rows[0]]
            shown = table(names, [tuple(row.values()) for row in rows], digits=3, most=None)
            parts.append(f"<figure>{shown}</figure>")
        else:
            parts.append("<p>None.</p>")
    return document(title, "\n".join(parts))
