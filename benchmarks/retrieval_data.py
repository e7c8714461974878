"""The paragraphs of SQuAD v1.1 dev, as far as it is there, and their questions, for ``retrieval.py``."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = "squad/dev-v1.1-articles-1-28.json.xz"
#: Articles at the end of each half that are dev.
DEV_ARTICLES = 2
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Squad:
    """P paragraphs, and Q questions each with its own.

    articles: of the paragraphs ``(P,)``. places: number of each question's paragraph ``(Q,)``.
    """

    paragraphs: list[str]
    articles: Ints
    questions: list[str]
    places: Ints

    @classmethod
    def read(cls, path: Path, count: int | None) -> Squad:
        """All of a file, or ``count`` of its questions; one that is asked twice of a paragraph counts once."""
        with lzma.open(path, "rt", encoding="utf-8") as file:
            articles = json.load(file)["data"]
        paragraphs = [(number, part) for number, article in enumerate(articles) for part in article["paragraphs"]]
        asked = ((entry, place) for place, (_, paragraph) in enumerate(paragraphs) for entry in paragraph["qas"])
        rows = list(dict.fromkeys((entry["question"].strip(), place) for entry, place in asked))
        if count is not None:
            rows = [rows[number] for number in some(len(rows), count)]
        return cls(
            [paragraph["context"] for _, paragraph in paragraphs],
            np.array([article for article, _ in paragraphs]),
            [question for question, _ in rows],
            np.array([place for _, place in rows]),
        )

    @property
    def article_of(self) -> Ints:
        """Of each question ``(Q,)``."""
        found: Ints = self.articles[self.places]
        return found

    def of_half(self, half: int) -> Ints:
        """Numbers of the questions of every other article."""
        return np.flatnonzero(self.article_of % 2 == half)

    def train_and_dev(self, half: int) -> tuple[Ints, Ints]:
        """The questions of a half, those of its last articles apart."""
        own = self.of_half(half)
        is_dev = self.article_of[own] > self.articles.max() - 2 * DEV_ARTICLES
        return own[~is_dev], own[is_dev]

    def write(self, folder: Path, train: Ints, dev: Ints) -> None:
        """Questions with their paragraphs, as both tasks read them."""
        folder.mkdir(exist_ok=True)
        for split, numbers in (("train", train), ("dev", dev)):
            rows = [
                {"question": self.questions[number], "positive": self.paragraphs[self.places[number]]}
                for number in numbers.tolist()
            ]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def ranks_fused(rankings: Sequence[Sequence[int]], k: int) -> list[int]:
    """The ``k`` texts with the largest sum of ``1 / (60 + rank)`` over all rankings, best first; ties by number."""
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, start=1):
            sums[number] = sums.get(number, 0.0) + 1.0 / (60 + rank)
    return sorted(sums, key=lambda number: (-sums[number], number))[:k]


def some(size: int, count: int) -> list[int]:
    """Of ``size`` numbers at most ``count``, always the same, in order."""
    drawn: list[int] = np.sort(np.random.default_rng(0).permutation(size)[:count]).tolist()
    return drawn
