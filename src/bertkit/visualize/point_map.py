"""Points of a plane in groups: as a figure, and as a page to turn to, zoom and search.

Letters of the array shapes: N points.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.ragged import Ints
from bertkit.visualize.figures import BLACK, BLUE, GREEN, GREY, ORANGE, new_figure, plain
from bertkit.visualize.page import document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

YELLOW = "#F0E442"
#: Colors and markers of groups, the most frequent first: told apart by either. What is in no group is grey.
STYLES = (
    (BLUE, "o"),
    (ORANGE, "s"),
    (GREEN, "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    (BLACK, "X"),
    (YELLOW, "*"),
)
#: Characters of a text in a page, of a group's name, and points up to which each has its name beside it.
MOST_CHARACTERS, MOST_NAME, MOST_NAMED = 400, 28, 250
#: Inches of a figure, and of the room for points in it, about.
SIZE, ROOM = (9.0, 6.0), (6.6, 5.2)


@dataclass(frozen=True, slots=True)
class Groups:
    """names: at most as many as :data:`STYLES`. sizes: of each. numbers: of each point ``(N,)``; -1: in none of them.

    others: what the points in none of them are, if there are any.
    """

    names: list[str]
    sizes: list[int]
    numbers: Ints
    others: str | None


def groups_of(labels: Sequence[str | None], *, by_size: bool = True) -> Groups:
    """The most frequent labels, or the first ones, of points of which some may have none."""
    sizes = Counter(label for label in labels if label is not None)
    names = sorted(sizes, key=lambda name: (-sizes[name], name)) if by_size else list(sizes)
    shown, rest = names[: len(STYLES)], names[len(STYLES) :]
    number = {name: place for place, name in enumerate(shown)}
    others = f"{len(rest):,} other label{'s' if len(rest) > 1 else ''}" if rest else None
    if sizes and len(labels) > sizes.total():
        others = "no label" if others is None else f"{others}, or none"
    numbers = np.array([-1 if label is None else number.get(label, -1) for label in labels], np.int64)
    return Groups(shown, [sizes[name] for name in shown], numbers, others)


@dataclass(frozen=True, slots=True)
class PointMap:
    """What is drawn.

    places: ``(N, 2)``. texts: what each point is. axes: the names of both. remarks: lines above the points.
    names: a short name of each point, which stands beside it where there are few points. links: points that belong
        together, joined by a line.
    """

    places: npt.NDArray[np.float64]
    texts: Sequence[str]
    groups: Groups
    axes: tuple[str, str]
    remarks: Sequence[str]
    names: Sequence[str] = ()
    links: Sequence[Sequence[int]] = field(default=())

    def figure(self) -> Figure:
        """A scatter plot."""
        figure, axes = new_figure(*SIZE)
        axes.set_xlabel(self.axes[0])
        axes.set_ylabel(self.axes[1])
        axes.tick_params(labelsize=8)
        count = len(self.places)
        size = 64 if count <= 100 else 30 if count <= 1000 else 12
        for link in self.links:
            axes.plot(*self.places[list(link)].T, color="#c8c8c8", linewidth=0.9, zorder=1)
        for number, (name, amount) in enumerate(zip(self.groups.names, self.groups.sizes, strict=True)):
            color, marker = STYLES[number]
            self._scatter(axes, self.groups.numbers == number, color, marker, size, f"{_short(name)} ({amount:,})")
        rest = self.groups.numbers < 0
        if rest.any():
            others = f"{self.groups.others} ({rest.sum():,})" if self.groups.names else None
            self._scatter(axes, rest, GREY if others else BLUE, "o", size * 0.6, others)
        if self.names and count <= MOST_NAMED:
            self._write_names(axes)
        figure.suptitle("\n".join(plain(line) for line in self.remarks), x=0.01, ha="left", fontsize=9)
        if axes.get_legend_handles_labels()[1]:
            legend = figure.legend(loc="outside right center", frameon=False, fontsize=9)
            for handle in filter(None, legend.legend_handles):
                handle.set(sizes=[45])  # which can be told apart, however small the points are
        return figure

    def _scatter(
        self, axes: Axes, chosen: npt.NDArray[np.bool_], color: str, marker: str, size: float, name: str | None
    ) -> None:
        label = None if name is None else plain(name)
        # No border around small points, which would hide their color, unless that is light.
        width = 0.4 if size >= 20 else 0.2 if color == YELLOW else 0.0
        x, y = self.places[chosen].T
        points = axes.scatter(x, y, s=size, c=color, marker=marker, alpha=0.8, label=label, zorder=2 + (color != GREY))
        points.set(edgecolors="#333333", linewidths=width)

    def _write_names(self, axes: Axes) -> None:
        """Each name beside its point, where no other name stands; a name without room is left out."""
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        scale = 72 * np.array(ROOM) / np.maximum(1.1 * (high - low), 1e-12)  # to the points of a font
        at = (self.places - low) * scale
        taken: list[tuple[float, float, float, float]] = []
        for place, name in zip(at, self.names, strict=True):
            width = 4.6 * len(name) + 2
            for dx, dy in ((5, -4), (-5 - width, -4), (-width / 2, 5), (-width / 2, -13), (5, 5), (5, -13)):
                box = (place[0] + dx, place[1] + dy, place[0] + dx + width, place[1] + dy + 9)
                if not any(box[0] < x2 and x1 < box[2] and box[1] < y2 and y1 < box[3] for x1, y1, x2, y2 in taken):
                    taken.append(box)
                    where = place / scale + low
                    axes.annotate(plain(name), where, (dx, dy), textcoords="offset points", fontsize=8, zorder=4)
                    break

    def page(self, title: str, what: str) -> str:
        """A page with the points to move in; ``what``: what they are, such as "texts"."""
        data = {
            "places": np.round(self.places, 5).tolist(),
            "texts": [_cut(text, MOST_CHARACTERS) for text in self.texts],
            "names": list(self.names),
            "groups": self.groups.numbers.tolist(),
            "styles": [
                {"name": name, "size": size, "color": color, "marker": marker}
                for name, size, (color, marker) in zip(self.groups.names, self.groups.sizes, STYLES, strict=False)
            ],
            "others": self.groups.others,
            "links": [list(map(int, link)) for link in self.links],
            "axes": list(self.axes),
            "what": what,
        }
        remarks = "".join(f'<p class="quiet">{html.escape(line)}</p>\n' for line in self.remarks)
        return document(title, f'{remarks}<div id="map"></div>', data=data, script="map.js")


def _short(name: str) -> str:
    return _cut(name, MOST_NAME)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
