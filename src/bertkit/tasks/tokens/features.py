"""From texts to packed rows whose every token has an answer: words, offsets and windows for token classification.

A text is cut into word pieces once, with the characters that each stands for. Where it has more pieces than the model
reads, it becomes several rows (windows) that overlap, and each piece is read in the row that shows most of its
surroundings, see :func:`bertkit.windows.best_windows`. Nothing is ever cut off.

Words of a file meet pieces by characters: the piece of a word is the first that shares a character with it. It gets
the word's label, and the model's answer there is the word's. Letters of the tensor names: T tokens of all rows, P
pieces and W words of all texts, C labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bertkit.errors import ConfigError, InputError, counted
from bertkit.ragged import Ints, Ragged, boundaries_of, rows_from_parts
from bertkit.tasks.pieces import Pieces, find_pieces
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.windows import WindowRows, Windows, best_windows, cut_windows

#: A label that is not a target.
IGNORED = -100
#: Of the pieces of a window, the share that the next window repeats.
OVERLAP = 0.25


@dataclass(frozen=True, slots=True)
class TokenWindows(WindowRows):
    """E texts as R rows, and where each piece and each word is read.

    row_texts: int64 ``(R,)``, the text of each row.
    places: int64 ``(P,)``, the token of ``rows`` where each piece is read.
    first_pieces: int64 ``(W,)``, the piece of each word, -1 for a word without any; None where no words were given.
    word_boundaries: int64 ``(E + 1,)``; text e owns words ``word_boundaries[e] : word_boundaries[e + 1]``.
    labels: int64 ``(T,)``, what each token's label is, -100 where the loss does not look.
    """

    pieces: Pieces
    row_texts: Ints
    places: Ints
    first_pieces: Ints | None = None
    word_boundaries: Ints | None = None
    labels: Ints | None = None


def windows_of_texts(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizer,
    *,
    max_length: int,
    overlap: int | None = None,
    truncate: bool = False,
) -> TokenWindows:
    """Rows of ``max_length`` tokens at most for texts of any length, that overlap by a quarter by default."""
    if not texts:
        raise InputError("there are no texts to encode")
    room = max_length - 2
    overlap = int(OVERLAP * room) if overlap is None else overlap
    if room < 1:
        raise ConfigError(f"max_length={max_length} leaves no room for text beside the 2 special tokens")
    if not 0 <= overlap < room:
        raise ConfigError(f"windows of {room} pieces cannot overlap by {overlap}; give from 0 to {room - 1}")
    pieces = find_pieces(texts, tokenizer, strip=True)
    total = np.diff(pieces.boundaries)
    if truncate:
        pieces = pieces.first(room)
    windows = cut_windows(np.diff(pieces.boundaries), room, room - overlap, full_last=True)
    # Only ``truncate`` loses anything, and then each text has one row.
    rows = _rows(pieces, windows, tokenizer, total + 2 if truncate else None)
    owners = best_windows(windows, pieces.boundaries)
    first_piece = pieces.boundaries[windows.owners] + windows.starts
    places = rows.boundaries[owners] + 1 + np.arange(len(owners)) - first_piece[owners]
    return TokenWindows(rows, pieces, windows.owners, places)


def windows_of_words(
    texts: Sequence[str],
    words: Sequence[Sequence[tuple[int, int]]],
    tokenizer: PreTrainedTokenizer,
    *,
    max_length: int,
    overlap: int | None = None,
    labels: Sequence[Sequence[int]] | None = None,
    inner_labels: Sequence[int] | None = None,
) -> TokenWindows:
    """The same for texts with ``(start, end)`` of their words, with a label for the first piece of each word.

    Each word is labelled in one row only, the one in which it is read. A piece that begins several words (where they
    are written without blanks) has the label of the first. ``inner_labels`` has for each label number the one that the
    further pieces of a word get (``I-PER`` for ``B-PER``); None leaves them out of the loss.
    """
    windows = windows_of_texts(texts, tokenizer, max_length=max_length, overlap=overlap)
    pieces = windows.pieces
    firsts = [
        _first_pieces(pieces, start, end, np.asarray(spans, dtype=np.int64).reshape(-1, 2))
        for (start, end), spans in zip(pieces.spans(), words, strict=True)
    ]
    first_pieces = np.concatenate(firsts)
    word_boundaries = boundaries_of([len(spans) for spans in words])
    windows = replace(windows, first_pieces=first_pieces, word_boundaries=word_boundaries)
    if labels is None:
        return windows
    labels_W = np.array([label for row in labels for label in row], dtype=np.int64)
    if len(labels_W) != len(first_pieces):
        found, expected = counted(len(labels_W), "label"), counted(len(first_pieces), "word")
        raise InputError(f"{found} for {expected}; give one label for each word")
    labels_P = np.full(len(pieces.ids), IGNORED, dtype=np.int64)
    has_piece = first_pieces >= 0
    # Backwards, so that of several words in one piece the first has the last say.
    labels_P[first_pieces[has_piece][::-1]] = labels_W[has_piece][::-1]
    if inner_labels is not None:
        inner = np.array([*inner_labels, IGNORED], dtype=np.int64)  # what -100 is followed by stays -100
        for begin, end in pieces.spans():
            of_text = labels_P[begin:end]
            last = np.maximum.accumulate(np.where(of_text != IGNORED, np.arange(len(of_text)), -1))
            fill = (of_text == IGNORED) & (last >= 0)
            of_text[fill] = inner[of_text[last[fill]]]
    labels_T = np.full(len(windows.rows.ids), IGNORED, dtype=np.int64)
    labels_T[windows.places] = labels_P
    return replace(windows, labels=labels_T)


def _rows(pieces: Pieces, windows: Windows, tokenizer: PreTrainedTokenizer, num_tokens_before: Ints | None) -> Ragged:
    """[CLS] window [SEP]."""
    special = np.array([tokenizer.cls_token_id, tokenizer.sep_token_id], dtype=np.int32)
    ids = np.concatenate([special, pieces.ids])
    zero = np.zeros_like(windows.owners)
    starts = (zero, len(special) + pieces.boundaries[windows.owners] + windows.starts, zero + 1)
    sizes = (zero + 1, windows.sizes, zero + 1)
    types = np.zeros(len(ids), dtype=np.int8)
    return rows_from_parts(ids, types, np.stack(starts, axis=1), np.stack(sizes, axis=1), num_tokens_before)


def _first_pieces(pieces: Pieces, begin: int, end: int, spans_W2: Ints) -> Ints:
    """For each word of a text the first of its pieces that shares a character with it, or -1."""
    starts, ends = pieces.starts[begin:end], pieces.ends[begin:end]
    real = np.flatnonzero(ends > starts)  # a piece without a character shares none with any word
    if not len(real):
        return np.full(len(spans_W2), -1, dtype=np.int64)
    found = np.searchsorted(np.maximum.accumulate(ends[real]), spans_W2[:, 0], side="right")
    inside = np.minimum(found, len(real) - 1)
    shares = (found < len(real)) & (starts[real][inside] < spans_W2[:, 1])
    return np.where(shares, begin + real[inside], -1)
