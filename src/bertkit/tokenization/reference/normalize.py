"""From text to words, readably: clean, space out Chinese characters, strip accents, lower-case, split.

The steps and their order are those of ``BasicTokenizer`` of the original BERT code (google-research/bert,
``tokenization.py``; Devlin et al. 2019, section 3), applied character by character with a note of where each
character of the result stands in the user's text. This is the reference that the fast path
(:mod:`bertkit.tokenization.fast.fast_wordpiece`) is tested against; every function is linear in the length of the text.

Deviations from the original: accents are stripped before lower-casing, not after (the result is the same except for
U+0130, where it is the same too once accents are stripped); lower-casing looks at one character at a time, so a
final sigma becomes σ where Python's ``str.lower`` on a word gives ς; special tokens are found anywhere in the text,
not only where white space surrounds them. All three follow the fast tokenizers that published models were used with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bertkit.tokenization.characters import FROZEN, CharacterClasses


@dataclass(frozen=True, slots=True)
class Word:
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


def clean(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Drop control characters, make every kind of white space a blank."""
    return [(" " if classes.is_space(char) else char, at) for char, at in text if not classes.is_removed(char)]


def space_out_chinese(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Blanks around every Chinese character, so that each is a word."""
    spaced: Aligned = []
    for char, at in text:
        spaced += [(" ", at), (char, at), (" ", at)] if classes.is_chinese(char) else [(char, at)]
    return spaced


def decompose(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Canonical decomposition (NFD): letters apart from their accents, marks in canonical order.

    A part that is new (not the first of its character) is aligned with the character before the one whose turn it
    is. That matters only where marks change places; it is what the fast tokenizers report.
    """
    parts: list[tuple[int, str, bool]] = []
    run = 0  # where the marks that may still change places begin
    for char, _ in text:
        for number, part in enumerate(classes.decompose(char)):
            order = classes.combining(part)
            if order == 0:
                parts[run:] = sorted(parts[run:], key=_order)
                run = len(parts) + 1
            parts.append((order, part, number > 0))
    parts[run:] = sorted(parts[run:], key=_order)
    aligned: Aligned = []
    turn = 0
    for _, part, new in parts:
        turn += not new
        aligned.append((part, text[max(turn - 1, 0)][1]))
    return aligned


def _order(part: tuple[int, str, bool]) -> int:
    return part[0]


def strip(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Decompose, then drop the accents."""
    return [(char, at) for char, at in decompose(text, classes) if not classes.is_accent(char)]


def lower(text: Aligned, classes: CharacterClasses) -> Aligned:
    """Lower-case; one capital may become several characters."""
    return [(small, at) for char, at in text for small in classes.lower(char)]


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
        do_lower_case: lower-case, and strip accents unless told otherwise: for models called "uncased".
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
            yield from self._split(text, done, match.start())
            yield Word(match[0], range(match.start(), match.end()), special=True)
            done = match.end()
        yield from self._split(text, done, len(text))

    def _split(self, text: str, start: int, end: int) -> Iterator[Word]:
        return split(self.normalize(text, start, end), self.classes)

    def normalize(self, text: str, start: int = 0, end: int | None = None) -> Aligned:
        """``text[start:end]`` cleaned, spaced out, stripped and lower-cased, with places in ``text``."""
        end = len(text) if end is None else end
        aligned = clean(list(zip(text[start:end], range(start, end), strict=True)), self.classes)
        if self.tokenize_chinese_chars:
            aligned = space_out_chinese(aligned, self.classes)
        if self.strip_accents:
            aligned = strip(aligned, self.classes)
        if self.do_lower_case:
            aligned = lower(aligned, self.classes)
        return aligned
