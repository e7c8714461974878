"""Text to the ids of unigram pieces, fast, without offsets: the ids of the ``tokenizers`` package.

Pieces never span white space, and what is done to a character before depends at most on those that make up one
character on the page with it. So a run of text between white space has the same ids wherever it stands, if it does not
begin with a character that joins the one before it: that is a chunk for :mod:`bertkit.tokenization.fast.chunk_cache`.
Any other text is one chunk as a whole.
"""

from __future__ import annotations

import re
import unicodedata

from tokenizers import Tokenizer

from bertkit.tokenization.fast.piece_lookup import QUOTED, PartsEncoder, quoted, unquoted, without_surrogates
from bertkit.tokenization.vocabulary import UnigramVocabulary

#: White space that the texts of data sets are full of, where it is nothing but white space.
_COMMON_SPACE = "\n\t\r"


def _joins(char: str) -> bool:
    """Whether a character may make up one with its neighbours: marks, and letters that are used as such."""
    return unicodedata.category(char)[0] == "M" or char in _JOINING


#: Letters that join the character before them (Thai and Lao am, half-width voicing marks) or behind them.
_JOINING = frozenset("\u0e33\u0eb3\uff9e\uff9f\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a").union(
    map(chr, (*range(0x11A84, 0x11A8A), 0x11D46, 0x11F02))
)
_first_and_last = re.compile(r"(?<![^ ])[^\x00-\x7f]|[^\x00-\x7f](?![^ ])")


class FastUnigram(PartsEncoder):
    """Texts to the ids of unigram pieces.

    Args:
        vocabulary: of the tokenizer.
        parts: the ``tokenizers`` package set up to normalize, split and cut into pieces, without added tokens.
    """

    def __init__(self, vocabulary: UnigramVocabulary, parts: Tokenizer) -> None:
        self._lower = vocabulary.do_lower_case
        self._joining: dict[str, bool] = {}
        normalizer = parts.normalizer
        spaces = [char for char in _COMMON_SPACE if normalizer is None or not normalizer.normalize_str(char).strip()]
        # Deleted characters would join the words beside them.
        spaces = [char for char in spaces if normalizer is None or normalizer.normalize_str(f"a{char}b") != "ab"]
        self._spaces = str.maketrans(dict.fromkeys(spaces, " "))
        super().__init__(vocabulary, parts)

    def _cut(self, text: str) -> str:
        plain = text if text.isprintable() else text.translate(self._spaces)
        if text.isascii():
            if not plain.isprintable():
                return quoted(text)
            return plain.lower() if self._lower else plain
        if not plain.isprintable() or any(map(self._may_join, _first_and_last.findall(plain))):
            return quoted(
                without_surrogates(text)
            )  # as it was: a mark behind a line feed does not join it, unlike a space
        return plain

    def _may_join(self, char: str) -> bool:
        found = self._joining.get(char)
        if found is None:
            found = self._joining[char] = _joins(char)
        return found

    def _read(self, chunk: str) -> str:
        return unquoted(chunk) if chunk.startswith(QUOTED) else chunk


def fast_unigram(vocabulary: UnigramVocabulary, parts: Tokenizer) -> FastUnigram | None:
    """The fast path; None where a token is to be found in normalized text or only between certain characters."""
    if any(token.single_word or token.normalized for token in vocabulary.never_split):
        return None
    return FastUnigram(vocabulary, parts)
