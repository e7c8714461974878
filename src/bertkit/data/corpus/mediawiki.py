"""Passages of text from a MediaWiki XML dump, such as Wikipedia's ``pages-articles.xml.bz2``.

As in the BERT paper (section 3.1), lists, tables and headings are dropped; so are templates, references, files,
formulas and code. ``mwparserfromhell`` parses the mark-up. Templates are not expanded: their words are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from mwparserfromhell import parse
from mwparserfromhell.definitions import is_parsable, is_single
from mwparserfromhell.nodes import ExternalLink, Heading, HTMLEntity, Node, Tag, Text, Wikilink
from mwparserfromhell.parser import ParserError
from mwparserfromhell.wikicode import Wikicode

from bertkit.data.corpus.text_files import MAX_LINE_BYTES, Policy
from bertkit.errors import DataError

#: Namespace of articles.
_ARTICLE = "0"
#: Namespaces whose links put no words into the text: media, files, categories. The dump's own names are added.
_UNSEEN_NAMESPACES = {"-2": "media", "6": "file", "14": "category"}
_UNSEEN_NAMES = frozenset({"media", "file", "image", "category"})

#: Tags whose content is text. All others (ref, table, gallery, math, code, ...) are dropped with their content.
_PROSE_TAGS = frozenset(
    "b i u s em strong small big sub sup span div p center blockquote q abbr cite dfn ins nowiki onlyinclude font "
    "var bdi bdo time mark noinclude section".split()
)
#: Stands for a list marker; lines with one are dropped. Cannot occur in XML.
_LIST_ITEM = "\0"

_QUOTES = re.compile(r"'{2,}")
_SPACE = re.compile(r"[ \t\r\f\v\xa0]+")
_SWITCH = re.compile(r"__[A-Z]+__")
#: What dropped templates leave behind: ``( , )`` and a space before a comma.
_EMPTY_BRACKETS = re.compile(r"\s*[(\[][\s,;:/–-]*[)\]]")
_SPACE_BEFORE = re.compile(r"\s+(?=[,;.])")
#: Signs of mark-up that was not parsed; such a line is not a passage.
_LEFT_OVER = re.compile(r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}|</?[a-zA-Z]|^\s*[|!*#:;]|^-{4}")

#: For each construct that is never closed, the parser reads to the end of the page and goes back. A page is refused if
#: that would exceed both so many characters and so many times its length: 10 million take seconds.
MAX_REREAD_CHARS, MAX_REREADS = 10_000_000, 10
#: Opens or closes a template, link, table (only at the start of a line), comment or tag.
_MARK = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\[(?=https?:|//)|\]|^[ \t:]*(?P<table>\{\||\|\})|<!--|"
    r"<(?P<slash>/?)(?P<tag>[a-zA-Z]+)(?P<rest>[^<>]*>)?",
    re.MULTILINE,
)
_CLOSING = {"}}": "{{", "]]": "[[", "]": "[", "|}": "{|"}


@dataclass(slots=True)
class _Page:
    line: int
    fields: dict[str, str] = field(default_factory=dict)


class _DumpReader:
    """Handles the events of the XML parser and collects finished pages in ``pages``."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.pages: list[_Page] = []
        self.unseen = set(_UNSEEN_NAMES)
        self.page: _Page | None = None
        self.parts: list[str] | None = None
        self.size = 0
        self.depth = 0
        self.namespace_key = ""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        # Dumps declare no entities. Refusing the whole declaration leaves nothing to expand or fetch.
        self.parser.StartDoctypeDeclHandler = self._refuse

    @property
    def where(self) -> str:
        return f"{self.name}:{self.parser.CurrentLineNumber}"

    def _refuse(self, *declaration: object) -> None:
        raise DataError(f"{self.where}: a MediaWiki dump has no <!DOCTYPE ...>; remove it or check the file")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if self.depth == 0 and tag != "mediawiki":
            raise DataError(
                f"{self.where}: expected a MediaWiki dump (<mediawiki>), got <{tag[:40]}>; convert it to text"
            )
        self.depth += 1
        if tag == "page":
            self.page = _Page(self.parser.CurrentLineNumber)
        elif tag == "namespace":
            self.namespace_key = attributes.get("key", "")
        if tag == "namespace" or (self.page is not None and tag in ("ns", "text", "redirect")):
            self.parts, self.size = [], 0

    def _text(self, text: str) -> None:
        if self.parts is not None:
            self.size += len(text)
            if self.size <= MAX_LINE_BYTES:
                self.parts.append(text)

    def _end(self, tag: str) -> None:
        self.depth -= 1
        if self.parts is not None:
            text, self.parts = "".join(self.parts), None
            if self.page is not None:
                if self.size > MAX_LINE_BYTES:
                    text, limit = "", f"{MAX_LINE_BYTES >> 20} MiB"
                    fault = f"{self.name}:{self.page.line}: the page is longer than {limit}; remove it"
                    self.policy.bad("line too long", fault)
                self.page.fields[tag] = text
            elif self.namespace_key in _UNSEEN_NAMESPACES and text:
                self.unseen.add(text.strip().lower())
        if tag == "page" and self.page is not None:
            self.pages.append(self.page)
            self.page = None


