"""Token ids of many rows end to end: the one container between the tokenizer and the batch. Imports no torch.

Letters of the array shapes: T tokens, B rows, P parts of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

Ids = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]
Segments = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.float32]


def outside_table(name: str, field: str, wrong: int, num_rows: int) -> InputError:
    """For a number that is in no table of embeddings: ``field`` of the config says how many rows this has."""
    hint = " Truncate the text, or use a model with more positions." if name == "position_ids" else ""
    return InputError(f"{name} has {wrong}, outside 0 ... {num_rows - 1} ({field} of the model).{hint}")


def gather(starts: Ints, lengths: Ints) -> Ints:
    """Indices ``starts[0] ... starts[0] + lengths[0] - 1``, then those of the next span, and so on."""
    ends = lengths.cumsum()
    shifts = starts - ends + lengths
    found: Ints = shifts.repeat(lengths) + np.arange(ends[-1] if len(ends) else 0)
    return found


def boundaries_of(sizes: npt.ArrayLike) -> Ints:
    """``(0, s0, s0 + s1, ...)``: int64, one more than ``sizes``."""
    ends = np.cumsum(sizes)
    found = np.zeros(len(ends) + 1, np.int64)
    found[1:] = ends
    return found


@dataclass(frozen=True, slots=True)
class Ragged:
    """Token ids of B rows, each a text or a pair of texts.

    ids: int32 ``(T,)``, special tokens included where there are any.
    boundaries: int64 ``(B + 1,)``; row b owns the tokens ``boundaries[b] : boundaries[b + 1]``.
    token_type_ids: int8 ``(T,)``, the segment of each token: 1 in the second text of a BERT pair and its [SEP].
    num_tokens_before: int64 ``(B,)``, how many tokens each row had before truncation, special tokens included.
    seconds: int64 ``(B,)``, the place in ``ids`` behind the first [SEP] of a pair; None where there are no pairs.
    labels: one per row: int64 ``(B,)`` label numbers, float32 ``(B,)`` scores, float32 ``(B, C)`` of 1 and 0; or None.
    weights: float32 ``(B,)``, what each row counts in a loss, with mean 1; None where all count the same.
    """

    ids: Ids
    boundaries: Ints
    token_type_ids: Segments
    num_tokens_before: Ints
    seconds: Ints | None = None
    labels: Labels | None = None
    weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.boundaries) - 1

    def _span(self, row: int) -> slice:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return slice(int(self.boundaries[row]), int(self.boundaries[row + 1]))

    def __getitem__(self, row: int) -> Ids:
        """Ids of one row: a view."""
        return self.ids[self._span(row)]

    def __iter__(self) -> Iterator[Ids]:
        return (self.ids[start:end] for start, end in pairwise(self.boundaries.tolist()))

    def types(self, row: int) -> Segments:
        """Segments of one row: a view."""
        return self.token_type_ids[self._span(row)]

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, int64 ``(B,)``."""
        return self.boundaries[1:] - self.boundaries[:-1]  # np.diff takes ten times as long for a single row

    @property
    def truncated(self) -> Flags:
        """Which rows lost tokens, bool ``(B,)``."""
        return self.num_tokens_before > self.lengths

    def select(self, rows: npt.ArrayLike) -> Ragged:
        """These rows in this order; a row may be taken twice. :attr:`seconds` is left out."""
        chosen = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[chosen]
        tokens = gather(self.boundaries[chosen], lengths)
        return Ragged(
            self.ids[tokens],
            boundaries_of(lengths),
            self.token_type_ids[tokens],
            self.num_tokens_before[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            weights=None if self.weights is None else self.weights[chosen],
        )


def concatenate(sets: Sequence[Ragged]) -> Ragged:
    """The rows of several sets, one set after the other, without labels."""
    return Ragged(
        np.concatenate([part.ids for part in sets]),
        boundaries_of(np.concatenate([part.lengths for part in sets])),
        np.concatenate([part.token_type_ids for part in sets]),
        np.concatenate([part.num_tokens_before for part in sets]),
    )


def rows_from_parts(
    ids: Ids, token_type_ids: Segments, starts: Ints, sizes: Ints, num_tokens_before: Ints | None = None
) -> Ragged:
    """Rows put together from spans of one flat array, such as [CLS], a part of a text, [SEP].

    Span p of row b has the ``sizes[b, p]`` tokens (perhaps none) from ``starts[b, p]`` on; both int64 ``(B, P)``.
    ``num_tokens_before`` is that of :class:`Ragged`; None: nothing was cut.
    """
    lengths = sizes.sum(axis=1)
    tokens = gather(starts.ravel(), sizes.ravel())
    before = lengths if num_tokens_before is None else num_tokens_before
    return Ragged(ids[tokens], boundaries_of(lengths), token_type_ids[tokens], before)


@dataclass(frozen=True, slots=True)
class GroupSet:
    """R rows of one or more sequences each: a question with its choices, a long text with its windows.

    The encoder reads sequences; training and evaluation count rows, and one row has one label.

    sequences: the token ids of all S sequences; without labels.
    groups: int64 ``(R + 1,)``; row r owns the sequences ``groups[r] : groups[r + 1]``.
    num_tokens_before: int64 ``(R,)``, tokens of each row before truncation.
    truncated: bool ``(R,)``, rows that lost tokens.
    labels: as in :class:`Ragged`, one per row; or None.
    """

    sequences: Ragged
    groups: Ints
    num_tokens_before: Ints
    truncated: Flags
    labels: Labels | None = None

    @classmethod
    def of(cls, sequences: Ragged, groups: Ints, labels: Labels | None = None) -> GroupSet:
        """Rows of sequences that are read one after the other, each cut by itself."""
        before, cut = sequences.num_tokens_before, sequences.truncated
        starts = groups[:-1]
        return cls(sequences, groups, np.add.reduceat(before, starts), np.logical_or.reduceat(cut, starts), labels)

    def __len__(self) -> int:
        return len(self.groups) - 1

    @property
    def ids(self) -> Ids:
        """Token ids of all sequences, int32 ``(T,)``."""
        return self.sequences.ids

    @property
    def sizes(self) -> Ints:
        """Sequences of each row, int64 ``(R,)``."""
        return np.diff(self.groups)

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, over all of its sequences: int64 ``(R,)``."""
        return np.diff(self.sequences.boundaries[self.groups])

    def sequences_of(self, rows: npt.ArrayLike) -> Ints:
        """Numbers of the sequences of these rows, in order."""
        chosen = np.asarray(rows, dtype=np.int64)
        return gather(self.groups[chosen], self.sizes[chosen])

    def mean(self, values: Floats) -> Floats:
        """Mean over the sequences of each row: ``(S, ...)`` to ``(R, ...)``."""
        sums = np.add.reduceat(values.astype(np.float64), self.groups[:-1], axis=0)
        return (sums / self.sizes.reshape(-1, *(1,) * (values.ndim - 1))).astype(np.float32)

    def select(self, rows: npt.ArrayLike) -> GroupSet:
        """These rows in this order; a row may be taken twice."""
        chosen = np.asarray(rows, dtype=np.int64)
        return GroupSet(
            self.sequences.select(self.sequences_of(chosen)),
            boundaries_of(self.sizes[chosen]),
            self.num_tokens_before[chosen],
            self.truncated[chosen],
            None if self.labels is None else self.labels[chosen],
        )
