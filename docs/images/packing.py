"""Draw packing.png: python docs/images/packing.py"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

LENGTHS = (3, 9, 5, 2)
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
EMPTY = "#dddddd"


def cell(axes: Axes, x: float, y: float, color: str) -> None:
    """One token."""
    axes.add_patch(Rectangle((x, y), 0.92, 0.92, color=color, linewidth=0))


def draw() -> None:
    """Above, the texts in a padded batch; below, the same tokens end to end, with the boundaries."""
    figure, axes = plt.subplots(figsize=(8, 3.4), dpi=110)
    longest = max(LENGTHS)
    for row, (length, color) in enumerate(zip(LENGTHS, COLORS, strict=True)):
        for x in range(longest):
            cell(axes, x, -row, color if x < length else EMPTY)
    start = 0
    for length, color in zip(LENGTHS, COLORS, strict=True):
        for x in range(length):
            cell(axes, start + x, -6.2, color)
        axes.text(start, -6.5, str(start), ha="center", va="top", fontsize=9)
        start += length
    axes.text(start, -6.5, str(start), ha="center", va="top", fontsize=9)
    axes.text(0, 1.3, f"padded: {len(LENGTHS) * longest} positions are computed for {start} tokens", fontsize=10)
    axes.text(0, -4.9, f"packed: {start} positions; the numbers are the boundaries (cu_seqlens)", fontsize=10)
    axes.set_xlim(-0.5, 20)
    axes.set_ylim(-7.4, 2.2)
    axes.set_axis_off()
    figure.savefig(Path(__file__).with_suffix(".png"), bbox_inches="tight", facecolor="white")


if __name__ == "__main__":
    draw()
