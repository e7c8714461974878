"""Writes what ``bertkit.tokenization.characters`` knows of Unicode as tables in C, for the tokenizer in the browser.

    python packaging/unicode_tables.py

The tables are in ``src/bertkit/engine/native/browser/unicode_tables.h``, which is committed; a test compares. They are
those of :data:`~bertkit.tokenization.characters.FROZEN` and so the same whatever Python writes them.

A code point's record is found in three steps (a trie): its upper bits choose a block of ``MIDDLE``, the next ones a
block of ``LEAF``, the lowest a number there, that of its record. Equal blocks are stored once.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from bertkit.tokenization.characters import FROZEN, CharacterClasses

TARGET = Path(__file__).parents[1] / "src" / "bertkit" / "engine" / "native" / "browser" / "unicode_tables.h"
CODE_POINTS = 0x110000
#: Bits of a code point that choose within a block of leaves, and within one of the middle.
LEAF_BITS, MIDDLE_BITS = 5, 6
#: Syllables of Hangul are decomposed by arithmetic.
HANGUL = range(0xAC00, 0xD7A4)
#: The only capital that becomes two characters, i and a dot; ``wordpiece.c`` knows it.
CAPITAL_I_WITH_DOT = "\u0130"
MOST_PARTS = 4

Record = tuple[str, int, int]


def kind(char: str, classes: CharacterClasses = FROZEN) -> str:
    """What a character is, as ``wordpiece.c`` names it; no character is of two kinds."""
    asked = {
        "REMOVED": classes.is_removed,
        "SPACE": classes.is_space,
        "PUNCTUATION": classes.is_punctuation,
        "CHINESE": classes.is_chinese,
        "ACCENT": classes.is_accent,
    }
    return next((name for name, holds in asked.items() if holds(char)), "OTHER")


def record(char: str) -> Record:
    """Kind, combining class and the distance to the small letter."""
    small = FROZEN.lower(char)
    assert len(small) == 1 or char == CAPITAL_I_WITH_DOT
    distance = ord(small) - ord(char) if len(small) == 1 else 0
    return kind(char), FROZEN.combining(char), distance


def blocks(numbers: Sequence[int], size: int) -> tuple[list[int], list[int]]:
    """Numbers cut into blocks: for each place its block's number, and the distinct blocks end to end."""
    known: dict[tuple[int, ...], int] = {}
    places = [
        known.setdefault(tuple(numbers[start : start + size]), len(known)) for start in range(0, len(numbers), size)
    ]
    return places, [number for block in known for number in block]


def decompositions() -> list[list[int]]:
    """Of each character that is composed, except Hangul: its code point and those of its parts, filled up with 0."""
    found = []
    for point in range(CODE_POINTS):
        parts = FROZEN.decompose(chr(point))
        if parts != chr(point) and point not in HANGUL:
            assert len(parts) <= MOST_PARTS
            found.append([point, *map(ord, parts)])
    return found


def array(declaration: str, values: Sequence[str]) -> str:
    """An array in C, its values in lines of at most 120 characters."""
    lines = textwrap.fill(", ".join(values), 116, initial_indent="    ", subsequent_indent="    ")
    return f"static const {declaration} = {{\n{lines},\n}};\n"


def braces(*values: object) -> str:
    """One initializer without spaces, which :mod:`textwrap` does not break."""
    return "{" + ",".join(map(str, values)) + "}"


def tables() -> str:
    """The text of the header."""
    records: dict[Record, int] = {}
    numbers = [records.setdefault(record(chr(point)), len(records)) for point in range(CODE_POINTS)]
    above, leaf = blocks(numbers, 1 << LEAF_BITS)
    top, middle = blocks(above, 1 << MIDDLE_BITS)
    composed = decompositions()
    assert max(numbers) < 1 << 8
    assert max(top) < 1 << 8
    return "\n".join(
        [
            "/* Written by packaging/unicode_tables.py; do not edit. What Unicode says, as BERT asks. */",
            '#ifndef BERTKIT_UNICODE_TABLES_H\n#define BERTKIT_UNICODE_TABLES_H\n\n#include "characters.h"\n',
            f"#define LEAF_BITS {LEAF_BITS}\n#define MIDDLE_BITS {MIDDLE_BITS}\n#define MOST_PARTS {MOST_PARTS}",
            f"#define NUM_COMPOSED {len(composed)}\n",
            array("Character CHARACTERS[]", [braces(*each) for each in records]),
            array("uint8_t TOP[]", list(map(str, top))),
            array("uint16_t MIDDLE[]", list(map(str, middle))),
            array("uint8_t LEAF[]", list(map(str, leaf))),
            "/* Composed characters and their parts (NFD), ascending; filled up with 0. */",
            array("uint32_t COMPOSED[NUM_COMPOSED][1 + MOST_PARTS]", [braces(*each) for each in composed]),
            "#endif\n",
        ]
    )


def main() -> None:
    """Write the header."""
    TARGET.write_text(tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
