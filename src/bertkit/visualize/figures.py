"""What all pictures share: size, colors, axes, and how a figure becomes a file.

Drawn with matplotlib's object interface: no window, no global state, nothing that a notebook or a server would notice.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import ConfigError, require, shorten
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.float64]
#: A line of a log or of predictions, as ``json`` reads it.
Record = Mapping[str, Any]

#: Inches and dots an inch: 8 x 5 at 100 is 800 x 500 pixels.
WIDTH, HEIGHT, DPI = 8.0, 5.0, 100
#: Colors that stay apart for color-blind readers and in grey (Okabe & Ito).
BLUE, ORANGE, GREEN, GREY, BLACK = "#0072B2", "#D55E00", "#009E73", "#999999", "#000000"
COLORS = (BLUE, ORANGE, GREEN, GREY, BLACK, "#56B4E9", "#E69F00", "#CC79A7", "#F0E442")
NEEDED_FOR = "drawing pictures"
#: Endings of the files that a figure can be written to.
IMAGE_ENDINGS = (".png", ".svg", ".pdf")
#: What matplotlib says of a character that its font does not have.
_NO_GLYPH = re.compile(r"Glyph (\d+) ")


def empty_figure(width: float, height: float) -> Figure:
    """A figure of so many inches, without axes."""
    module = require("matplotlib.figure", extra="plots", needed_for=NEEDED_FOR)
    # As "constrained", also where axes keep their shape: with that alone, names beside a square matrix are cut off.
    figure: Figure = module.Figure(figsize=(width, height), dpi=DPI, layout="compressed")
    return figure


def add_axes(figure: Figure, rows: int = 1, columns: int = 1, number: int = 1) -> Axes:
    """Axes in the style of all pictures, at a place in a grid (counted from 1)."""
    axes = figure.add_subplot(rows, columns, number)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    return axes


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of so many inches with one pair of axes."""
    figure = empty_figure(width, height)
    return figure, add_axes(figure)


def right_axis(axes: Axes, name: str) -> Axes:
    """A second vertical axis, with its name."""
    right = axes.twinx()
    right.spines["top"].set_visible(False)
    right.set_ylabel(name)
    return right


#: What no SVG file may hold: control characters, halves of pairs, and two that are no characters.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def plain(name: str) -> str:
    """A name as it is: no mathematics, nothing that an SVG may not hold, and in legends also with ``_`` in front."""
    shown = _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", name).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def smooth(values: Floats) -> Floats:
    """Mean over a window of a twentieth of the steps, cut off at both ends."""
    half = max(1, len(values) // 40)
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    start, end = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    smoothed: Floats = (total[end] - total[start]) / (end - start)
    return smoothed


def draw_legend(figure: Figure, axes: Axes, right: Axes | None, *, columns: int | None = None) -> None:
    """One legend for the curves of both axes, above them."""
    lines, names = axes.get_legend_handles_labels()
    more = ([], []) if right is None else right.get_legend_handles_labels()
    lines, names = [*lines, *more[0]], [*names, *more[1]]
    figure.legend(lines, names, loc="outside upper center", ncols=columns or len(names), frameon=False)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure in the format that the name ends in; a folder that is missing is made."""
    path = Path(path)
    if path.suffix not in IMAGE_ENDINGS:
        raise ConfigError(f"{path}: unknown format; the name must end in {', '.join(IMAGE_ENDINGS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, image_of(figure, path.suffix[1:]))
    return path


def image_of(figure: Figure, form: str) -> bytes:
    """A figure as the bytes of a file; the same figure gives the same bytes."""
    buffer, dated = io.BytesIO(), {"svg": "Date", "pdf": "CreationDate"}
    # Without a fixed salt the names in an SVG are random; text stays text, which can be searched and read aloud.
    style = {"svg.hashsalt": "bertkit", "svg.fonttype": "none"}
    matplotlib = require("matplotlib", extra="plots", needed_for=NEEDED_FOR)
    with warnings.catch_warnings(record=True) as told, matplotlib.rc_context(style):
        warnings.simplefilter("always")
        figure.savefig(buffer, format=form, metadata={dated[form]: None} if form in dated else None)
    missing = []
    for each in told:
        if sign := _NO_GLYPH.match(str(each.message)):
            missing.append(chr(int(sign[1])))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing and form != "svg":  # whose text the viewer's own fonts show
        say(f"the font of pictures lacks {shorten(sorted(set(missing)))}; .svg and .html show such letters")
    return buffer.getvalue()
