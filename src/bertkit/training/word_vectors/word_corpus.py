"""The words of a corpus as numbers, in bounded memory."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from bertkit.data.corpus.documents import Document
from bertkit.engine.static.word_vectors import split_words
from bertkit.errors import DataError
from bertkit.ragged import Ints
from bertkit.system.console import progress, say

#: Words of a corpus that are read, 4 bytes each, and different words that are told apart.
MAX_WORDS, MAX_DIFFERENT = 200_000_000, 2_000_000
#: Words of a part.
_PART = 1_000_000


@dataclass(frozen=True, slots=True)
class WordCorpus:
    """words, counts: the vocabulary, the most frequent first. ids ``(T,)``: -1 for a word that is not in it.

    boundaries: where each document begins, and the end.
    """

    words: tuple[str, ...]
    counts: Ints
    ids: np.ndarray[tuple[int], np.dtype[np.int32]]
    boundaries: Ints

    def parts(self) -> list[tuple[int, int]]:
        """First and end word of each part; pairs across a cut are not counted."""
        starts = range(0, len(self.ids), _PART)
        return [(start, min(start + _PART, len(self.ids))) for start in starts]

    def with_documents(self) -> Iterator[tuple[Ints, Ints]]:
        """Ids and documents of each part."""
        for start, end in progress(self.parts(), label="counting co-occurrences", unit="parts"):
            places = np.searchsorted(self.boundaries, np.arange(start, end), side="right")
            yield self.ids[start:end].astype(np.int64), places.astype(np.int64)

    def documents(self) -> Iterator[list[str]]:
        """The words of each document, without those that are not in the vocabulary."""
        for start, end in zip(self.boundaries[:-1].tolist(), self.boundaries[1:].tolist(), strict=True):
            yield [self.words[number] for number in self.ids[start:end].tolist() if number >= 0]


def read_word_corpus(
    documents: Iterable[Document], *, lower: bool = True, min_count: int = 5, max_vocabulary: int = 100_000
) -> WordCorpus:
    """Count and number the words of documents; DataError if none is left.

    Of more than :data:`MAX_WORDS` words, that many are read; after :data:`MAX_DIFFERENT` different ones, new ones count
    as unknown. Both are said.
    """
    numbers: dict[str, int] = {}
    counts, ids, ends = array("q"), array("i"), array("q", [0])
    dropped = 0
    for document in progress(documents, label="reading words", unit="documents"):
        for sentence in document.sentences:
            for word in split_words(sentence, lower=lower):
                number = numbers.get(word)
                if number is None and len(numbers) < MAX_DIFFERENT:
                    number = numbers[word] = len(numbers)
                    counts.append(0)
                dropped += number is None
                ids.append(-1 if number is None else number)
                if number is not None:
                    counts[number] += 1
        ends.append(len(ids))
        if len(ids) >= MAX_WORDS:
            say(f"stopped after {len(ids):,} words, which is what is read of a corpus")
            break
    if dropped:
        say(f"{dropped:,} words came after {MAX_DIFFERENT:,} different ones, and count as unknown")
    found = np.frombuffer(counts, np.int64) if counts else np.zeros(0, np.int64)
    order = np.argsort(-found, kind="stable")
    order = order[found[order] >= min_count][:max_vocabulary]
    if len(order) < 2:
        most = f"{len(numbers):,} different words, {int(found.max(initial=0)):,} times at most"
        raise DataError(
            f"the corpus has {len(ids):,} words, of which {len(order)} occur {min_count} times or more ({most}); word "
            "vectors need at least two: give more text, or a smaller min_count"
        )
    rows = np.full(len(numbers) + 1, -1, np.int32)  # the last for -1
    rows[order] = np.arange(len(order))
    names = list(numbers)
    return WordCorpus(
        tuple(names[number] for number in order.tolist()),
        found[order],
        rows[np.frombuffer(ids, np.int32)],
        np.frombuffer(ends, np.int64),
    )
