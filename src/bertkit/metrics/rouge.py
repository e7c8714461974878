"""ROUGE: the overlap of a generated text with a reference (Lin 2004).

Scores equal those of the ``rouge-score`` package with its default settings, which do not stem: text is lower-cased, and
words are runs of the letters a to z and digits. Under this rule text in other scripts has no words and scores 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: The measures: unigrams, bigrams, the longest common subsequence of the texts, and the same line by line.
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")

_word = re.compile("[a-z0-9]+")


class Overlap(NamedTuple):
    """Overlap of a prediction with its reference: as a share of the first, of the second, and their harmonic mean."""

    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, common: int, prediction: int, reference: int) -> Overlap:
        """From the number of units in common and in each text; 0 if any of them is 0."""
        if not (common and prediction and reference):
            return cls(0.0, 0.0, 0.0)
        precision, recall = common / prediction, common / reference
        return cls(precision, recall, 2 * precision * recall / (precision + recall))


def rouge(prediction: str, reference: str) -> dict[str, Overlap]:
    """Each measure of :data:`ROUGE`; ``rougeLsum`` takes each line as a sentence, as the package does."""
    ours, theirs = _word.findall(prediction.lower()), _word.findall(reference.lower())
    numbers: dict[str, int] = {}
    x, y = _numbered(ours, numbers), _numbered(theirs, numbers)
    return {
        "rouge1": _common_runs(ours, theirs, 1),
        "rouge2": _common_runs(ours, theirs, 2),
        "rougeL": Overlap.of(int(_table(y, x)[-1, -1]), len(x), len(y)),
        "rougeLsum": _by_lines(_lines(prediction, numbers), _lines(reference, numbers)),
    }


def _common_runs(prediction: Sequence[str], reference: Sequence[str], size: int) -> Overlap:
    ours, theirs = (
        Counter(zip(*(words[start:] for start in range(size)), strict=False)) for words in (prediction, reference)
    )
    return Overlap.of((ours & theirs).total(), ours.total(), theirs.total())


def _numbered(words: Sequence[str], numbers: dict[str, int]) -> npt.NDArray[np.int64]:
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)


def _lines(text: str, numbers: dict[str, int]) -> list[npt.NDArray[np.int64]]:
    return [_numbered(_word.findall(line.lower()), numbers) for line in text.split("\n") if line]


def _table(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Length of the longest common subsequence of every two prefixes, ``(len(rows) + 1, len(columns) + 1)``."""
    table = np.zeros((len(rows) + 1, len(columns) + 1), dtype=np.int32)
    for row, word in enumerate(rows):
        above = table[row]
        extended = np.where(columns == word, above[:-1] + 1, above[1:])
        np.maximum.accumulate(extended, out=table[row + 1, 1:])
    return table


def _places(line: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> set[int]:
    """Positions in ``line`` of the words of a longest common subsequence.

    Of several the choice is that of the package: the table is walked from its end, and a tie moves back in ``line``.
    """
    table = _table(line, other)
    row, column = len(line), len(other)
    found = set()
    while row and column:
        if line[row - 1] == other[column - 1]:
            row, column = row - 1, column - 1
            found.add(row)
        elif table[row, column - 1] > table[row - 1, column]:
            column -= 1
        else:
            row -= 1
    return found


def _by_lines(prediction: Sequence[npt.NDArray[np.int64]], reference: Sequence[npt.NDArray[np.int64]]) -> Overlap:
    """Words of each reference line that it shares in order with any predicted line, each as often as in both texts."""
    left = [Counter(word for line in lines for word in line.tolist()) for lines in (prediction, reference)]
    sizes = [counts.total() for counts in left]
    common = 0
    for line in reference:
        places = set().union(*(_places(line, other) for other in prediction))
        for word in line[sorted(places)].tolist():
            if all(counts[word] > 0 for counts in left):
                common += 1
                for counts in left:
                    counts[word] -= 1
    return Overlap.of(common, *sizes)
