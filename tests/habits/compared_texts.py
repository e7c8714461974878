"""Texts that belong together, for snippets that train: what a tiny model of ``finetune_data`` learns quickly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from finetune_data import BAD, GOOD, OTHER


def _text(generator: np.random.Generator, words: Sequence[str]) -> str:
    return " ".join([*generator.choice(OTHER, 2), *generator.choice(words, 2)])


def matches(num_rows: int = 48) -> list[tuple[str, str]]:
    """Texts that share one word that says what they are about."""
    generator = np.random.default_rng(0)
    about = [*GOOD, *BAD]
    return [
        (
            f"{generator.choice(OTHER)} {about[row % 8]} {generator.choice(OTHER)}",
            f"{about[row % 8]} {' '.join(generator.choice(OTHER, 2))}",
        )
        for row in range(num_rows)
    ]


def triplets(num_rows: int = 48) -> list[tuple[str, str, str]]:
    """Two texts of one side, and one of the other."""
    generator = np.random.default_rng(1)
    sides = (GOOD, BAD)
    return [
        (
            _text(generator, sides[row % 2]),
            _text(generator, sides[row % 2]),
            _text(generator, sides[1 - row % 2]),
        )
        for row in range(num_rows)
    ]


def scored_pairs(num_rows: int = 48) -> list[tuple[str, str, float]]:
    """Two texts of one side score 1, of two sides 0."""
    generator = np.random.default_rng(2)
    sides = (GOOD, BAD)
    return [
        (_text(generator, sides[row % 2]), _text(generator, sides[(row // 2) % 2]), float(row % 2 == (row // 2) % 2))
        for row in range(num_rows)
    ]
