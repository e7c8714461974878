"""The readable tokenizer that BERT's fast path is tested against: text to words, and words to word pieces.

From text to words: clean, space out Chinese characters, strip accents, lower-case, split. The steps and their order are
those of ``BasicTokenizer`` in the original BERT code (google-research/bert, ``tokenization.py``; Devlin et al. 2019,
section 3), applied character by character; each character of the result keeps its place in the user's text. Every
function is linear in the length of the text.

Three deviations from the original follow the fast tokenizers that published models were used with. Accents are stripped
before lower-casing, not after, which makes no difference (not even for U+0130, once accents are stripped). Lower-casing
looks at one character at a time, so a final sigma becomes σ where ``str.lower`` on a word gives ς. Special tokens are
found anywhere in the text, not only between white space.

From words to pieces: the greedy longest match (Wu et al. 2016, section 4.1). ``unaffable`` becomes ``un ##aff ##able``:
at each place the longest entry that fits is taken, where ``##`` marks those that continue a word. A word that cannot be
covered becomes the unknown token, and so does one of more than ``max_input_chars_per_word`` characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from bertkit.errors import InputError
from bertkit.tokenization.characters import FROZEN, CharacterClasses
from bertkit.tokenization.formats.vocabulary_files import read_vocab
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD, SPECIAL_TOKENS

Key = TypeVar("Key", str, int)
Value = TypeVar("Value", str, int)


class Word(NamedTuple):
    """One word after normalization.

    text: its characters, as the vocabulary has them.
    sources: for each character of ``text``, the index in the user's text of the character it comes from.
    special: whether it is a special token, which is not cut into pieces.
    """

    text: str
    sources: Sequence[int]
    special: bool = False

    def span(self, start: int, end: int) -> tuple[int, int]:
        """``(start, end)`` in the user's text of the characters ``text[start:end]``."""
        return self.sources[start], self.sources[end - 1] + 1


#: A text in the making: its characters, each with the index of the character of the user's text it comes from.
Aligned = list[tuple[str, int]]


