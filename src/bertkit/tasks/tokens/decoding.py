"""From probabilities of word pieces to entities in the user's own text, in numpy.

The five strategies are those of ``transformers``. Deviations: ``word`` is always ``text[start:end]``, the text as the
user wrote it, never a decoded piece; what is a word is what the tokenizer says, also for tokenizers whose pieces do not
show it; tags of BIOES and its kin are read as such; an accent that the tokenizer drops stays with its letter.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError, did_you_mean
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.tags import OUTSIDE, notation_of
from bertkit.ragged import Flags, Ints
from bertkit.tasks.pieces import Pieces, end_of_marks
from bertkit.tasks.tokens.features import TokenWindows

Strategy = Literal["none", "simple", "first", "average", "max"]
STRATEGIES: tuple[Strategy, ...] = ("none", "simple", "first", "average", "max")
Floats = npt.NDArray[np.floating]
FoundEntity = dict[str, str | int | float]


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
    pieces: Pieces,
    probabilities_PC: Floats,
    id2label: Mapping[int, str],
    strategy: Strategy = "simple",
    ignore_labels: Collection[str] = (OUTSIDE,),
) -> list[list[FoundEntity]]:
    """What the model found in each text, in its order, from the probabilities of each label for each piece ``(P, C)``.

    Strategy "none" gives every piece by itself: ``entity`` (its label), ``score``, ``index`` (of the token, from 1, as
    [CLS] is 0), ``word``, ``start``, ``end``. The others give ``entity_group`` (a type), ``score`` (mean over its words
    or pieces), ``word``, ``start``, ``end``. "simple" joins neighbouring pieces by their labels (of the bytes of one
    character, which some tokenizers keep apart, the first counts). "first", "average" and "max" join words; a word's
    label is that of its first piece, of the mean of its pieces' probabilities, or of its surest piece.
    ``ignore_labels`` are labels ("none") or types (else) to leave out; ``O`` is the tag, never a type of that name.
    """
    found: list[list[FoundEntity]] = [[] for _ in pieces.texts]
    visible = np.flatnonzero(pieces.ends > pieces.starts)  # some tokenizers have pieces of nothing but white space
    if not len(visible):
        return found
    texts = np.repeat(np.arange(len(pieces.texts)), np.diff(pieces.boundaries))[visible]
    starts, ends, probabilities_VC = pieces.starts[visible], pieces.ends[visible], probabilities_PC[visible]
    if strategy == "none":
        places = visible - pieces.boundaries[texts]
        numbers, scores = _most_probable(probabilities_VC)
        wanted = np.array([id2label[number] not in ignore_labels for number in range(len(id2label))])[numbers]
        rows = (column[wanted].tolist() for column in (texts, numbers, scores, places, starts, ends))
        for text, number, score, place, start, end in zip(*rows, strict=True):
            where: FoundEntity = {"word": pieces.texts[text][start:end], "start": start, "end": end}
            found[text].append({"entity": id2label[number], "score": score, "index": place + 1, **where})
        return found
    # The unit that has a label of its own, from one of these pieces to the next, never reaches over two texts.
    if strategy == "simple":  # a piece that begins something new, and is not the next byte of the same character
        apart = texts * (int(ends.max()) + 1)
        before = np.maximum.accumulate(np.append(0, (ends + apart)[:-1]))
        units = np.flatnonzero(starts + apart >= before)
    else:
        words = np.cumsum(_begins_word(pieces))[visible]
        units = np.flatnonzero(np.diff(words, prepend=-1))
    numbers, scores = _most_probable(_of_units(probabilities_VC, units, strategy))
    kinds, first_units = _groups(numbers, texts[units], id2label)
    first_pieces = units[first_units]
    sizes = np.diff(first_units, append=len(units))
    columns = (
        texts[first_pieces],
        np.add.reduceat(scores.astype(np.float64), first_units) / sizes,
        np.minimum.reduceat(starts, first_pieces),
        np.maximum.reduceat(ends, first_pieces),
        first_pieces + np.diff(first_pieces, append=len(visible)),
    )
    for kind, text, score, start, end, after in zip(kinds, *(column.tolist() for column in columns), strict=True):
        if (kind or OUTSIDE) not in ignore_labels or kind == OUTSIDE:  # a type may be called O, which the tag O is not
            source = pieces.texts[text]
            limit = int(starts[after]) if after < len(visible) and texts[after] == text else len(source)
            end = end_of_marks(source, end, limit)
            where = {"word": source[start:end], "start": start, "end": end}
            found[text].append({"entity_group": kind or OUTSIDE, "score": score, **where})
    return found


def _begins_word(pieces: Pieces) -> Flags:
    """Whether each piece is not of the word of the piece before it, in the same text."""
    begins: Flags = (pieces.words < 0) | (np.diff(pieces.words, prepend=-1) != 0)
    firsts = pieces.boundaries[:-1]
    begins[firsts[firsts < len(begins)]] = True  # a text without pieces begins where the next one does
    return begins


def _of_units(probabilities_VC: Floats, units: Ints, strategy: Strategy) -> Floats:
    """The probabilities that each unit, which begins at one of these pieces, is labelled by."""
    if strategy == "average":
        sizes = np.diff(units, append=len(probabilities_VC))
        mean_UC: Floats = np.add.reduceat(probabilities_VC, units, axis=0) / sizes[:, None]
        return mean_UC
    if strategy == "max":
        surest = probabilities_VC.max(axis=-1)
        best = [first + int(part.argmax()) for first, part in zip(units, np.split(surest, units[1:]), strict=True)]
        return probabilities_VC[best]
    return probabilities_VC[units]


def _most_probable(probabilities_UC: Floats) -> tuple[Ints, Floats]:
    numbers = probabilities_UC.argmax(axis=-1)
    return numbers, np.take_along_axis(probabilities_UC, numbers[:, None], axis=-1)[:, 0]


def _groups(numbers_U: Ints, texts_U: Ints, id2label: Mapping[int, str]) -> tuple[list[str], Ints]:
    """Types of neighbours that are one entity, also ``O`` as "", by :mod:`bertkit.metrics.tags`; their first units."""
    notation = notation_of(id2label.values())
    split = [notation.split(id2label[number]) for number in range(len(id2label))]
    letters_C, types = np.array([letter for letter, _ in split]), [kind for _, kind in split]
    types_C = np.array([types.index(kind) for kind in types])
    letters_U, types_U = letters_C[numbers_U], types_C[numbers_U]
    inner, begun = np.isin(letters_U, ["I", "E"]), np.isin(letters_U, ["B", "I"])
    goes_on = inner[1:] & begun[:-1] & (types_U[1:] == types_U[:-1])
    goes_on |= (letters_U[1:] == OUTSIDE) & (letters_U[:-1] == OUTSIDE)
    goes_on &= texts_U[1:] == texts_U[:-1]
    firsts = np.flatnonzero(np.append(True, ~goes_on))
    return [types[number] for number in numbers_U[firsts].tolist()], firsts


def word_labels(
    logits_PC: Floats, windows: TokenWindows, outside: int = 0, inner: Sequence[int] | None = None
) -> list[Ints]:
    """Label number of each word of each text: that of its first piece; ``outside`` for a word without a piece.

    Words that begin in one piece (no-space scripts, unknown text) have one label between them, so that those after the
    first go on with what it begins. A word without a piece between two words of an entity belongs to it. ``inner`` has
    for each label that of a further word, ``I-PER`` for ``B-PER`` and for itself; None repeats the label.
    """
    assert windows.first_pieces is not None, "windows were made without words"
    assert windows.word_boundaries is not None, "windows were made without words"
    labels = np.full(len(windows.first_pieces), outside, dtype=np.int64)
    known = windows.first_pieces >= 0
    labels[known] = logits_PC[windows.first_pieces[known]].argmax(axis=-1)
    if inner is not None:
        _go_on(labels, windows.first_pieces, set(windows.word_boundaries.tolist()), np.array(inner))
    return np.split(labels, windows.word_boundaries[1:-1])


def word_probabilities(
    logits_PC: Floats, windows: TokenWindows, labels: Sequence[Ints], inner: Sequence[int]
) -> list[Floats]:
    """The probability of each label for each word of each text, ``(W, C)``: those of its first piece.

    ``labels`` are those of :func:`word_labels`. A word that shares the piece of the word before goes on with what that
    begins; a word without a piece has its label for sure.
    """
    assert windows.first_pieces is not None, "windows were made without words"
    known, shared = windows.first_pieces >= 0, shares_piece(windows.first_pieces)
    found_WC = np.eye(logits_PC.shape[1], dtype=np.float32)[np.concatenate(labels)]
    found_WC[known] = softmax(logits_PC[windows.first_pieces[known]])
    found_WC[shared] = found_WC[shared] @ np.eye(len(inner), dtype=np.float32)[list(inner)]
    return np.split(found_WC, np.cumsum([len(row) for row in labels])[:-1])


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
