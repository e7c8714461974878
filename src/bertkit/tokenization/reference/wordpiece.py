"""Words to word pieces, readably: the greedy longest match of the original BERT code.

``unaffable`` becomes ``un ##aff ##able``: at each place the longest vocabulary entry that fits is taken, entries that
continue a word being written with ``##`` in front. A word that cannot be covered whole becomes the unknown token, as
does a word of more than ``max_input_chars_per_word`` characters. (Wu et al. 2016, section 4.1; google-research/bert,
``tokenization.py``.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from bertkit.errors import InputError
from bertkit.tokenization.characters import FROZEN, CharacterClasses
from bertkit.tokenization.formats.wordpiece_files import read_vocab
from bertkit.tokenization.reference.normalize import BasicTokenizer
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD, SPECIAL_TOKENS


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
            piece = self._longest(word, start)
            if piece is None:
                return unknown
            pieces.append(piece)
            start = piece.end
        return pieces

    def _longest(self, word: str, start: int) -> Piece | None:
        prefix = self.prefix if start else ""
        for end in range(len(word), start, -1):
            token = prefix + word[start:end]
            if token in self.vocab:
                return Piece(token, start, end)
        return None


def load_vocab(vocab_file: str | Path) -> dict[str, int]:
    """Read a ``vocab.txt``: one token a line, its id the line's number counted from 0.

    Raises:
        CheckpointError: the file is missing, too large, not UTF-8, or has an empty or repeated line; names the line.
    """
    return read_vocab(Path(vocab_file))


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
        """Ids of ``tokens``.

        Raises:
            InputError: a token that is not in the vocabulary.
        """
        try:
            return [self.vocab[token] for token in tokens]
        except KeyError as error:
            raise InputError(
                f"{error.args[0]!r} is not in the vocabulary of {len(self.vocab):,} tokens; tokenize the text first"
            ) from None

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Tokens of ``ids``.

        Raises:
            InputError: an id that is not in the vocabulary.
        """
        try:
            return [self.inv_vocab[number] for number in ids]
        except KeyError as error:
            raise InputError(f"id {error.args[0]} is outside the vocabulary of {len(self.vocab):,} tokens") from None
