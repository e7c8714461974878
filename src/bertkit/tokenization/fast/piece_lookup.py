"""The fast paths of byte-level BPE and unigram, without offsets: the ids of the ``tokenizers`` package.

Texts are cut at the tokens that are never split, the rest into chunks for :mod:`bertkit.tokenization.fast.chunk_cache`;
the package works out new chunks. A chunk that a string of chunks cannot hold as it is (it has white space in it, say)
is written behind a mark that no text has.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from urllib.parse import quote, unquote

import numpy as np
from tokenizers import Tokenizer

from bertkit.ragged import Ids, Ints
from bertkit.tokenization.characters import SURROGATE
from bertkit.tokenization.family_vocabularies import BpeVocabulary, FallbackVocabulary, UnigramVocabulary
from bertkit.tokenization.fast import chunk_cache as chunks
from bertkit.tokenization.fast.chunk_cache import END, ChunkEncoder
from bertkit.tokenization.vocabulary import BLANK, AddedToken, TokenTable

#: Before a percent-encoded chunk.
QUOTED = END + "%"
#: Before a chunk of BPE that stands for itself, with no blank before it.
LITERAL = END + "="
#: New chunks that the engine is given at a time: it needs memory.
SLICE_CHUNKS = 1 << 16

#: What counts as white space everywhere but in BERT: the property White_Space of Unicode.
SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
#: White space that the texts of data sets are full of, where it is nothing but white space.
_COMMON_SPACE = "\n\t\r"
#: Letters that join the character before them (Thai and Lao am, half-width voicing marks) or behind them.
_JOINING = frozenset("\u0e33\u0eb3\uff9e\uff9f\u0d4e\U000111c2\U000111c3\U0001193f\U00011941\U00011a3a").union(
    map(chr, (*range(0x11A84, 0x11A8A), 0x11D46, 0x11F02))
)

_leading_space = re.compile(f"[{SPACE}]*")
_bpe_chunk = re.compile(f" ?[^{SPACE}]+|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+")
_from_each_blank = re.compile(" ?[^ ]+| ")
_between_words = re.compile(" *[^ ]+| +")
_first_and_last = re.compile(r"(?<![^ ])[^\x00-\x7f]|[^\x00-\x7f](?![^ ])")

#: ``text[start:end]``, and the token it is; None for text between such tokens, which is never empty.
Segment = tuple[int, int, AddedToken | None]


class WholeTokens:
    """Cuts texts at tokens that are never split, the longer of two at one place; ``single_word`` is not looked at."""

    def __init__(self, tokens: Mapping[str, AddedToken]) -> None:
        self._tokens = tokens
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) or r"(?!)")
        # Most texts have no "<m" (or "[M") at all, which is quicker to see than that no token matches.
        self._signs = {content[:2] for content in tokens}

    def may_be_in(self, text: str) -> bool:
        """Whether it is worth while to look; quick."""
        return any(sign in text for sign in self._signs) and self._pattern.search(text) is not None

    def split(self, text: str, done: int = 0, stop: int = sys.maxsize) -> Iterator[Segment]:
        """The text, or ``text[done:stop]``, as segments."""
        stop = min(stop, len(text))
        for match in self._pattern.finditer(text, done, stop):
            token = self._tokens[match[0]]
            start, end = match.span()
            if token.lstrip:
                start = done + len(text[done:start].rstrip(SPACE))
            if token.rstrip and (space := _leading_space.match(text, end, stop)):
                end = space.end()
            if done < start:
                yield done, start, None
            yield max(start, done), end, token
            done = end
        if done < stop:
            yield done, stop, None


class PartsEncoder(ChunkEncoder):
    """Texts to ids by a dictionary of chunks, and ``parts`` for new ones: an engine without added tokens."""

    def __init__(self, vocabulary: TokenTable, parts: Tokenizer) -> None:
        self._parts = parts
        tokens = vocabulary.never_split
        self._whole = WholeTokens({token.content: token for token in tokens if not token.normalized})
        self._late = WholeTokens({self._normalized(token.content): token for token in tokens if token.normalized})
        self._marks = {token.content: f"{END}{number}" for number, token in enumerate(vocabulary.never_split)}
        super().__init__({self._marks[token.content]: token.id for token in vocabulary.never_split})

    def _cut(self, text: str) -> str:
        """The chunks of a text, which is not empty, with blanks between them."""
        raise NotImplementedError

    def _read(self, chunk: str) -> str:
        return unquote(chunk[len(QUOTED) :]) if chunk.startswith(QUOTED) else chunk

    def _normalized(self, text: str) -> str:
        """The text in which tokens are found that are not looked for in the raw text."""
        return text

    def _segments(self, text: str) -> Iterator[tuple[str, AddedToken | None]]:
        """A text cut at the tokens that are never split: segments, and the token that each is."""
        for start, end, token in self._whole.split(text):
            if token is not None:
                yield text[start:end], token
                continue
            part = self._normalized(text[start:end])
            for first, last, late in self._late.split(part):
                yield part[first:last], late

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        block: list[str] = []
        size = 0
        for text in texts:
            if self._whole.may_be_in(text) or self._late.may_be_in(self._normalized(text)):
                for segment, token in self._segments(text):
                    block.append(self._cut(segment) if token is None else self._marks[token.content])
            elif text:
                block.append(self._cut(text))
            block.append(END)
            size += len(text)
            if size > chunks.BLOCK_CHARS:
                yield " ".join(block)
                block, size = [], 0
        yield " ".join(block)

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Ints, Ids, Ints]]:
        for start in range(0, len(new), SLICE_CHUNKS):
            texts = [self._read(chunk) for chunk in new[start : start + SLICE_CHUNKS]]
            rows = [encoding.ids for encoding in self._parts.encode_batch_fast(texts)]
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            ids = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes.sum()))
            yield np.arange(start, start + len(texts)), ids, sizes


class FastByteBpe(PartsEncoder):
    """Texts to the ids of byte-level BPE tokens.

    Words span no white space but one blank before them, so what stands between white space has the same ids wherever a
    blank, or no blank, precedes it (what is composed before stands in one word). Printable text with single blanks is
    cut at the blanks, and each chunk but the first stands for itself with a blank before it; any other text is cut by a
    regular expression.
    """

    _chunks_of = _bpe_chunk

    def __init__(self, vocabulary: BpeVocabulary | FallbackVocabulary, parts: Tokenizer) -> None:
        self._add_prefix_space = vocabulary.add_prefix_space
        self._composes = isinstance(vocabulary, BpeVocabulary) and vocabulary.nfc
        super().__init__(vocabulary, parts)

    def _normalized(self, text: str) -> str:
        if not self._composes or unicodedata.is_normalized("NFC", text):
            return text
        return str(self._parts.normalizer.normalize_str(SURROGATE.sub("\ufffd", text)))

    def _cut(self, text: str) -> str:
        if text.isprintable() and text[0] != " " and text[-1] != " " and "  " not in text:
            return text if self._add_prefix_space else LITERAL + text
        text = SURROGATE.sub("\ufffd", text)
        if self._add_prefix_space and text[0] != " ":
            text = " " + text
        return " ".join(map(self._written, self._chunks_of.findall(text)))

    @staticmethod
    def _written(chunk: str) -> str:
        """A chunk of the text as a chunk of a block."""
        word = chunk[1:] if chunk[0] == " " else chunk
        if not word or not word.isprintable() or " " in word:
            return QUOTED + quote(chunk, safe="")
        return word if word is not chunk else LITERAL + word

    def _read(self, chunk: str) -> str:
        if chunk.startswith(LITERAL):
            return chunk[len(LITERAL) :]
        return super()._read(chunk) if chunk.startswith(QUOTED) else " " + chunk


class FastFallbackBpe(FastByteBpe):
    """Texts to the ids of BPE that falls back on bytes (Gemma's).

    Of white space only blanks count, and a blank may be written as it is or as :data:`BLANK`. Text is cut before each,
    or, where it is not cut, no token spans the end of a word and a blank (the vocabulary is one that does not join
    words), so that words have the same ids everywhere.
    """

    def __init__(self, vocabulary: FallbackVocabulary, parts: Tokenizer) -> None:
        self._chunks_of = _from_each_blank if vocabulary.add_prefix_space else _between_words
        super().__init__(vocabulary, parts)

    def _normalized(self, text: str) -> str:
        return text.replace(" ", BLANK)

    def _cut(self, text: str) -> str:
        return super()._cut(text.replace(BLANK, " "))


class FastUnigram(PartsEncoder):
    """Texts to the ids of unigram pieces.

    Pieces span no white space, and how a character is normalized depends at most on those that it is displayed with. So
    what stands between white space has the same ids everywhere, unless it begins with a character that joins the one
    before it: such text is one chunk as a whole.
    """

    def __init__(self, vocabulary: UnigramVocabulary, parts: Tokenizer) -> None:
        self._lower = vocabulary.do_lower_case
        self._at_blanks = vocabulary.splits != "at white space"
        self._joining: dict[str, bool] = {}
        self._normalizer = normalizer = parts.normalizer
        spaces = [char for char in _COMMON_SPACE if normalizer is None or not normalizer.normalize_str(char).strip()]
        # Deleted characters would join the words beside them, and so would those that are not replaced by blanks.
        joined = {f"a{char}b": char for char in _COMMON_SPACE} if self._at_blanks else {"ab": ""}
        spaces = [char for char in spaces if normalizer is None or normalizer.normalize_str(f"a{char}b") not in joined]
        self._spaces = str.maketrans(dict.fromkeys(spaces, " "))
        super().__init__(vocabulary, parts)

    def _cut(self, text: str) -> str:
        if self._at_blanks and BLANK in text:  # which may be taken for one that begins a word
            return QUOTED + quote(SURROGATE.sub("\ufffd", text), safe="")
        plain = text if text.isprintable() else text.translate(self._spaces)
        if text.isascii():
            if not plain.isprintable():
                return QUOTED + quote(text, safe="")
            return plain.lower() if self._lower else plain
        if not plain.isprintable() or any(map(self._may_join, _first_and_last.findall(plain))):
            # As it was: a mark behind a line feed does not join it, unlike a space.
            return QUOTED + quote(SURROGATE.sub("\ufffd", text), safe="")
        return plain

    def _may_join(self, char: str) -> bool:
        """Whether a character may become one with its neighbours: marks, and letters that are used as such.

        Where text is split at blanks, so may what normalizes to a blank or to nothing: blanks are collapsed afterwards.
        """
        found = self._joining.get(char)
        if found is None:
            found = unicodedata.category(char)[0] == "M" or char in _JOINING
            if self._at_blanks and not found and self._normalizer is not None:
                found = not self._normalizer.normalize_str(f"a{char}").removeprefix("a").strip()
            self._joining[char] = found
        return found
