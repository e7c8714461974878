"""Plain text and Markdown: a document's characters are those of its file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bertkit.tasks.reading.documents.document import Block, Document

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")


def read_plain(text: str) -> Document:
    """Paragraphs are what stands between empty lines."""
    return Document(text, tuple(Block(start, end) for start, end in _paragraphs(text)))


def read_markdown(text: str) -> Document:
    """Paragraphs and headings, those with ``#`` and the underlined ones; code between fences has no headings.

    A block of settings between lines of ``---`` at the very beginning is a paragraph.
    """
    blocks: list[Block] = []
    fence = ""
    start = end = -1  # of the paragraph that is being read, without the line feed behind it

    def close() -> None:
        nonlocal start
        if start >= 0:
            blocks.append(Block(start, end))
        start = -1

    front = bool(re.match(r"---[ \t]*\r?\n", text))
    for number, (first, line) in enumerate(_lines(text)):
        last, stripped = first + len(line), line.strip()
        mark = _FENCE.match(line)
        if front:
            front = number == 0 or stripped not in ("---", "...")
        elif fence:
            if mark and mark[1].startswith(fence) and stripped == mark[1]:
                fence = ""
        elif mark:
            fence = mark[1]
        elif heading := _HEADING.match(line):
            close()
            title = re.sub(r"(^|[ \t]+)#+$", "", line[heading.end() :].rstrip())
            if title:
                blocks.append(Block(first + heading.end(), first + heading.end() + len(title), len(heading[1])))
            continue
        elif start >= 0 and (rule := _UNDERLINE.match(line)) and "\n" not in text[start:end]:
            blocks.append(Block(start, end, 1 if rule[1][0] == "=" else 2))
            start = -1
            continue
        if not stripped and not fence:
            close()
        elif stripped:
            start, end = (first if start < 0 else start), last
    close()
    return Document(text, tuple(blocks))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Where each line begins, and the line without its end."""
    start = 0
    for line in text.split("\n"):
        yield start, line.removesuffix("\r")
        start += len(line) + 1


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    start = end = -1
    for first, line in _lines(text):
        if line.strip():
            start, end = (first if start < 0 else start), first + len(line)
        elif start >= 0:
            yield start, end
            start = -1
    if start >= 0:
        yield start, end
