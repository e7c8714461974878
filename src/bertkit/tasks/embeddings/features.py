"""Texts that are compared as token ids, each text once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.ragged import Flags, Floats, Ids, Ints, Ragged
from bertkit.tasks.embeddings.task import EmbeddingExample
from bertkit.tasks.hold_out import plain_text
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Number of a text in :attr:`TextColumns.columns` where a row has fewer texts than others.
NONE = -1


@dataclass(frozen=True, slots=True)
class TextColumns:
    """R rows of texts that are compared: U texts, each once as an anchor and once as another.

    columns: int64 ``(R, C)``, the number of each text: of the anchor, the positive, the negatives; :data:`NONE` where a
        row has no such negative.
    same: int64 ``(U,)``, equal for texts that differ in case and blanks at most, on whichever side they stand.
    scores: float32 ``(R,)``, as in the file.
    """

    texts: Ragged
    columns: Ints
    same: Ints
    scores: Floats | None = None

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def ids(self) -> Ids:
        """Token ids of all texts ``(T,)``."""
        return self.texts.ids

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
    def has_negatives(self) -> Flags:
        """Which rows have a negative of their own ``(R,)``."""
        found: Flags = (self.columns[:, 2:] != NONE).any(axis=1)
        return found

    @property
    def documents(self) -> Ints:
        """Numbers of the texts that are searched, those of all columns but the first: int64, each once, in order."""
        found: Ints = np.unique(self.columns[:, 1:][self.columns[:, 1:] != NONE])
        return found

    def _sums(self, values_U: Ints) -> Ints:
        found: Ints = (values_U[self.columns] * (self.columns != NONE)).sum(axis=1)
        return found


@dataclass(frozen=True, slots=True)
class NumberedTexts:
    """U texts, anchors and others mixed, each once on a side; ``columns`` and ``same`` as in :class:`TextColumns`."""

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


def featurize_columns(
    examples: Sequence[EmbeddingExample],
    tokenizer: PreTrainedTokenizer,
    *,
    max_length: int | None,
    prompts: tuple[str, str] = ("", ""),
    scored: bool = False,
) -> TextColumns:
    """Token ids of the texts of examples, behind the prompt of anchors or of others, and cut at the end."""
    numbered = number_texts(examples)
    texts = [prompts[not first] + text for text, first in zip(numbered.texts, numbered.is_anchor.tolist(), strict=True)]
    rows = featurize_texts(texts, None, tokenizer, max_length=max_length)
    scores = np.array([example.score for example in examples], np.float32) if scored else None
    return TextColumns(rows, numbered.columns, numbered.same, scores)
