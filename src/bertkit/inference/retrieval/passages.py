"""Cuts documents into passages: by headings, then at ends of paragraphs, sentences or words, by tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from bertkit.errors import ConfigError, DataError
from bertkit.inference.retrieval.index_files import AGAIN, Manifest
from bertkit.ragged import Ints
from bertkit.tasks.pieces import end_of_marks
from bertkit.tasks.reading.documents.document import Block, Document

if TYPE_CHECKING:
    from bertkit.inference.retrieval.text_vectors import TextEncoder

#: Tokens of a passage where nothing is said, if the model reads so many, and tokens that two neighbors share.
TOKENS, OVERLAP = 256, 32
#: Between the titles of a path of headings.
STEP = " > "
#: Tokens that are left for a tokenizer that cuts a part of a text in another way than the whole.
_SPARE = 2
#: Characters that are tokenized at once.
_AT_ONCE = 1 << 16
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]*\s*$|[。！？]\s*$")


class Passage(NamedTuple):
    """Characters ``start ... end`` of a document, below which headings they are, and on which page they begin."""

    start: int
    end: int
    heading: str
    page: int | None


class Cutter:
    """How documents are cut.

    encoder: the model that reads the passages.
    tokens: most tokens of a passage with its headings; None: 256, or what the model reads.
    overlap: tokens that a passage may have in common with the one before it below the same heading; None: an eighth.
    """

    def __init__(self, encoder: TextEncoder, tokens: int | None = None, overlap: int | None = None) -> None:
        self._tokenizer = encoder.pipe.tokenizer
        spare = self._tokenizer.num_special_tokens_to_add() + self._count(encoder.prompt) + _SPARE
        longest = encoder.longest
        self.tokens = min(TOKENS, longest) if tokens is None else tokens
        self.overlap = min(OVERLAP, self.tokens // 8) if overlap is None else overlap
        if not spare + 8 <= self.tokens <= longest:
            raise ConfigError(f"passages must have from {spare + 8} to {longest:,} tokens, got {self.tokens:,}")
        if not 0 <= self.overlap <= self.tokens // 2 - 1:
            raise ConfigError(
                f"passages of {self.tokens} tokens overlap by 0 to {self.tokens // 2 - 1}, got {self.overlap}"
            )
        self._room = self.tokens - spare

    @classmethod
    def of(cls, manifest: Manifest, encoder: TextEncoder) -> Self:
        """As the documents of an index were cut."""
        tokens, overlap = (manifest.facts.get(f"passage_{what}") for what in ("tokens", "overlap"))
        for value in (tokens, overlap):
            if value is not None and not isinstance(value, int):
                raise DataError(f"the index is damaged: it has passages of {value!r:.40} tokens; {AGAIN}")
        return cls(encoder, tokens, overlap)  # type: ignore[arg-type]

    def passages(self, document: Document) -> Iterator[Passage]:
        """The passages in order; all text but that of headings is in one, and a heading without a text is one."""
        path: list[tuple[Block, bool]] = []  # headings that are open, and whether there is something below
        section: list[Block] = []
        for block in document.blocks:
            if not block.level or self._count(document.text[block.start : block.end]) > self._room // 2:
                section.append(block)
                path = [(heading, True) for heading, _ in path]
                continue
            yield from self._section(document, section, path)
            section = []
            while path and path[-1][0].level >= block.level:
                yield from self._closed(document, path)
            path = [*((heading, True) for heading, _ in path), (block, False)]
        yield from self._section(document, section, path)
        while path:
            yield from self._closed(document, path)

    def _closed(self, document: Document, path: list[tuple[Block, bool]]) -> Iterator[Passage]:
        heading, is_used = path.pop()
        if not is_used:
            yield from self._section(document, [heading], path)

    def _section(self, document: Document, blocks: list[Block], path: list[tuple[Block, bool]]) -> Iterator[Passage]:
        if not blocks:
            return
        titles = [" ".join(document.text[block.start : block.end].split()) for block, _ in path]
        while titles and self._count(STEP.join(titles)) > self._room // 2:
            titles.pop(0)
        heading = STEP.join(titles)
        room = self._room - self._count(heading)
        starts, ends, breaks = self._places(document.text, blocks)
        first = 0
        while first < len(starts):
            last = min(first + room, len(starts))
            if last < len(starts):  # the best break in the second half, the last one of several
                window = breaks[first + room // 2 + 1 : last + 1]
                last = first + room // 2 + 1 + len(window) - 1 - int(window[::-1].argmax())
            start = int(starts[first])
            page = bisect_right(document.pages, start) if document.pages else None
            limit = int(starts[last]) if last < len(starts) else blocks[-1].end
            yield Passage(start, end_of_marks(document.text, int(ends[last - 1]), limit), heading, page)
            if last == len(starts):
                return
            overlap = min(self.overlap, (room - 1) // 2)
            shared = breaks[last - overlap : last]
            first = last if not shared.size or not shared.max() else last - overlap + int(shared.argmax())

    def _places(self, text: str, blocks: list[Block]) -> tuple[Ints, Ints, Ints]:
        """Where tokens begin and end, and how good a break before each is: 3 paragraph, 2 sentence, 1 word, 0 none."""
        starts: list[int] = []
        ends: list[int] = []
        breaks: list[int] = []
        for block in blocks:
            new = True
            for first, part in _parts(text[block.start : block.end]):
                base = block.start + first
                encoded = self._tokenizer(part, add_special_tokens=False, return_offsets_mapping=True)
                for begin, stop in encoded["offset_mapping"]:
                    begin, stop = base + begin, base + stop
                    while begin < stop and text[begin].isspace():  # some tokenizers count the blank before a word
                        begin += 1
                    if begin == stop:
                        continue
                    before = text[max(block.start, begin - 4) : begin]
                    if new:
                        breaks.append(3)
                    elif begin < ends[-1]:  # two tokens of one character
                        breaks.append(0)
                    else:
                        breaks.append(2 if _SENTENCE_END.search(before) else int(before[-1:].isspace()))
                    starts.append(begin)
                    ends.append(stop)
                    new = False
            if new:  # a paragraph of signs that the tokenizer leaves out
                starts.append(block.start)
                ends.append(block.end)
                breaks.append(3)
        return np.array(starts, np.int64), np.array(ends, np.int64), np.array(breaks, np.int64)

    def _count(self, text: str | None) -> int:
        return len(self._tokenizer(text, add_special_tokens=False)["input_ids"]) if text else 0


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """A text in parts of bounded length, cut at blanks where there are some."""
    start = 0
    while start < len(text):
        end = start + _AT_ONCE
        if end < len(text):
            blank = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = blank + 1 if blank > start else end
        yield start, text[start:end]
        start = end
