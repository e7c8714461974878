"""Texts that are compared as token ids, each text once. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.ragged import Flags, Floats, Ints, Ragged
from bertkit.tasks.embeddings.task import EmbeddingExample
from bertkit.tasks.hold_out import plain_text

#: Number of a text in :attr:`TextColumns.columns` where a row has fewer texts than others.
NONE = -1


@dataclass(frozen=True, slots=True)
class TextColumns:
    """R rows of texts that are compared: U texts, each once as an anchor and once as another.

    texts: token ids of the U texts.
    columns: int64 ``(R, C)``, the number of each text: of the anchor, the positive, the negatives; :data:`NONE` where a
        row has no such negative.
    same: int64 ``(U,)``, equal for texts that differ in case and blanks at most, on whichever side they stand.
    scores: float32 ``(R,)``, as in the file; None where there are none.
    """

    texts: Ragged
    columns: Ints
    same: Ints
    scores: Floats | None = None

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def lengths(self) -> Ints:
        """Tokens of all texts of each row ``(R,)``."""
        return self._sums(self.texts.lengths)

    @property
    def num_tokens_before(self) -> Ints:
        """Tokens of all texts of each row before truncation ``(R,)``."""
        return self._sums(self.texts.num_tokens_before)

    @property
    def truncated(self) -> Flags:
        """Which rows have a text that was cut ``(R,)``."""
        cut: Flags = (self.texts.truncated[self.columns] & (self.columns != NONE)).any(axis=1)
        return cut

    @property
    def documents(self) -> Ints:
        """Numbers of the texts that are searched, those of all columns but the first: int64, each once, in order."""
        found = np.unique(self.columns[:, 1:])
        return found[found != NONE]

    def _sums(self, values_U: Ints) -> Ints:
        found: Ints = (values_U[self.columns] * (self.columns != NONE)).sum(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class NumberedTexts:
    """The texts of some examples, each once on a side.

    texts: U texts, anchors and others mixed. is_anchor: bool ``(U,)``. columns, same: as in :class:`TextColumns`.
    """

    texts: list[str]
    is_anchor: Flags
    columns: Ints
    same: Ints


def number_texts(examples: Sequence[EmbeddingExample]) -> NumberedTexts:
    """Give each text of the examples a number. An anchor is another text than a positive that says the same.

    The two are read with prompts of their own, and in training with dropout of their own.
    """
    numbers: dict[tuple[bool, str], int] = {}
    plain: dict[str, int] = {}
    columns = np.full((len(examples), max(len(example.texts) for example in examples)), NONE, np.int64)
    for row, example in enumerate(examples):
        for column, text in enumerate(example.texts):
            columns[row, column] = numbers.setdefault((column == 0, text), len(numbers))
    same = [plain.setdefault(plain_text(text), len(plain)) for _, text in numbers]
    return NumberedTexts(
        [text for _, text in numbers], np.array([first for first, _ in numbers]), columns, np.array(same, np.int64)
    )


def scores_of(examples: Sequence[EmbeddingExample]) -> Floats | None:
    """The scores of examples, of which all have one or none has."""
    if examples[0].score is None:
        return None
    return np.array([example.score for example in examples], np.float32)