def read_mediawiki(chunks: Iterator[bytes], name: str, policy: Policy) -> Iterator[tuple[str, list[str]]]:
    """Articles of a dump: where each begins (``file:line``) and its passages, none blank, perhaps no passage at all.

    Redirects and pages of other namespaces (talk, templates) are ignored. Memory holds one chunk and its pages.
    """
    reader = _DumpReader(name, policy)
    try:
        for chunk in chunks:
            reader.parser.Parse(chunk, False)
            yield from _articles(reader, policy)
        # The caller reports empty files.
        if reader.parser.CurrentByteIndex > 0 or reader.depth:
            reader.parser.Parse(b"", True)
    except expat.ExpatError as error:
        yield from _articles(reader, policy)
        policy.bad("bad XML", f"{name}:{error.lineno}: {expat.ErrorString(error.code)}; check the dump's checksum")
    except DataError as error:
        if policy.on_error == "raise":
            raise
        policy.bad("bad XML", str(error))


def _articles(reader: _DumpReader, policy: Policy) -> Iterator[tuple[str, list[str]]]:
    pages, reader.pages = reader.pages, []
    for page in pages:
        if page.fields.get("ns", _ARTICLE).strip() != _ARTICLE or "redirect" in page.fields:
            continue
        where = f"{reader.name}:{page.line}"
        try:
            yield where, passages(page.fields.get("text", ""), reader.unseen)
        except (DataError, ParserError, RecursionError) as error:
            policy.bad("bad mark-up", f"{where}: the page's mark-up cannot be read ({error}); remove the page")


def passages(wikitext: str, unseen: Iterable[str] = _UNSEEN_NAMES) -> list[str]:
    """The paragraphs of a page without mark-up; links of the namespaces ``unseen`` put no words into the text."""
    if _is_too_tangled(wikitext):
        raise DataError("too many templates, links, tables or tags are opened and never closed")
    # Italics and bold are removed afterwards: unbalanced quotes would make the parser guess.
    code = parse(wikitext, skip_style_tags=True)
    plain = _QUOTES.sub("", _words(code, frozenset(unseen)))
    found = []
    for line in plain.split("\n"):
        if _LIST_ITEM in line:
            continue
        line = _EMPTY_BRACKETS.sub("", _SPACE.sub(" ", _SWITCH.sub("", line)))
        line = _SPACE_BEFORE.sub("", line).strip()
        if line and not _LEFT_OVER.search(line):
            found.append(line)
    return found


def _is_too_tangled(wikitext: str) -> bool:
    """Whether the parser would read more than :data:`MAX_REREAD_CHARS` again, for what is opened and never closed."""
    size, at = len(wikitext), 0
    limit = max(MAX_REREAD_CHARS, MAX_REREADS * size)
    reread = 0
    opened: list[tuple[str, int]] = []
    while reread <= limit and (mark := _MARK.search(wikitext, at)) is not None:
        at = mark.end()
        tag, rest = (mark["tag"] or "").lower(), mark["rest"] or ""
        what = f"<{tag}" if tag else mark["table"] or mark[0]
        if (closed := what if mark["slash"] else _CLOSING.get(what)) is not None:
            if opened and opened[-1][0] == closed:
                opened.pop()
        elif tag and rest and (rest.endswith("/>") or is_single(tag)):
            pass
        elif what == "<!--" or (tag and not is_parsable(tag)):  # nothing counts before its end
            end = wikitext.find("-->" if what == "<!--" else f"</{tag}", at)
            reread, at = (reread, end) if end >= 0 else (reread + size - at, at)
        elif tag and not rest:
            reread += size - at
        else:
            opened.append((what, at))
    return reread + sum(size - start for _, start in opened) > limit


def _words(code: Wikicode, unseen: frozenset[str]) -> str:
    return "".join(_node_words(node, unseen) for node in code.nodes)


def _node_words(node: Node, unseen: frozenset[str]) -> str:
    match node:
        case Text():
            return str(node.value)
        case Wikilink():
            title = str(node.title).strip()
            prefix, colon, _ = title.partition(":")
            if colon and prefix.strip().lower() in unseen:
                return ""
            if node.text is not None:
                return _words(node.text, unseen)
            # Until 2013 links to the article in other languages were part of the text: [[de:Titel]].
            if colon and re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", prefix):
                return ""
            return _words(node.title, unseen).strip().lstrip(":")
        case Tag():
            if node.wiki_markup is not None and str(node.wiki_markup) in "*#:;":
                return _LIST_ITEM
            tag = str(node.tag).strip().lower()
            if tag in ("br", "hr"):
                return " " if tag == "br" else "\n"
            return "" if tag not in _PROSE_TAGS or node.contents is None else _words(node.contents, unseen)
        case ExternalLink():
            return _words(node.title, unseen) if node.title is not None else ""
        case HTMLEntity():
            character = str(node.normalize() or "")
            return " " if character.isspace() or character in "\0\u200b" else character
        case Heading():
            return "\n"
        case _:  # templates, their arguments, comments
            return ""
