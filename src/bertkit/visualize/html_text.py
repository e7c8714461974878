"""Answers as HTML: entities and answers marked in their texts, labels with bars, tables. Readable without colors."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from bertkit.visualize.figures import BLACK, COLORS
from bertkit.visualize.page import document

#: Characters of a text around a mark; what is farther away is left out.
AROUND = 400
#: Texts on a page.
MOST_TEXTS = 2000
#: Colors of marks: those of pictures that are seen on a dark page as well.
MARKS = tuple(color for color in COLORS if color != BLACK)
#: Rows of a table in a notebook.
MOST_ROWS = 50


class Mark(NamedTuple):
    """A part of a text, in characters, with its name and how probable it is."""

    start: int
    end: int
    name: str
    score: float | None = None


def marked_text(text: str, marks: Iterable[Mark], colors: Mapping[str, str] | None = None) -> str:
    """A text with marked parts, each with its name beside it; of overlapping parts the first one.

    A name has one color on a page: that of ``colors``, or that of :data:`MARKS` at its place in the order of the names.
    """
    kept: list[Mark] = []
    for mark in sorted(marks, key=lambda each: (each.start, -each.end)):
        if mark.end > mark.start and (not kept or mark.start >= kept[-1].end):
            kept.append(mark)
    palette = colors or colors_of(mark.name for mark in kept)
    parts, place = [], 0
    for mark in kept:
        score, color = "" if mark.score is None else f" {mark.score:.2f}", palette[mark.name]
        parts.append(_unmarked(text, place, mark.start))
        parts.append(
            f'<mark style="background:{color}33;border-bottom:2px solid {color};color:inherit">'
            f"{html.escape(text[mark.start : mark.end])}"
            f"<small> {html.escape(mark.name)}{score}</small></mark>"
        )
        place = mark.end
    parts.append(_unmarked(text, place, len(text)))
    return f'<p style="white-space:pre-wrap;line-height:1.9">{"".join(parts)}</p>'


class MarkedTexts:
    """The page of ``bertkit tag`` and ``bertkit answer``: texts with their marks, at most :data:`MOST_TEXTS`."""

    def __init__(self, title: str) -> None:
        self.title, self.num_texts = title, 0
        self._shown: list[tuple[str, str, list[Mark]]] = []

    def add(self, text: str, marks: Iterable[Mark], heading: str = "") -> None:
        """Add a text."""
        self.num_texts += 1
        if len(self._shown) < MOST_TEXTS:
            self._shown.append((heading, text, list(marks)))

    def page(self) -> str:
        """The document."""
        palette = colors_of(mark.name for _, _, marks in self._shown for mark in marks)
        parts = []
        if self.num_texts > len(self._shown):
            parts.append(f"<p>The first {len(self._shown):,} of {self.num_texts:,} texts.</p>")
        for heading, text, marks in self._shown:
            parts += [f"<h2>{html.escape(heading)}</h2>"] if heading else []
            parts.append(marked_text(text, marks, palette))
        return document(self.title, "\n".join(parts))


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """A color for each name, the same for the same names."""
    return {name: MARKS[number % len(MARKS)] for number, name in enumerate(sorted(set(names)))}


def _unmarked(text: str, start: int, end: int) -> str:
    """A part between marks; the middle of a long one is left out."""
    if end - start <= 2 * AROUND:
        return html.escape(text[start:end])
    head = html.escape(text[start : start + AROUND]) if start else ""
    tail = html.escape(text[end - AROUND : end]) if end < len(text) else ""
    return f"{head} <span title='{end - start:,} characters'>[…]</span> {tail}"


def bars(rows: Sequence[tuple[str, float]]) -> str:
    """Names with a number from 0 to 1 each, and a bar as long as that."""
    lines = (
        f'<tr><td>{html.escape(name)}</td><td style="text-align:right">{value:.4f}</td>'
        f'<td style="width:12rem"><div style="background:{MARKS[0]};height:.7em;width:{min(max(value, 0), 1):.1%}">'
        "</div></td></tr>"
        for name, value in rows[:MOST_ROWS]
    )
    return f"<table>{''.join(lines)}</table>{_more(len(rows))}"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, digits: int = 4, most: int | None = MOST_ROWS
) -> str:
    """A table of plain values, numbers with so many digits; of more rows than ``most`` the first ones."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    cells = ([f"{v:.{digits}f}" if isinstance(v, float) else html.escape(str(v)) for v in row] for row in rows[:most])
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return f"<table><tr>{head}</tr>{lines}</table>{'' if most is None else _more(len(rows))}"


def _more(count: int) -> str:
    return f"<p>and {count - MOST_ROWS:,} more</p>" if count > MOST_ROWS else ""