def decompose(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Canonical decomposition (NFD): letters apart from their accents, marks in canonical order.

    A part that is not the first of its character is aligned with the character before the one whose turn it is, as the
    fast tokenizers report it. That matters only where marks change places.
    """
    parts: list[tuple[int, str, bool]] = []
    run = 0  # where the marks that may still change places begin
    for char, _ in text:
        for number, part in enumerate(classes.decompose(char)):
            order = classes.combining(part)
            if order == 0:
                parts[run:] = sorted(parts[run:], key=itemgetter(0))
                run = len(parts) + 1
            parts.append((order, part, number > 0))
    parts[run:] = sorted(parts[run:], key=itemgetter(0))
    aligned: Aligned = []
    turn = 0
    for _, part, new in parts:
        turn += not new
        aligned.append((part, text[max(turn - 1, 0)][1]))
    return aligned


def split(text: Aligned, classes: CharacterClasses) -> Iterator[Word]:
    """Words: runs without white space, each punctuation character for itself."""
    run: Aligned = []
    for char, at in text:
        alone = classes.is_punctuation(char)
        if run and (alone or classes.is_space(char)):
            yield _word(run)
            run = []
        if alone:
            yield Word(char, (at,))
        elif not classes.is_space(char):
            run.append((char, at))
    if run:
        yield _word(run)


def _word(run: Aligned) -> Word:
    return Word("".join(char for char, _ in run), [at for _, at in run])


class BasicTokenizer:
    """Text to words, before word pieces.

    Args:
        do_lower_case: lower-case, and strip accents if ``strip_accents`` is None: for models called "uncased".
        strip_accents: None means as ``do_lower_case``.
        tokenize_chinese_chars: make each Chinese character a word.
        never_split: strings kept whole and untouched wherever they appear in the text, such as ``"[MASK]"``. Of two
            that match at the same place the longer one wins.
        classes: which characters are white space, punctuation and so on; see :mod:`bertkit.tokenization.characters`.
    """

    def __init__(
        self,
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        never_split: Iterable[str] = (),
        classes: CharacterClasses = FROZEN,
    ) -> None:
        self.do_lower_case = do_lower_case
        self.strip_accents = do_lower_case if strip_accents is None else strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.never_split = tuple(sorted(never_split, key=len, reverse=True))
        self.classes = classes
        self._whole = re.compile("|".join(map(re.escape, self.never_split))) if self.never_split else None

    def tokenize(self, text: str) -> list[str]:
        """The words of ``text``."""
        return [word.text for word in self.words(text)]

    def words(self, text: str) -> Iterator[Word]:
        """The words of ``text`` with their places in it."""
        done = 0
        for match in self._whole.finditer(text) if self._whole else ():
            yield from split(self.normalize(text, done, match.start()), self.classes)
            yield Word(match[0], range(match.start(), match.end()), special=True)
            done = match.end()
        yield from split(self.normalize(text, done), self.classes)

    def normalize(self, text: str, start: int = 0, end: int | None = None) -> Aligned:
        """``text[start:end]`` cleaned, spaced out, stripped and lower-cased, with places in ``text``."""
        end, classes = len(text) if end is None else end, self.classes
        aligned: Aligned = []
        for at, char in enumerate(text[start:end], start):
            if classes.is_removed(char):
                continue
            if self.tokenize_chinese_chars and classes.is_chinese(char):
                aligned += [(" ", at), (char, at), (" ", at)]
            else:
                aligned.append((" " if classes.is_space(char) else char, at))
        if self.strip_accents:
            aligned = [(char, at) for char, at in decompose(aligned, classes) if not classes.is_accent(char)]
        if self.do_lower_case:
            # One capital may become several characters.
            aligned = [(small, at) for char, at in aligned for small in classes.lower(char)]
        return aligned


class Piece(NamedTuple):
    """One token: ``text[start:end]`` is the part of the user's text it stands for."""

    token: str
    start: int
    end: int


class WordpieceTokenizer:
    """Greedy longest-match-first word pieces.

    Args:
        vocab: the known pieces; any container of strings with fast ``in`` (the dict of :func:`load_vocab` does).
        unk_token: stands for a word that cannot be covered.
        max_input_chars_per_word: words with more characters become ``unk_token``.
        prefix: what an entry that continues a word begins with.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
        prefix: str = "##",
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self.prefix = prefix

    def tokenize(self, text: str) -> list[str]:
        """Pieces of every word of ``text``, which white space separates (as :class:`BasicTokenizer` leaves it)."""
        return [piece.token for word in text.split() for piece in self.pieces(word)]

    def pieces(self, word: str) -> list[Piece]:
        """Pieces of one word, with their places in the word."""
        unknown = [Piece(self.unk_token, 0, len(word))]
        if len(word) > self.max_input_chars_per_word:
            return unknown
        pieces: list[Piece] = []
        start = 0
        while start < len(word):
            prefix = self.prefix if start else ""
            for end in range(len(word), start, -1):
                token = prefix + word[start:end]
                if token in self.vocab:
                    pieces.append(Piece(token, start, end))
                    start = end
                    break
            else:
                return unknown
        return pieces


def load_vocab(vocab_file: str | Path) -> dict[str, int]:
    """Read a ``vocab.txt``: one token per line, its id the line's number counted from 0.

    Raises:
        CheckpointError: the file is missing, too large, not UTF-8, or has an empty or repeated line; names the line.
    """
    return read_vocab(Path(vocab_file))


def convert_by_vocab(vocab: Mapping[Key, Value], items: Iterable[Key]) -> list[Value]:
    """The value of each item.

    Args:
        vocab: token to id, or id to token.
        items: tokens, or ids.

    Raises:
        InputError: an item that is not in ``vocab``.
    """
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        hint = "; tokenize the text first" if isinstance(error.args[0], str) else ""
        raise InputError(f"{error.args[0]!r} is not in the vocabulary of {len(vocab):,} entries{hint}") from None


class FullTokenizer:
    """Text to word pieces: :class:`BasicTokenizer`, then :class:`WordpieceTokenizer`.

    The readable reference for :class:`~bertkit.tokenization.BertTokenizer`, slower and without special tokens of its
    own. Unlike the original it keeps special tokens that stand in the text whole.

    Args:
        vocab_file: a ``vocab.txt``, or a vocabulary already read.
        do_lower_case, strip_accents, tokenize_chinese_chars, never_split, classes: see :class:`BasicTokenizer`.
        unk_token, max_input_chars_per_word: see :class:`WordpieceTokenizer`.

    Raises:
        CheckpointError: as :func:`load_vocab`.
    """

    def __init__(
        self,
        vocab_file: str | Path | Mapping[str, int],
        do_lower_case: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        never_split: Iterable[str] = SPECIAL_TOKENS,
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
        classes: CharacterClasses = FROZEN,
    ) -> None:
        self.vocab = dict(vocab_file) if isinstance(vocab_file, Mapping) else load_vocab(vocab_file)
        self.inv_vocab = {number: token for token, number in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(
            do_lower_case, strip_accents, tokenize_chinese_chars, never_split, classes
        )
        self.wordpiece_tokenizer = WordpieceTokenizer(self.vocab, unk_token, max_input_chars_per_word)

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of ``text``."""
        return [piece.token for piece in self.pieces(text)]

    def pieces(self, text: str) -> Iterator[Piece]:
        """The word pieces of ``text`` with their places in it."""
        for word in self.basic_tokenizer.words(text):
            if word.special:
                yield Piece(word.text, *word.span(0, len(word.text)))
                continue
            for token, start, end in self.wordpiece_tokenizer.pieces(word.text):
                yield Piece(token, *word.span(start, end))

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Ids of ``tokens``; raises as :func:`convert_by_vocab`."""
        return convert_by_vocab(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ``ids``; raises as :func:`convert_by_vocab`."""
        return convert_by_vocab(self.inv_vocab, ids)
