"""Text to byte-level BPE ids, fast: the same result as :mod:`bertkit.tokenization.reference.byte_bpe`, without offsets.

Words never span white space but for one blank before them, so a run of text between white space has the same ids
wherever a blank, or no blank, stands before it: that is a chunk for :mod:`bertkit.tokenization.fast.chunk_cache`. Text
of
printable characters with single blanks between words is cut at the blanks; each chunk but the first stands for itself
with a blank before it. Any other text is cut by a regular expression. Chunks that a string of chunks cannot hold as
they are (with white space in them, or without a blank before them) are written behind a mark that no other text has.
"""

from __future__ import annotations

import re

from tokenizers import Tokenizer

from bertkit.tokenization.fast.chunk_cache import END
from bertkit.tokenization.fast.piece_lookup import QUOTED, PartsEncoder, quoted, unquoted, without_surrogates
from bertkit.tokenization.fast.whole_tokens import SPACE
from bertkit.tokenization.vocabulary import BpeVocabulary

#: Before a chunk that stands for itself, with no blank before it.
LITERAL = END + "="

_chunk = re.compile(f" ?[^{SPACE}]+|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+")


class FastByteBpe(PartsEncoder):
    """Texts to the ids of byte-level BPE tokens.

    Args:
        vocabulary: of the tokenizer.
        parts: the ``tokenizers`` package set up to split and merge, without added tokens.
    """

    def __init__(self, vocabulary: BpeVocabulary, parts: Tokenizer) -> None:
        self._add_prefix_space = vocabulary.add_prefix_space
        super().__init__(vocabulary, parts)

    def _cut(self, text: str) -> str:
        if text.isprintable() and text[0] != " " and text[-1] != " " and "  " not in text:
            return text if self._add_prefix_space else LITERAL + text
        text = without_surrogates(text)
        if self._add_prefix_space and text[0] != " ":
            text = " " + text
        return " ".join(map(_written, _chunk.findall(text)))

    def _read(self, chunk: str) -> str:
        if chunk.startswith(LITERAL):
            return chunk[len(LITERAL) :]
        return unquoted(chunk) if chunk.startswith(QUOTED) else " " + chunk


def _written(chunk: str) -> str:
    """A chunk of the text as a chunk of a block."""
    word = chunk[1:] if chunk[0] == " " else chunk
    if not word or not word.isprintable() or " " in word:
        return quoted(chunk)
    return word if word is not chunk else LITERAL + word


def fast_bpe(vocabulary: BpeVocabulary, parts: Tokenizer) -> FastByteBpe | None:
    """The fast path; None where a token is to be found only between certain characters."""
    if any(token.single_word for token in vocabulary.never_split):
        return None
    return FastByteBpe(vocabulary, parts)
