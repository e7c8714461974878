"""BM25: search by words, the baseline of every search by vectors, and a source of hard negatives.

Robertson and Zaragoza 2009 ("The Probabilistic Relevance Framework"), in the form and with the defaults of Lucene: the
weight of a word is ``ln(1 + (N - n + 0.5) / (n + 0.5))``, which is never below 0, and the constant factor ``k1 + 1`` is
left out. Words are lower-cased, not stemmed, and no word is left out as too frequent. In scripts that Lucene's standard
tokenizer also cuts into characters (Chinese characters, kana) each character is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

import numpy as np
import numpy.typing as npt

from bertkit.metrics.fusion import best_of
from bertkit.ragged import boundaries_of

#: How soon further occurrences of a word stop adding to the score, and how much long documents are marked down.
K1, B = 1.2, 0.75
#: Scripts written without spaces: their text is cut at vowel signs, for lack of better places.
_NO_BLANKS = (("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"))
_CHARACTERS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd"


@cache
def _word() -> re.Pattern[str]:
    """A word; what belongs to the letter before it (accents, vowel signs, points, joiners) stays with it."""
    marks = "\u200c\u200d" + "".join(
        char
        for char in map(chr, range(0x300, 0x1F000))
        if unicodedata.category(char)[0] == "M" and not any(first <= char <= last for first, last in _NO_BLANKS)
    )
    return re.compile(rf"[{_CHARACTERS}]|[^\W{_CHARACTERS}](?:[{marks}]|[^\W{_CHARACTERS}])*")


def words_of(text: str) -> list[str]:
    """The words of a text in order, as BM25 counts them."""
    return _word().findall(unicodedata.normalize("NFC", text.lower().replace("i\u0307", "i")))


class BM25:
    """An index of documents in memory: about 12 bytes for each different word of each document."""

    def __init__(self, documents: Iterable[str]) -> None:
        self._numbers: dict[str, int] = {}
        parts = [
            np.array([self._numbers.setdefault(word, len(self._numbers)) for word in words_of(text)], np.int64)
            for text in documents
        ]
        self._size = len(parts)
        lengths = np.array([len(part) for part in parts], np.int64)
        words = np.concatenate([*parts, np.zeros(0, np.int64)])
        # One key for each word of each document, so that equal keys are counted and sorted by word at once.
        keys, counts = np.unique(words * max(self._size, 1) + np.arange(self._size).repeat(lengths), return_counts=True)
        word_of, document_of = np.divmod(keys, max(self._size, 1))
        in_documents = np.bincount(word_of, minlength=len(self._numbers))
        self._boundaries = boundaries_of(in_documents)
        self._documents = document_of.astype(np.int32)
        mean_length = lengths.mean() if lengths.any() else 1.0
        saturation = counts / (counts + K1 * (1 - B + B * lengths[document_of] / mean_length))
        rarity = np.log1p((self._size - in_documents + 0.5) / (in_documents + 0.5))
        self._weights = rarity[word_of] * saturation

    def __len__(self) -> int:
        return self._size

    def scores(self, query: str) -> npt.NDArray[np.float64]:
        """Score of every document, ``(documents,)``, 0 if it shares no word; a word twice in the query counts twice."""
        found = np.zeros(self._size)
        for word in words_of(query):
            number = self._numbers.get(word)
            if number is not None:
                span = slice(self._boundaries[number], self._boundaries[number + 1])
                found[self._documents[span]] += self._weights[span]
        return found

    def search(self, query: str, k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Numbers and scores of the best documents that share a word with the query, best first; ties in order."""
        scores = self.scores(query)
        found = np.flatnonzero(scores)
        places, best = best_of(scores[found], k)
        return found[places], best
