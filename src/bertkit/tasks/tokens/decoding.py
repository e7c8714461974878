"""From probabilities of word pieces to entities in the user's own text, in numpy.

The five strategies are those of ``transformers``. Deviations: ``word`` is always ``text[start:end]``, the text as the
user wrote it, never a decoded piece; what is a word is what the tokenizer says, also for tokenizers whose pieces do not
show it; tags of BIOES and its kin are read as such; an accent that the tokenizer drops stays with its letter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, did_you_mean
from bertkit.metrics.tags import OUTSIDE, Notation, notation_of
from bertkit.ragged import Flags, Ints
from bertkit.tasks.pieces import Pieces, end_of_marks
from bertkit.tasks.tokens.features import TokenWindows

Strategy = Literal["none", "simple", "first", "average", "max"]
STRATEGIES: tuple[Strategy, ...] = ("none", "simple", "first", "average", "max")
Floats = npt.NDArray[np.floating]
FoundEntity = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A piece or a word, with its label and the probability of that; first, last: its pieces' numbers in the text."""

    label: str
    score: float
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TextPieces:
    """The pieces of one text: characters ``(p,)`` each, and which go on with the word before them."""

    text: str
    starts: Ints
    ends: Ints
    inside: Flags

    @classmethod
    def of(cls, text: str, pieces: Pieces, begin: int, end: int) -> TextPieces:
        """Pieces ``begin ... end - 1`` of all, which are those of ``text``."""
        words = pieces.words[begin:end]
        inside = (words >= 0) & (np.diff(words, prepend=-1) == 0)
        return cls(text, pieces.starts[begin:end], pieces.ends[begin:end], inside)

    def select(self, numbers: Ints) -> TextPieces:
        """Some pieces of the text, one or more."""
        words = np.cumsum(~self.inside)[numbers]
        inside = np.concatenate([[False], words[1:] == words[:-1]])
        return TextPieces(self.text, self.starts[numbers], self.ends[numbers], inside)

    def span(self, first: int, last: int) -> tuple[int, int]:
        """Characters of some neighbouring pieces, with the marks after them that the tokenizer dropped."""
        start, end = int(self.starts[first : last + 1].min()), int(self.ends[first : last + 1].max())
        limit = int(self.starts[last + 1]) if last + 1 < len(self.starts) else len(self.text)
        return start, end_of_marks(self.text, end, limit)


def check_strategy(strategy: str) -> Strategy:
    """The strategy; an InputError if there is none of that name."""
    for known in STRATEGIES:
        if strategy == known:
            return known
    raise InputError(
        f"aggregation_strategy={strategy!r} is unknown{did_you_mean(str(strategy), STRATEGIES)}; "
        f"choose from {', '.join(STRATEGIES)}"
    )


def find_entities(
    pieces: TextPieces,
    probabilities_PC: Floats,
    id2label: Mapping[int, str],
    strategy: Strategy = "simple",
    ignore_labels: Collection[str] = (OUTSIDE,),
) -> list[FoundEntity]:
    """What the model found in one text, in its order, from the probabilities of each label for each piece ``(p, C)``.

    Strategy "none" gives every piece by itself: ``entity`` (its label), ``score``, ``index`` (of the token, from 1, as
    [CLS] is 0), ``word``, ``start``, ``end``. The others give ``entity_group`` (a type), ``score`` (mean over its words
    or pieces), ``word``, ``start``, ``end``. "simple" joins neighbouring pieces by their labels (of the bytes of one
    character, which some tokenizers keep apart, the first counts). "first", "average" and "max" join words; a word's
    label is that of its first piece, of the mean of its pieces' probabilities, or of its surest piece.
    ``ignore_labels`` are labels ("none") or types (else) to leave out.
    """
    visible = np.flatnonzero(pieces.ends > pieces.starts)  # some tokenizers have pieces of nothing but white space
    found: list[FoundEntity] = []
    if not len(visible):
        return found
    if strategy == "none":
        best = probabilities_PC.argmax(axis=-1)
        for place in visible.tolist():
            label, score = id2label[int(best[place])], float(probabilities_PC[place, best[place]])
            if label not in ignore_labels:
                start, end = int(pieces.starts[place]), int(pieces.ends[place])
                where: FoundEntity = {"word": pieces.text[start:end], "start": start, "end": end}
                found.append({"entity": label, "score": score, "index": place + 1, **where})
        return found
    pieces, probabilities_PC = pieces.select(visible), probabilities_PC[visible]
    if strategy == "simple":  # by pieces that begin something new, and are not the next byte of the same character
        firsts = np.flatnonzero(pieces.starts >= np.maximum.accumulate(np.concatenate([[0], pieces.ends[:-1]])))
    else:
        firsts = np.flatnonzero(~pieces.inside)
    labelled = _labelled(probabilities_PC, firsts, strategy, id2label)
    notation = notation_of(id2label.values())
    for kind, members in group_labels(labelled, notation):
        if kind in ignore_labels:
            continue
        start, end = pieces.span(members[0].first, members[-1].last)
        where = {"word": pieces.text[start:end], "start": start, "end": end}
        score = float(np.mean([member.score for member in members]))
        found.append({"entity_group": kind, "score": score, **where})
    return found


