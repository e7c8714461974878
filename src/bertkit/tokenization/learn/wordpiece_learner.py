"""Learn the vocabulary of a WordPiece tokenizer from text.

Pieces are merged as in byte-pair encoding (Sennrich et al. 2016, section 3.2): words start as characters, those after
the first written with ``##``, and the most frequent pair of neighbours repeatedly becomes a new piece. The original
learner was never published; its paper (Schuster and Nakajima 2012) merges the pair that most increases the likelihood
of a language model. All public trainers use counts, and greedy longest-match tokenization works well with their pieces;
see ``docs/decisions/0060-vocabulary-learner.md``.

The result is a pure function of the words and their counts. Of pairs with equal counts the one with the oldest pieces
wins, and characters are numbered by code point, so nothing depends on the order of texts, dictionaries or sets.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tokenization.characters import FROZEN
from bertkit.tokenization.reference import WordpieceTokenizer
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD

#: Size of the vocabulary of bert-base-uncased.
DEFAULT_SIZE = 30522
PREFIX = "##"
#: Share of the characters of the text that the alphabet covers: one word in some thousands has a rarer one.
CHARACTER_COVERAGE = 0.99995
#: Bytes per word while pieces are merged; the rarest words are dropped if they do not fit.
BYTES_PER_WORD = 2048
#: Alphabet entries that are always allowed, if the vocabulary has room at all.
SMALL_ALPHABET = 256

_unused = re.compile(r"\[unused\d+\]")


def reserved_tokens(num_unused: int = 994) -> list[str]:
    """The special and ``[unusedN]`` tokens in the places of bert-base-uncased, which has 994 unused ones."""
    unused = [f"[unused{number}]" for number in range(num_unused)]
    return ["[PAD]", *unused[:99], "[UNK]", "[CLS]", "[SEP]", "[MASK]", *unused[99:]]


def vocabulary_from_counts(
    counts: Mapping[str, int], size: int = DEFAULT_SIZE, *, extend: Sequence[str] | None = None
) -> list[str]:
    """The tokens in the order of their ids, from words of ``BasicTokenizer`` and their counts."""
    counts = {word: count for word, count in counts.items() if len(word) <= MAX_INPUT_CHARS_PER_WORD}
    if not counts:
        raise DataError("the text contains no word to learn a vocabulary from")
    if extend is not None:
        return extend_counts(counts, extend, size)
    reserved = reserved_tokens()
    if len(reserved) > size / 8:
        reserved = reserved_tokens(99)  # the least with which [UNK] has the id 100
    room = size - len(reserved)
    if room < 1:
        raise ConfigError(
            f"size must be over {len(reserved)}, the number of special and [unused] tokens that come first, got {size}"
        )
    # Entries of as many characters as fit: those that begin a word, then those that continue one.
    alphabet: list[str] = []
    for char in _frequent_characters(counts):
        if len(alphabet) + len(_entries(char)) > max(room // 2, min(room, SMALL_ALPHABET)):
            break
        alphabet += _entries(char)
    alphabet.sort(key=lambda entry: (len(entry), entry))
    return [*reserved, *_Joiner(counts, alphabet).learn(room)]


def extend_counts(counts: Mapping[str, int], base: Sequence[str], size: int) -> list[str]:
    """Add whole words, and missing characters, to a vocabulary; all other tokens keep their ids.

    New tokens first replace ``[unusedN]``, so that with ``size=len(base)`` the embedding table of a model keeps its
    shape, then follow at the end. Words are chosen by the total number of pieces they save.
    """
    known = dict(zip(base, range(len(base)), strict=True))
    if len(known) != len(base):
        twice = next(token for token, times in Counter(base).items() if times > 1)
        raise InputError(f"the vocabulary to extend has {twice!r} more than once")
    if size < len(base):
        raise ConfigError(f"size must be at least that of the vocabulary to extend, {len(base):,}, got {size:,}")
    free = [number for number, token in enumerate(base) if _unused.fullmatch(token)]
    room = len(free) + size - len(base)
    new = [entry for char in _frequent_characters(counts) for entry in _entries(char) if entry not in known]
    new = new[: room // 2]
    known.update(dict.fromkeys(new, 0))
    tokenizer = WordpieceTokenizer(known)
    saved: dict[str, int] = {}
    for word, count in counts.items():
        # A word that appears once is likely a typo.
        if count > 1 and word not in known and (gain := len(tokenizer.pieces(word)) - 1):
            saved[word] = count * gain
    new += heapq.nsmallest(room - len(new), saved, key=lambda word: (-saved[word], word))
    extended = list(base)
    for place, token in zip(free, new, strict=False):
        extended[place] = token
    return extended + new[len(free) :]


@dataclass(frozen=True, slots=True)
class Fertility:
    """How well a vocabulary fits a text: its words, their pieces, and the words that become ``[UNK]``."""

    words: int
    pieces: int
    unknown: int

    @property
    def pieces_per_word(self) -> float:
        """Mean number of tokens per word, at least 1."""
        return self.pieces / max(self.words, 1)

    @property
    def unknown_rate(self) -> float:
        """Share of words that become ``[UNK]``, from 0 to 1."""
        return self.unknown / max(self.words, 1)


def fertility(counts: Iterable[tuple[str, int]], vocabulary: Iterable[str]) -> Fertility:
    """Measure a vocabulary on counted words, which should come from a held-out text."""
    tokens = dict.fromkeys(vocabulary, 0)
    tokenizer = WordpieceTokenizer(tokens)
    words = pieces = unknown = 0
    for word, count in counts:
        found = [word] if word in tokens else [piece.token for piece in tokenizer.pieces(word)]
        words += count
        pieces += count * len(found)
        unknown += count * (found == [tokenizer.unk_token])
    return Fertility(words, pieces, unknown)


def _frequent_characters(counts: Mapping[str, int]) -> list[str]:
    """The most frequent characters in descending order, as many as cover the text."""
    chars: Counter[str] = Counter()
    for word, count in counts.items():
        for char in word:
            chars[char] += count
    wanted = CHARACTER_COVERAGE * chars.total()
    kept: list[str] = []
    covered = 0
    for char, count in sorted(chars.items(), key=lambda item: (-item[1], item[0])):
        if covered >= wanted:
            break
        kept.append(char)
        covered += count
    return kept


def _entries(char: str) -> list[str]:
    """Entries of a character in the vocabulary: one if it is always a separate word, otherwise two."""
    return [char] if FROZEN.is_chinese(char) or FROZEN.is_punctuation(char) else [char, PREFIX + char]


#: Two neighbouring pieces as one number, which is faster to look up than a tuple and needs less memory.
_SHIFT = 32
_LOW = (1 << _SHIFT) - 1


class _Joiner:
    """Words as lists of pieces, and counts of neighbouring pairs; words beyond the alphabet are ignored."""

    def __init__(self, counts: Mapping[str, int], alphabet: Sequence[str]) -> None:
        self.pieces = list(alphabet)
        self.numbers = {piece: number for number, piece in enumerate(alphabet)}
        self.words: list[list[int]] = []
        self.counts: list[int] = []
        self.pair_counts: dict[int, int] = {}
        #: Words that have, or had, a pair.
        self.places: dict[int, set[int]] = {}
        for word, count in counts.items():
            entries = [word[0], *(PREFIX + char for char in word[1:])]
            if len(entries) > 1 and all(entry in self.numbers for entry in entries):
                self._add([self.numbers[entry] for entry in entries], count)
        # A heap of each count when it last rose; if it has fallen since, it is pushed again when it is popped.
        self.heap = [(-count, pair) for pair, count in self.pair_counts.items()]
        heapq.heapify(self.heap)

    def _add(self, word: list[int], count: int) -> None:
        for left, right in pairwise(word):
            pair = left << _SHIFT | right
            self.pair_counts[pair] = self.pair_counts.get(pair, 0) + count
            self.places.setdefault(pair, set()).add(len(self.words))
        self.words.append(word)
        self.counts.append(count)

    def learn(self, size: int) -> list[str]:
        """Merge pairs until there are ``size`` pieces, or no pair appears twice."""
        while len(self.pieces) < size and self.heap:
            seen, pair = heapq.heappop(self.heap)
            count = self.pair_counts.get(pair, 0)
            if count < 2:
                continue
            if count != -seen:
                heapq.heappush(self.heap, (-count, pair))
                continue
            self._join(pair)
        return self.pieces

    def _join(self, pair: int) -> None:
        left, right = pair >> _SHIFT, pair & _LOW
        piece = self.pieces[left] + self.pieces[right].removeprefix(PREFIX)
        # Another pair may have been merged into the same piece before.
        number = self.numbers.setdefault(piece, len(self.pieces))
        if number == len(self.pieces):
            self.pieces.append(piece)
        changes: dict[int, int] = {}
        for place in self.places.pop(pair):
            before, count = self.words[place], self.counts[place]
            after = _joined(before, left, right, number)
            if len(after) == len(before):
                continue
            for first, second in pairwise(before):
                changed = first << _SHIFT | second
                changes[changed] = changes.get(changed, 0) - count
            for first, second in pairwise(after):
                changed = first << _SHIFT | second
                changes[changed] = changes.get(changed, 0) + count
                if number in (first, second):
                    self.places.setdefault(changed, set()).add(place)
            self.words[place] = after
        self._update(changes)

    def _update(self, changes: Mapping[int, int]) -> None:
        for pair, change in changes.items():
            if change == 0:
                continue
            count = self.pair_counts[pair] = self.pair_counts.get(pair, 0) + change
            assert count >= 0
            if change > 0:
                heapq.heappush(self.heap, (-count, pair))
            elif count == 0:
                del self.pair_counts[pair]


def _joined(word: Sequence[int], left: int, right: int, number: int) -> list[int]:
    joined: list[int] = []
    at = 0
    while at < len(word):
        if word[at] == left and at + 1 < len(word) and word[at + 1] == right:
            joined.append(number)
            at += 2
        else:
            joined.append(word[at])
            at += 1
    return joined
