"""Word pieces of texts with the characters that each stands for."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bertkit.ragged import Ids, Ints, boundaries_of, gather
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Texts that are tokenized together; the offsets of each piece take a hundred bytes until they are numbers.
TEXTS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Pieces:
    """Word pieces of E texts end to end, P in all, without special tokens.

    boundaries: int64 ``(E + 1,)``; text e owns the pieces ``boundaries[e] : boundaries[e + 1]``.
    starts, ends: int64 ``(P,)``, the characters of its own text that each piece stands for.
    words: int64 ``(P,)``, number of the word of its text that each piece belongs to, as the tokenizer sees words; -1
        for a special token that is written out in the text.
    """

    texts: tuple[str, ...]
    ids: Ids
    boundaries: Ints
    starts: Ints
    ends: Ints
    words: Ints

    def span(self, text: int) -> slice:
        """Where the pieces of a text are."""
        return slice(int(self.boundaries[text]), int(self.boundaries[text + 1]))

    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` of the pieces of each text."""
        return list(pairwise(self.boundaries.tolist()))

    def first(self, count: int) -> Pieces:
        """The first ``count`` pieces of each text."""
        kept = np.minimum(np.diff(self.boundaries), count)
        chosen = gather(self.boundaries[:-1], kept)
        columns = (self.starts[chosen], self.ends[chosen], self.words[chosen])
        return Pieces(self.texts, self.ids[chosen], boundaries_of(kept), *columns)


def find_pieces(texts: Sequence[str], tokenizer: PreTrainedTokenizer, *, strip: bool = False) -> Pieces:
    """Cut one text or more into word pieces; with ``strip`` no white space at an edge belongs to one."""
    ids, offsets, words = [], [], []
    for first in range(0, len(texts), TEXTS_AT_ONCE):
        part = list(texts[first : first + TEXTS_AT_ONCE])
        found = tokenizer(
            part,
            add_special_tokens=False,
            truncation=False,
            return_offsets_mapping=True,
            return_token_type_ids=False,
            return_attention_mask=False,
        )
        for row, (text, numbers, spans) in enumerate(
            zip(part, found["input_ids"], found["offset_mapping"], strict=True)
        ):
            bounds = [stripped(text, *span) for span in spans] if strip else spans
            ids.append(np.array(numbers, dtype=np.int32))
            offsets.append(np.array(bounds, dtype=np.int64).reshape(-1, 2))
            words.append(np.array([-1 if word is None else word for word in found.word_ids(row)], dtype=np.int64))
    starts, ends = np.concatenate(offsets).T
    boundaries = boundaries_of([len(row) for row in ids])
    return Pieces(tuple(texts), np.concatenate(ids), boundaries, starts, ends, np.concatenate(words))


def stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """``start : end`` without white space at either end."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def end_of_marks(text: str, end: int, limit: int) -> int:
    """The end of a piece with the combining marks after it, up to ``limit``, which some tokenizers drop."""
    while end < limit and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return end
