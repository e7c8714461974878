"""Words with signed numbers: bars, colored text in a page, and signs where there is no color."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertkit.visualize.figures import BLACK, BLUE, ORANGE, Floats, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Words in a picture; of a longer text those with the largest numbers.
MOST_BARS = 40
#: Signs of the strongest word.
MOST_SIGNS = 8
_LONGEST = 24


class Span(NamedTuple):
    """A part of a text that is a word."""

    start: int
    end: int


def strongest(values: Floats, count: int) -> list[int]:
    """The places of the numbers that are farthest from 0, in their order."""
    return sorted(np.argsort(-np.abs(values), kind="stable")[:count].tolist())


def signs(value: float, most: float) -> str:
    """A number as plus or minus signs, as many as its share of ``most``."""
    count = round(MOST_SIGNS * abs(value) / most) if most > 0 else 0
    return ("+" if value > 0 else "-") * count


def bars(words: Sequence[str], series: Mapping[str, Floats], unit: str) -> Figure:
    """A group of horizontal bars for each word, from top to bottom as in the text; the first series chooses words."""
    chosen = strongest(next(iter(series.values())), MOST_BARS)
    size = len(chosen)
    figure, axes = new_figure(7.0, 1.4 + 0.27 * size)
    places, width = np.arange(size), 0.8 / len(series)
    for number, ((name, values), color) in enumerate(zip(series.items(), (BLUE, ORANGE), strict=False)):
        axes.barh(places + (number - (len(series) - 1) / 2) * width, values[chosen], width, color=color, label=name)
    names = [words[place] if len(words[place]) <= _LONGEST else words[place][: _LONGEST - 1] + "…" for place in chosen]
    axes.set_yticks(places, [plain(name) for name in names])
    axes.set_ylim(size - 0.5, -0.5)
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.grid(visible=False, axis="y")
    unit = plain(unit)
    axes.set_xlabel(unit if size == len(words) else f"{unit}; the {size} strongest of {len(words):,} words")
    figure.legend(loc="outside upper center", ncols=len(series), frameon=False)
    return figure


def parts_of(text: str, words: Sequence[Span]) -> Iterator[tuple[str, int | None]]:
    """A text in parts: its words with their numbers, and what stands between them with None."""
    done = 0
    for number, word in enumerate(words):
        if word.start < done:  # two words of one character
            continue
        if word.start > done:
            yield text[done : word.start], None
        yield text[word.start : word.end], number
        done = word.end
    if done < len(text):
        yield text[done:], None


def colored(text: str, words: Sequence[Span], values: Floats, *, first: int, most: float) -> str:
    """A text as HTML whose words have the colors of their numbers; ``first`` is the number of the first word."""
    found = []
    for part, number in parts_of(text, words):
        shown = html.escape(part)
        if number is None:
            found.append(shown)
            continue
        value = float(values[number])
        side, share = "for" if value > 0 else "against", abs(value) / most if most > 0 else 0.0
        found.append(
            f'<span class="word {side}" role="button" tabindex="-1" data-word="{first + number}" '
            f'style="--share:{share:.3f}" aria-label="{shown}: {value:+.3f}">{shown}</span>'
        )
    return "".join(found)