def group_labels(labelled: Sequence[Labelled], notation: Notation) -> list[tuple[str, list[Labelled]]]:
    """Neighbours that are one entity, by the rule of :mod:`bertkit.metrics.tags`; runs of ``O`` are groups as well."""
    groups: list[tuple[str, list[Labelled]]] = []
    before = ("", "")
    for item in labelled:
        letter, kind = notation.split(item.label)
        goes_on = (letter in "IE" and before[0] in ("B", "I") and before[1] == kind) or before[0] == letter == OUTSIDE
        if goes_on:
            groups[-1][1].append(item)
        else:
            groups.append((kind or OUTSIDE, [item]))
        before = (letter, kind)
    return groups


def word_labels(
    logits_PC: Floats, windows: TokenWindows, outside: int = 0, inner: Sequence[int] | None = None
) -> list[Ints]:
    """Label number of each word of each text: that of its first piece; ``outside`` for a word without a piece.

    Words that begin in one piece (no-space scripts, unknown text) have one label between them, so that those after the
    first go on with what it begins. A word without a piece between two words of an entity belongs to it.

    ``outside`` is the number of the label ``O``; ``inner`` has for each label that of a further word, ``I-PER`` for
    ``B-PER`` and for itself; None repeats the label. ``logits_PC``: of all pieces, ``(P, C)``.
    """
    assert windows.first_pieces is not None, "windows were made without words"
    assert windows.word_boundaries is not None, "windows were made without words"
    labels = np.full(len(windows.first_pieces), outside, dtype=np.int64)
    known = windows.first_pieces >= 0
    labels[known] = logits_PC[windows.first_pieces[known]].argmax(axis=-1)
    if inner is not None:
        _go_on(labels, windows.first_pieces, set(windows.word_boundaries.tolist()), np.array(inner))
    return np.split(labels, windows.word_boundaries[1:-1])


def shares_piece(first_pieces_W: Ints) -> Flags:
    """Whether each word begins in the same piece as the word before."""
    same = (first_pieces_W[1:] == first_pieces_W[:-1]) & (first_pieces_W[1:] >= 0)
    return np.concatenate([np.zeros(min(1, len(first_pieces_W)), dtype=bool), same])


def _go_on(labels_W: Ints, first_pieces_W: Ints, begins: Collection[int], inner_C: Ints) -> None:
    """Label, in place, words that share a piece with the word before, and words without one in an entity."""
    shared = shares_piece(first_pieces_W)
    labels_W[shared] = inner_C[labels_W[shared]]
    for word in np.flatnonzero(first_pieces_W < 0)[::-1].tolist():  # backwards, for several of them in a row
        after = labels_W[word + 1] if word + 1 < len(labels_W) and word + 1 not in begins else None
        if after is None or after != inner_C[after]:
            continue
        before = word
        while before not in begins and first_pieces_W[before] < 0:  # the nearest word with a piece, in the same text
            before -= 1
        if first_pieces_W[before] >= 0 and inner_C[labels_W[before]] == after:
            labels_W[word] = after


def _labelled(
    probabilities_PC: Floats, firsts: Ints, strategy: Strategy, id2label: Mapping[int, str]
) -> list[Labelled]:
    """The label of each run of pieces; runs begin at ``firsts`` and end where the next one begins."""
    lasts = np.append(firsts[1:], len(probabilities_PC)) - 1
    chosen: Floats
    if strategy == "average":
        chosen = np.add.reduceat(probabilities_PC, firsts, axis=0) / (lasts - firsts + 1)[:, None]
    elif strategy == "max":
        surest = probabilities_PC.max(axis=-1)
        best = [first + int(surest[first : last + 1].argmax()) for first, last in zip(firsts, lasts, strict=True)]
        chosen = probabilities_PC[best]
    else:
        chosen = probabilities_PC[firsts]
    numbers = chosen.argmax(axis=-1)
    scores = np.take_along_axis(chosen, numbers[:, None], axis=-1)[:, 0]
    rows = zip(numbers.tolist(), scores.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
    return [Labelled(id2label[number], score, first, last) for number, score, first, last in rows]
