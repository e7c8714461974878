"""Texts with entities marked by characters, and the words that stand for them.

A model tags words, so a marked text is cut into words: runs of letters, digits and ``_``, and every other character
that is no white space by itself, as are characters of scripts that are written without blanks. The cut depends on the
text alone. A mark covers every word that it touches: white space at its ends is not part of it, and one that begins or
ends inside a word is moved outwards to the border of that word, which is counted. Two marks that touch the same word
are refused, because a word has one type.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bertkit.metrics.tags import Entity, write_tags
from bertkit.tasks.reading.bad_rows import RowError
from bertkit.tasks.tokens.conll import Sentence

#: First and last character of scripts without blanks: Thai and Lao, Myanmar, Khmer, kana, Han and its extensions.
_NO_BLANKS = (
    ("\u0e00", "\u0eff"),
    ("\u1000", "\u109f"),
    ("\u1780", "\u17ff"),
    ("\u3040", "\u30ff"),
    ("\u3400", "\u4dbf"),
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)


class Mark(NamedTuple):
    """Characters ``start ... end - 1`` of a text, and what they name."""

    start: int
    end: int
    type: str


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text, its marks (None: nobody has marked it), and where it stands: the file and the line or row."""

    text: str
    marks: tuple[Mark, ...] | None
    source: Path
    row: int = 0


def words_of(text: str) -> list[tuple[int, int]]:
    """``(start, end)`` of the words of a text, see the module."""
    words: list[tuple[int, int]] = []
    in_run = False
    for place, char in enumerate(text):
        joins = _joins(char)
        if joins and in_run:
            words[-1] = words[-1][0], place + 1
        elif not char.isspace():
            words.append((place, place + 1))
        in_run = joins
    return words


def _joins(char: str) -> bool:
    """Whether a character belongs to a word together with its neighbours."""
    if char.isascii():
        return char.isalnum() or char == "_"
    if any(first <= char <= last for first, last in _NO_BLANKS):
        return False
    return unicodedata.category(char)[0] in "LMN"


def sentence_of(marked: MarkedText) -> tuple[Sentence, list[str]]:
    """The words of a text with their entities and tags, and for each mark that was moved what it was and is now.

    Raises:
        RowError: a text without words, a mark outside it or of blanks alone, or two that touch the same word.
    """
    text, places = marked.text, words_of(marked.text)
    if not places:
        raise RowError("empty text", "the text is empty")
    borders = [0, *(place for word in places for place in word), len(text)]
    spacing = tuple(text[start:end] for start, end in zip(borders[::2], borders[1::2], strict=True))
    words = [text[start:end] for start, end in places]
    sentence = Sentence(words, [], [marked.row] * len(words), 0, spacing, source=marked.source)
    if marked.marks is None:
        return sentence, []
    entities, moved = _entities(text, places, marked.marks)
    sentence.entities = tuple(entities)
    sentence.tags = write_tags(entities, len(words))
    return sentence, moved


def _entities(text: str, places: Sequence[tuple[int, int]], marks: Iterable[Mark]) -> tuple[list[Entity], list[str]]:
    starts, ends = zip(*places, strict=True)
    found: list[Entity] = []
    moved: list[str] = []
    before: Mark | None = None
    for mark in sorted(set(marks)):
        said = f"{mark.start}:{mark.end} ({mark.type})"
        if not 0 <= mark.start < mark.end <= len(text):
            raise RowError(
                "mark outside the text", f"the entity at {said} does not lie in the text, which has 0:{len(text)}"
            )
        first, last = bisect_right(ends, mark.start), bisect_left(starts, mark.end) - 1
        if first > last:
            raise RowError("mark without a word", f"the entity at {said} holds nothing but white space")
        start, end, shown = places[first][0], places[last][1], text[mark.start : mark.end]
        if before is not None and found[-1].end > first:
            raise RowError(
                "overlapping marks",
                f"the entities {text[before.start : before.end]!r} at {before.start}:{before.end} ({before.type}) and "
                f"{shown!r} at {said} share the word {text[slice(*places[first])]!r}; a word has one type. Remove one "
                "of the two",
            )
        if shown.strip() != text[start:end]:
            moved.append(f"{shown!r} to {text[start:end]!r}")
        found.append(Entity(mark.type, first, last + 1))
        before = mark
    return found, moved
