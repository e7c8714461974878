"""The fast paths of byte-level BPE and unigram: new chunks are worked out by the ``tokenizers`` package."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from urllib.parse import quote, unquote

import numpy as np
from tokenizers import Tokenizer

from bertkit.tokenization.fast import chunk_cache as chunks
from bertkit.tokenization.fast.chunk_cache import END, ChunkEncoder, Int32, Int64
from bertkit.tokenization.fast.whole_tokens import WholeTokens
from bertkit.tokenization.vocabulary import TokenTable

#: Before a chunk that a string of chunks cannot hold as it is, and that is percent-encoded.
QUOTED = END + "%"
#: New chunks that the engine is given at a time: it needs memory.
SLICE_CHUNKS = 1 << 16

_surrogate = re.compile("[\ud800-\udfff]")


class PartsEncoder(ChunkEncoder):
    """Texts to ids by a dictionary of chunks and an engine for new ones.

    A subclass says how text becomes chunks (:meth:`_cut`), and what text a chunk stands for (:meth:`_read`).

    Args:
        vocabulary: of the tokenizer.
        parts: the ``tokenizers`` package set up to tokenize a part of a text, without added tokens.
    """

    def __init__(self, vocabulary: TokenTable, parts: Tokenizer) -> None:
        self._parts = parts
        self._whole = WholeTokens(vocabulary.never_split)
        self._marks = {token.content: f"{END}{number}" for number, token in enumerate(vocabulary.never_split)}
        super().__init__({self._marks[token.content]: token.id for token in vocabulary.never_split})

    def _cut(self, text: str) -> str:
        """The chunks of a text, which is not empty, with blanks between them."""
        raise NotImplementedError

    def _read(self, chunk: str) -> str:
        """The text that a chunk stands for."""
        raise NotImplementedError

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

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Int64, Int32, Int64]]:
        for start in range(0, len(new), SLICE_CHUNKS):
            texts = [self._read(chunk) for chunk in new[start : start + SLICE_CHUNKS]]
            rows = [encoding.ids for encoding in self._parts.encode_batch_fast(texts)]
            sizes = np.fromiter(map(len, rows), np.int64, len(rows))
            ids = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes.sum()))
            yield np.arange(start, start + len(texts)), ids, sizes


def without_surrogates(text: str) -> str:
    """A lone surrogate, which no UTF-8 text can hold, becomes U+FFFD."""
    return _surrogate.sub("\ufffd", text)


def quoted(chunk: str) -> str:
    """Any chunk as one that a string of chunks can hold."""
    return QUOTED + quote(chunk, safe="")


def unquoted(chunk: str) -> str:
    """The reverse of :func:`quoted`."""
    return unquote(chunk[len(QUOTED) :])
