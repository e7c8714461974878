"""The text of a document, with its paragraphs and headings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bertkit.errors import DataError

#: Most bytes of the file of a document, and of what is unpacked from it.
MAX_BYTES = 100 << 20
#: Control characters that text has.
_BLANKS = frozenset(map(ord, "\t\n\v\f\r\x1b"))
#: A larger share of other control characters is a sign of a file that is not text.
_MAX_CONTROLS = 0.01


class Block(NamedTuple):
    """A paragraph of a document, or a heading of a level from 1, by its characters ``start ... end``."""

    start: int
    end: int
    level: int = 0


class Document(NamedTuple):
    """The text of a document, its blocks in order, and what else there is to say of it.

    pages: where each page begins, in characters; empty where there are none.
    unread: what was not read, for people: "2 attachments".
    """

    text: str
    blocks: tuple[Block, ...]
    pages: tuple[int, ...] = ()
    unread: tuple[str, ...] = ()


def joined(parts: Iterable[tuple[str, int]], unread: Iterable[str] = ()) -> Document:
    """A document of paragraphs and headings, each with its level or 0, with an empty line between them."""
    texts: list[str] = []
    blocks: list[Block] = []
    length = 0
    for text, level in parts:
        if text := text.strip():
            texts.append(text)
            blocks.append(Block(length, length + len(text), level))
            length += len(text) + 2
    return Document("\n\n".join(texts), tuple(blocks), unread=tuple(unread))


def check_text(text: str) -> None:
    """DataError for what decodes and is no text."""
    controls = sum(text.count(chr(code)) for code in range(32) if code not in _BLANKS)
    if "\0" in text or controls > _MAX_CONTROLS * len(text):
        raise DataError("it has control characters that no text has; is it another kind of file?")
