"""Text to byte-level BPE ids, fast: the same result as :mod:`bertkit.tokenization.byte_bpe`, without offsets.

Words never span white space but for one blank before them, so a run of text between white space has the same ids
wherever a blank, or no blank, stands before it: that is a chunk for :mod:`bertkit.tokenization.chunks`. Text of
printable characters with single blanks between words is cut at the blanks; each chunk but the first stands for itself
with a blank before it. Any other text is cut by a regular expression. Chunks that a string of chunks cannot hold as
they are (with white space in them, or without a blank before them) are written behind a mark that no other text has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from urllib.parse import quote, unquote

import numpy as np
from tokenizers import Tokenizer

from bertkit.tokenization import chunks
from bertkit.tokenization.chunks import END, ChunkEncoder, Int32, Int64
from bertkit.tokenization.vocabulary import BpeVocabulary
from bertkit.tokenization.whole import SPACE, WholeTokens

#: Before a chunk that stands for itself, with no blank before it; before one that is percent-encoded as well.
LITERAL, QUOTED = END + "=", END + "%"
#: New chunks that the engine is given at a time: it needs memory.
SLICE_CHUNKS = 1 << 16

_chunk = re.compile(f" ?[^{SPACE}]+|[{SPACE}]+(?![^{SPACE}])|[{SPACE}]+")
_surrogate = re.compile("[\ud800-\udfff]")


class FastByteBpe(ChunkEncoder):
    """Texts to the ids of byte-level BPE tokens.

    Args:
        vocabulary: what the tokenizer is made of.
        parts: the ``tokenizers`` package set up to split and merge, without added tokens.
    """

    def __init__(self, vocabulary: BpeVocabulary, parts: Tokenizer) -> None:
        self._add_prefix_space = vocabulary.add_prefix_space
        self._parts = parts
        self._whole = WholeTokens(vocabulary.never_split)
        self._marks = {token.content: f"{END}{number}" for number, token in enumerate(vocabulary.never_split)}
        super().__init__({self._marks[token.content]: token.id for token in vocabulary.never_split})

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        block: list[str] = []
        size = 0
        for text in texts:
            if self._whole.may_be_in(text):
                for start, end, token in self._whole.split(text):
                    block.append(self._cut(text[start:end]) if token is None else self._marks[token.content])
            elif text:
                block.append(self._cut(text))
            block.append(END)
            size += len(text)
            if size > chunks.BLOCK_CHARS:
                yield " ".join(block)
                block, size = [], 0
        yield " ".join(block)

    def _cut(self, text: str) -> str:
        """The chunks of a text, which is not empty, with blanks between them."""
        if text.isprintable() and text[0] != " " and text[-1] != " " and "  " not in text:
            return text if self._add_prefix_space else LITERAL + text
        text = _surrogate.sub("\ufffd", text)
        if self._add_prefix_space and text[0] != " ":
            text = " " + text
        return " ".join(map(_written, _chunk.findall(text)))

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Int64, Int32, Int64]]:
        for start in range(0, len(new), SLICE_CHUNKS):
            texts = [_read(chunk) for chunk in new[start : start + SLICE_CHUNKS]]
            rows = [encoding.ids for encoding in self._parts.encode_batch_fast(texts)]
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            ids = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes.sum()))
            yield np.arange(start, start + len(texts)), ids, sizes


def _written(chunk: str) -> str:
    """A chunk of the text as a chunk of a block."""
    word = chunk[1:] if chunk[0] == " " else chunk
    if not word or not word.isprintable() or " " in word:
        return QUOTED + quote(chunk, safe="")
    return word if word is not chunk else LITERAL + word


def _read(chunk: str) -> str:
    """The text that a chunk of a block stands for."""
    if chunk.startswith(LITERAL):
        return chunk[len(LITERAL) :]
    return unquote(chunk[len(QUOTED) :]) if chunk.startswith(QUOTED) else " " + chunk


def fast_bpe(vocabulary: BpeVocabulary, parts: Tokenizer) -> FastByteBpe | None:
    """The fast path; None where a token is to be found only between certain characters."""
    if any(token.single_word for token in vocabulary.never_split):
        return None
    return FastByteBpe(vocabulary, parts)
