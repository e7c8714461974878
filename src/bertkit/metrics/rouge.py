"""ROUGE: how much of a reference text a written one has in common with it (Lin 2004). Imports no torch.

The numbers are those of the ``rouge-score`` package without its stemmer, which is also its default: words are runs of
the letters a to z and digits after lower-casing, everything else separates them. Text in other scripts has no words
under this rule; score it by exact match, or by words that stand between blanks in both texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

#: The measures: runs of one and two words, the longest common subsequence of the texts, and that of their lines.
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")

_word = re.compile("[a-z0-9]+")


class Overlap(NamedTuple):
    """What a written text and its reference have in common, as shares from 0 to 1.

    precision: of the written text. recall: of the reference. f1: the harmonic mean of both.
    """

    precision: float
    recall: float
    f1: float

    @classmethod
    def of(cls, common: int, written: int, reference: int) -> Overlap:
        """From the number of units in common and in each text; 0 where a text has none."""
        if not (common and written and reference):
            return cls(0.0, 0.0, 0.0)
        precision, recall = common / written, common / reference
        return cls(precision, recall, 2 * precision * recall / (precision + recall))


def rouge(written: str, reference: str) -> dict[str, Overlap]:
    """Each measure of :data:`ROUGE` for one pair of texts.

    For ``rougeLsum`` a sentence is a line, as in the package; put a line feed between the sentences of both texts.
    """
    ours, theirs = _word.findall(written.lower()), _word.findall(reference.lower())
    numbers: dict[str, int] = {}
    x, y = _numbered(ours, numbers), _numbered(theirs, numbers)
    return {
        "rouge1": _common_runs(ours, theirs, 1),
        "rouge2": _common_runs(ours, theirs, 2),
        "rougeL": Overlap.of(int(_table(y, x)[-1, -1]), len(x), len(y)),
        "rougeLsum": _by_lines(_lines(written, numbers), _lines(reference, numbers)),
    }


def rouge_means(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """The mean F1 of each measure over pairs of texts, from 0 to 1.

    Raises:
        InputError: no texts, or not as many of one as of the other.
    """
    if not written or len(written) != len(references):
        raise InputError(f"expected as many written texts as references, got {len(written)} and {len(references)}")
    found = [rouge(ours, theirs) for ours, theirs in zip(written, references, strict=True)]
    return {name: float(np.mean([one[name].f1 for one in found])) for name in ROUGE}


def _common_runs(written: Sequence[str], reference: Sequence[str], size: int) -> Overlap:
    ours, theirs = (
        Counter(zip(*(words[start:] for start in range(size)), strict=False)) for words in (written, reference)
    )
    return Overlap.of((ours & theirs).total(), ours.total(), theirs.total())


def _numbered(words: Sequence[str], numbers: dict[str, int]) -> npt.NDArray[np.int64]:
    return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)


def _lines(text: str, numbers: dict[str, int]) -> list[npt.NDArray[np.int64]]:
    return [_numbered(_word.findall(line.lower()), numbers) for line in text.split("\n") if line]


def _table(rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Lengths of the longest common subsequences of all beginnings, ``(len(rows) + 1, len(columns) + 1)``."""
    table = np.zeros((len(rows) + 1, len(columns) + 1), dtype=np.int32)
    for row, word in enumerate(rows):
        above = table[row]
        extended = np.where(columns == word, above[:-1] + 1, above[1:])
        np.maximum.accumulate(extended, out=table[row + 1, 1:])
    return table


def _places(line: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> set[int]:
    """Where in a line the words of a longest common subsequence stand.

    Of several that are equally long it is the one found from the end, moving back in the line unless only the other
    can be shortened; the union over lines depends on it.
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


def _by_lines(written: Sequence[npt.NDArray[np.int64]], reference: Sequence[npt.NDArray[np.int64]]) -> Overlap:
    """Of each line of the reference the words that any written line has in order, none more often than it occurs."""
    left = [Counter(word for line in lines for word in line.tolist()) for lines in (written, reference)]
    sizes = [counts.total() for counts in left]
    common = 0
    for line in reference:
        places = set().union(*(_places(line, other) for other in written))
        for word in line[sorted(places)].tolist():
            if all(counts[word] > 0 for counts in left):
                common += 1
                for counts in left:
                    counts[word] -= 1
    return Overlap.of(common, *sizes)
