"""From texts to packed rows whose every token has an answer: words, offsets and windows for token classification.

A text is cut into word pieces once, with the characters that each stands for. Where it has more pieces than the model
reads, it becomes several rows (windows) that overlap, and each piece is read in the row that shows most of what stands
around it: the larger of its smaller distances to the two ends of a row ("max context", section "SQuAD" of the original
code's README, there for answers). Nothing is ever cut off.

Words of a file meet pieces by characters: the piece of a word is the first that shares a character with it. It gets
the word's label, and the model's answer there is the word's. Letters of the tensor names: T tokens of all rows, P
pieces and W words of all texts, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from bertkit.batch import Batch
from bertkit.errors import ConfigError, InputError
from bertkit.tasks.text.features import FeatureSet, Ints, collate
from bertkit.tokenization.fast.chunk_cache import gather

#: A label that is not a target.
IGNORED = -100
#: Of the pieces of a window, the share that the next window repeats.
OVERLAP = 0.25

Words = Sequence[tuple[int, int]]


class OffsetTokenizer(Protocol):
    """What this module needs of a tokenizer; :class:`bertkit.tokenization.BertTokenizer` has it."""

    model_max_length: int

    @property
    def cls_token_id(self) -> int:
        """What a row begins with."""

    @property
    def sep_token_id(self) -> int:
        """What a row ends with."""

    def __call__(
        self, text: Any, /, *, add_special_tokens: bool, truncation: bool, return_offsets_mapping: bool
    ) -> Any:
        """Token ids, the characters of each, and ``word_ids``."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Word pieces of E texts end to end, without special tokens.

    ids: int32 ``(P,)``.
    starts, ends: int64 ``(P,)``, the characters of each in its own text, without white space at the edges.
    inside: bool ``(P,)``, whether the piece goes on with the word of the piece before it, as the tokenizer sees words.
    boundaries: int64 ``(E + 1,)``; text e owns pieces ``boundaries[e] : boundaries[e + 1]``.
    """

    ids: npt.NDArray[np.int32]
    starts: Ints
    ends: Ints
    inside: npt.NDArray[np.bool_]
    boundaries: Ints

    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` of the pieces of each text."""
        return list(pairwise(self.boundaries.tolist()))


