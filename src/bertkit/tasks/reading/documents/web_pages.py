"""HTML as text: what a reader sees, without scripts and styles."""

from __future__ import annotations

import codecs
import re
from html.parser import HTMLParser

from bertkit.tasks.reading.documents.document import Document, joined

#: What is not shown.
_HIDDEN = frozenset("script style template noscript svg math iframe object".split())
#: What stands in a line of its own.
_BLOCKS = frozenset(
    "address article aside blockquote body dd details div dl dt fieldset figcaption figure footer form header hr html "
    "legend li main nav ol option p pre section summary table tbody tfoot thead tr ul".split()
)
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)


def read_html(text: str) -> Document:
    """Its title is a heading above all others, unless the first heading repeats it."""
    page = _Page()
    page.feed(_without_comments(text))
    page.close()
    page.end_block()
    title = " ".join(page.title.split())
    first = next((part.strip() for part, level in page.parts if level), None)
    if not title or title == first:
        return joined(page.parts)
    return joined([(title, 1), *((part, level and level + 1) for part, level in page.parts)])


def _without_comments(text: str) -> str:
    """A page without comments and declarations, which take the parser quadratic time where one is not closed."""
    parts, start = [], 0
    while (begin := text.find("<!--", start)) >= 0 and (end := text.find("-->", begin)) >= 0:
        parts.append(text[start:begin])
        start = end + 3
    text = "".join([*parts, text[start:]]).replace("<!--", "&lt;!--")
    closed = text.rfind(">") + 1
    return re.sub("<[!?][^>]*>", "", text[:closed]) + text[closed:].replace("<", "&lt;")


def charset_of(data: bytes) -> str | None:
    """The encoding that a page says it has, if Python knows it."""
    found = _CHARSET.search(data[:4096])
    name = found[1].decode("ascii") if found else "utf-8"
    try:
        return None if codecs.lookup(name).name.startswith(("utf", "ascii")) else name  # as others are read
    except LookupError:
        return None


class _Page(HTMLParser):
    """Collects ``parts``: text and level of each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[tuple[str, int]] = []
        self.title = ""
        self._text: list[str] = []
        self._filled = False  # whether there is more than white space in it
        self._level = self._kept = 0
        self._hidden = ""
        self._depth = 0  # of elements of the hidden one's name
        self._in_title = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden:
            self._depth += tag == self._hidden
        elif tag in _HIDDEN:
            self._hidden, self._depth = tag, 1
        elif tag == "title":
            self._in_title = True
        elif tag == "br":
            self._text.append("\n")
        elif tag in ("td", "th"):
            if self._filled:
                self._text.append(" | ")
        elif re.fullmatch("h[1-6]", tag):
            self.end_block()
            self._level = int(tag[1])
        elif tag in _BLOCKS:
            self.end_block()
            self._kept += tag == "pre"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _HIDDEN:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            if not self._depth:
                self._hidden = ""
        elif tag == "title":
            self._in_title = False
        elif tag in _BLOCKS or re.fullmatch("h[1-6]", tag):
            self.end_block()
            self._level = 0
            self._kept = max(0, self._kept - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._in_title:
            self.title += data
        else:
            self._text.append(data if self._kept else re.sub(r"\s+", " ", data))
            self._filled = self._filled or not data.isspace()

    def end_block(self) -> None:
        """What was collected becomes a block."""
        text = "".join(self._text)
        self._text.clear()
        self._filled = False
        if not self._kept:
            text = "\n".join(" ".join(line.split()) for line in text.split("\n"))
        self.parts.append((text, self._level))