@dataclass(frozen=True, slots=True)
class TokenWindows:
    """E texts as R rows, and where each piece and each word is read.

    rows: token ids of the rows, special tokens included.
    pieces: what the rows were made from.
    row_texts: int64 ``(R,)``, the text of each row.
    places: int64 ``(P,)``, the token of ``rows`` where each piece is read.
    first_pieces: int64 ``(W,)``, the piece of each word, -1 for a word without any; None where no words were given.
    word_boundaries: int64 ``(E + 1,)``; text e owns words ``word_boundaries[e] : word_boundaries[e + 1]``.
    labels: int64 ``(T,)``, what each token's label is, -100 where the loss does not look; None without labels.
    """

    rows: FeatureSet
    pieces: Pieces
    row_texts: Ints
    places: Ints
    first_pieces: Ints | None = None
    word_boundaries: Ints | None = None
    labels: Ints | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, int64 ``(R,)``."""
        return self.rows.lengths

    @property
    def num_tokens(self) -> Ints:
        """The same as :attr:`lengths`: rows are windows, and nothing is cut off."""
        return self.rows.num_tokens

    @property
    def truncated(self) -> npt.NDArray[np.bool_]:
        """False for every row."""
        return self.rows.truncated

    @property
    def text_tokens(self) -> Ints:
        """Tokens that each text would have in one row, special tokens included, int64 ``(E,)``."""
        return np.diff(self.pieces.boundaries) + 2


def find_pieces(texts: Sequence[str], tokenizer: OffsetTokenizer) -> Pieces:
    """Cut texts into word pieces and say which characters each stands for.

    Raises:
        InputError: something that is not a text.
    """
    encoded = tokenizer(list(texts), add_special_tokens=False, truncation=False, return_offsets_mapping=True)
    ids: list[int] = []
    starts: list[int] = []
    ends: list[int] = []
    inside: list[bool] = []
    boundaries = [0]
    for row, text in enumerate(texts):
        ids += encoded["input_ids"][row]
        for start, end in encoded["offset_mapping"][row]:
            while start < end and text[start].isspace():  # pieces of some tokenizers take the blank before them along
                start += 1
            while start < end and text[end - 1].isspace():
                end -= 1
            starts.append(start)
            ends.append(end)
        words = encoded.word_ids(row)
        inside += [word is not None and word == before for before, word in zip([None, *words], words, strict=False)]
        boundaries.append(len(ids))
    return Pieces(
        np.array(ids, dtype=np.int32),
        np.array(starts, dtype=np.int64),
        np.array(ends, dtype=np.int64),
        np.array(inside, dtype=bool),
        np.array(boundaries, dtype=np.int64),
    )


def windows_of_texts(
    texts: Sequence[str],
    tokenizer: OffsetTokenizer,
    *,
    max_length: int,
    overlap: int | None = None,
    truncate: bool = False,
) -> TokenWindows:
    """Rows of at most ``max_length`` tokens for texts of any length.

    Args:
        texts: E texts.
        tokenizer: see :class:`OffsetTokenizer`.
        max_length: most tokens of a row, special tokens included.
        overlap: pieces that neighbouring rows of a text share; None means a quarter of a row.
        truncate: read only the first row of each text.

    Raises:
        InputError: no texts.
        ConfigError: rows that leave no room, or an overlap that leaves nothing new.
    """
    if not texts:
        raise InputError("no texts to turn into features")
    room = max_length - 2
    overlap = int(OVERLAP * room) if overlap is None else overlap
    if room < 1:
        raise ConfigError(f"max_length={max_length} leaves no room beside 2 special tokens")
    if not 0 <= overlap < room:
        raise ConfigError(f"windows of {room} pieces cannot overlap by {overlap}; give from 0 to {room - 1}")
    pieces = find_pieces(texts, tokenizer)
    total = np.diff(pieces.boundaries)
    if truncate:
        pieces = _first(pieces, room)
    starts, lengths, row_texts, places = _lay_out(pieces, room, overlap)
    rows = _rows(pieces, starts, lengths, tokenizer)
    # Only under ``truncate`` is anything lost, and then each text has one row.
    num_tokens = total + 2 if truncate else rows.lengths
    rows = FeatureSet(rows.input_ids, rows.token_type_ids, rows.boundaries, num_tokens)
    return TokenWindows(rows, pieces, row_texts, places)


def windows_of_words(
    texts: Sequence[str],
    words: Sequence[Words],
    tokenizer: OffsetTokenizer,
    *,
    max_length: int,
    overlap: int | None = None,
    labels: Sequence[Sequence[int]] | None = None,
    inner_labels: Sequence[int] | None = None,
) -> TokenWindows:
    """The same for texts whose words are known, with a label for the first piece of each word.

    Args:
        texts: E texts.
        words: ``(start, end)`` of the words of each text, in order, not overlapping.
        tokenizer: see :class:`OffsetTokenizer`.
        max_length: see :func:`windows_of_texts`.
        overlap: see :func:`windows_of_texts`.
        labels: label numbers of the words of each text; None for prediction.
        inner_labels: for each label number the one that the further pieces of a word get (``I-PER`` for ``B-PER``);
            None leaves them out of the loss.

    Returns:
        Each word is labelled in one row only, the one in which it is read. A piece that begins several words (where
        they are written without blanks) has the label of the first.
    """
    windows = windows_of_texts(texts, tokenizer, max_length=max_length, overlap=overlap)
    pieces = windows.pieces
    firsts = [
        _first_pieces(pieces, start, end, np.asarray(spans, dtype=np.int64).reshape(-1, 2))
        for (start, end), spans in zip(pieces.spans(), words, strict=True)
    ]
    first_pieces = np.concatenate(firsts)
    word_boundaries = np.concatenate([[0], np.cumsum([len(spans) for spans in words])]).astype(np.int64)
    flat = None
    if labels is not None:
        numbers = np.array([label for row in labels for label in row], dtype=np.int64)
        flat = _token_labels(windows, first_pieces, numbers, inner_labels)
    return TokenWindows(windows.rows, pieces, windows.row_texts, windows.places, first_pieces, word_boundaries, flat)


def collate_tokens(windows: TokenWindows, rows: npt.ArrayLike, *, labelled: bool) -> Batch:
    """A packed batch of some rows; with ``labelled``, ``targets["labels"]`` is int64 ``(T',)``.

    Raises:
        InputError: no rows, or no labels where they are asked for.
    """
    batch = collate(windows.rows, rows)
    if not labelled:
        return batch
    if windows.labels is None:
        raise InputError("these rows have no labels; pass labelled=False to predict")
    chosen = np.asarray(rows, dtype=np.int64)
    tokens = gather(windows.rows.boundaries[chosen], windows.lengths[chosen])
    return batch.with_target("labels", torch.from_numpy(windows.labels[tokens]))


def _first(pieces: Pieces, room: int) -> Pieces:
    """The first ``room`` pieces of each text."""
    kept = np.minimum(np.diff(pieces.boundaries), room)
    chosen = gather(pieces.boundaries[:-1], kept)
    boundaries = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    return Pieces(pieces.ids[chosen], pieces.starts[chosen], pieces.ends[chosen], pieces.inside[chosen], boundaries)


def _lay_out(pieces: Pieces, room: int, overlap: int) -> tuple[Ints, Ints, Ints, Ints]:
    """First piece, number of pieces and text of each row ``(R,)``; and where each piece is read ``(P,)``."""
    starts: list[int] = []
    lengths: list[int] = []
    row_texts: list[int] = []
    owners = np.zeros(len(pieces.ids), dtype=np.int64)
    for text, (begin, end) in enumerate(pieces.spans()):
        first_row = len(starts)
        own = window_starts(end - begin, room, overlap)
        starts += [begin + start for start in own]
        lengths += [min(room, end - begin)] * len(own)
        row_texts += [text] * len(own)
        # Between two windows the piece in the middle of what they share belongs to the first.
        turns = [begin + (second + first + room - 1) // 2 for first, second in pairwise(own)]
        owners[begin:end] = first_row + np.searchsorted(turns, np.arange(begin, end), side="left")
    firsts, sizes = np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64)
    row_begins = np.concatenate([[0], np.cumsum(sizes + 2)[:-1]]).astype(np.int64)
    places = row_begins[owners] + 1 + np.arange(len(owners)) - firsts[owners]
    return firsts, sizes, np.array(row_texts, dtype=np.int64), places


def window_starts(num_pieces: int, room: int, overlap: int) -> list[int]:
    """Where windows of ``room`` pieces begin; the last one ends with the text, so that it is full as well."""
    if num_pieces <= room:
        return [0]
    return [*range(0, num_pieces - room, room - overlap), num_pieces - room]


def _rows(pieces: Pieces, starts: Ints, lengths: Ints, tokenizer: OffsetTokenizer) -> FeatureSet:
    boundaries = np.concatenate([[0], np.cumsum(lengths + 2)]).astype(np.int64)
    ids = np.empty(int(boundaries[-1]), dtype=np.int32)
    inner = np.ones(len(ids), dtype=bool)
    inner[boundaries[:-1]] = inner[boundaries[1:] - 1] = False
    ids[boundaries[:-1]], ids[boundaries[1:] - 1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids[inner] = pieces.ids[gather(starts, lengths)]
    return FeatureSet(ids, np.zeros(len(ids), dtype=np.int8), boundaries, np.diff(boundaries))


def _first_pieces(pieces: Pieces, begin: int, end: int, spans_W2: Ints) -> Ints:
    """For each word of a text the first of its pieces that shares a character with it, or -1."""
    if begin == end or not len(spans_W2):
        return np.full(len(spans_W2), -1, dtype=np.int64)
    starts, ends = pieces.starts[begin:end], pieces.ends[begin:end]
    real = np.flatnonzero(ends > starts)  # a piece without a character shares none with any word
    if not len(real):
        return np.full(len(spans_W2), -1, dtype=np.int64)
    found = np.searchsorted(np.maximum.accumulate(ends[real]), spans_W2[:, 0], side="right")
    inside = np.minimum(found, len(real) - 1)
    shares = (found < len(real)) & (starts[real][inside] < spans_W2[:, 1])
    return np.where(shares, begin + real[inside], -1)


def _token_labels(
    windows: TokenWindows, first_pieces: Ints, labels_W: Ints, inner_labels: Sequence[int] | None
) -> Ints:
    labels_P = np.full(len(windows.pieces.ids), IGNORED, dtype=np.int64)
    if len(labels_W) != len(first_pieces):
        raise InputError(f"{len(labels_W):,} labels for {len(first_pieces):,} words")
    has_piece = first_pieces >= 0
    # Backwards, so that of several words in one piece the first has the last say.
    labels_P[first_pieces[has_piece][::-1]] = labels_W[has_piece][::-1]
    if inner_labels is not None:
        inner = np.array([*inner_labels, IGNORED], dtype=np.int64)  # what -100 is followed by stays -100
        for begin, end in windows.pieces.spans():
            _fill_in(labels_P[begin:end], inner)
    labels = np.full(len(windows.rows.input_ids), IGNORED, dtype=np.int64)
    labels[windows.places] = labels_P
    return labels


def _fill_in(labels_P: Ints, inner: Ints) -> None:
    """Give each piece without a label the inner label of the labelled one before it, in place."""
    labelled = labels_P != IGNORED
    if not labelled.any():
        return
    last = np.maximum.accumulate(np.where(labelled, np.arange(len(labels_P)), -1))
    fill = ~labelled & (last >= 0)
    labels_P[fill] = inner[labels_P[last[fill]]]


__all__ = [
    "IGNORED",
    "OffsetTokenizer",
    "Pieces",
    "TokenWindows",
    "collate_tokens",
    "find_pieces",
    "window_starts",
    "windows_of_texts",
    "windows_of_words",
]
