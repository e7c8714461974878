"""Word documents (.docx): paragraphs, headings and rows of tables. Their XML is not trusted."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from bertkit.errors import DataError
from bertkit.tasks.reading.documents.document import MAX_BYTES, Document, joined

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
#: Documents in the strict form of the standard have names of their own; they are read under the usual ones.
_STRICT = b"http://purl.oclc.org/ooxml/wordprocessingml/main"
#: What is not shown: the older form of a text box, and where moved text was.
_HIDDEN = ("{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback", f"{_W}moveFrom")
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
)
_CHUNK = 1 << 13
#: The levels of the styles that a document without a list of styles may name.
_BUILT_IN = {"Title": 1, **{f"Heading{level}": level for level in range(1, 10)}}
#: Elements within each other, and in a paragraph, beyond which a document is junk that would fill the memory.
MAX_DEPTH, MAX_PARTS = 1000, 200_000


def read_docx(data: bytes) -> Document:
    """DataError for what is no Word document, for a damaged one, and for one that would fill the memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            if "word/document.xml" not in names:
                raise DataError("it has no word/document.xml, which Word documents have")
            styles = _part(archive, "word/styles.xml") if "word/styles.xml" in names else None
            levels = _BUILT_IN if styles is None else _levels(styles)
            return joined(_blocks(_part(archive, "word/document.xml"), levels))
    except DataError:
        raise
    except ParseError as error:
        raise DataError(f"its XML is damaged ({error})") from None
    except _DAMAGED as error:
        if isinstance(error, zipfile.BadZipFile) and "not a zip file" in str(error):
            raise DataError(
                "it is no zip archive, as .docx files are; is it an old .doc, or has it a password?"
            ) from None
        raise DataError(f"it is damaged or cut short ({error})") from None


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as stream:  # whatever size it says that it has
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise DataError(f"unpacked it has more than {MAX_BYTES >> 20} MiB")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise DataError("its XML declares entities, which no Word document needs and which may fill the memory")
    return data.replace(_STRICT, _W[1:-1].encode())


def _levels(styles: bytes) -> dict[str, int]:
    """The levels of the styles of headings, by their ids; a style without one has that of what it is based on."""
    found: dict[str, int] = {}
    based: dict[str, str] = {}
    for style in (element for event, element in _events(styles, f"{_W}style") if event == "end"):
        if style.tag != f"{_W}style":
            continue
        own, name = style.get(f"{_W}styleId", ""), _value(style.find(f"{_W}name")).lower()
        if name == "title":
            found[own] = 1
        elif heading := re.fullmatch(r"heading (\d)", name):
            found[own] = int(heading[1])
        elif outline := _value(style.find(f"{_W}pPr/{_W}outlineLvl")):
            found[own] = int(outline) + 1 if outline in "012345678" else 0
        elif base := _value(style.find(f"{_W}basedOn")):
            based[own] = base
    for own in based:
        seen, base = {own}, based[own]
        while base in based and base not in seen:
            seen.add(base)
            base = based[base]
        if base in found:
            found[own] = found[base]
    return found


def _events(data: bytes, kept: str) -> Iterator[tuple[str, Element]]:
    """The beginnings and ends of elements. All that has ended is forgotten, but within an element called ``kept``."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    opened: list[Element] = []
    inside = parts = 0
    for start in range(0, len(data), _CHUNK):
        parser.feed(data[start : start + _CHUNK])
        for event, element in parser.read_events():  # type: ignore[misc]
            assert isinstance(element, Element)
            if event == "start":
                opened.append(element)
                inside += element.tag == kept
                parts = parts + 1 if inside else 0
                if len(opened) > MAX_DEPTH or parts > MAX_PARTS:
                    what = f"{MAX_DEPTH:,} elements within each other" if parts <= MAX_PARTS else f"{MAX_PARTS:,} parts"
                    where = "" if parts <= MAX_PARTS else " in one paragraph"
                    raise DataError(f"its XML has more than {what}{where}, which no text needs; save it again in Word")
            yield str(event), element
            if event == "end":
                opened.pop()
                inside -= element.tag == kept
                if not inside and opened:
                    opened[-1].remove(element)
    parser.close()


def _blocks(data: bytes, levels: dict[str, int]) -> Iterator[tuple[str, int]]:
    rows: list[list[str]] = []  # texts of the rows of tables that are open, from the outermost
    hidden = 0  # elements that are open and are not shown
    for event, element in _events(data, f"{_W}p"):
        if event == "start":
            if element.tag == f"{_W}tr":
                rows.append([])
            hidden += element.tag in _HIDDEN
        elif element.tag in _HIDDEN:
            hidden -= 1
            element.clear()
        elif hidden:
            if element.tag == f"{_W}tr":
                rows.pop()
        elif element.tag == f"{_W}p":
            text, level = _text(element), _level(element, levels)
            element.clear()  # also so that the paragraph around a text box does not have its text again
            if rows:
                rows[-1].append(text.strip())
            else:
                yield text, level
        elif element.tag == f"{_W}tr":
            row = " | ".join(filter(None, rows.pop()))
            if rows:
                rows[-1].append(row)
            else:
                yield row, 0


def _level(paragraph: Element, levels: dict[str, int]) -> int:
    outline = _value(paragraph.find(f"{_W}pPr/{_W}outlineLvl"))
    if outline.isdecimal():
        return int(outline) + 1 if int(outline) < 9 else 0
    return levels.get(_value(paragraph.find(f"{_W}pPr/{_W}pStyle")), 0)


def _text(paragraph: Element) -> str:
    """What is written, without what was deleted and the instructions of fields."""
    marks = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
    runs = paragraph.iter()
    return "".join(each.text or "" if each.tag == f"{_W}t" else marks.get(each.tag, "") for each in runs)


def _value(element: Element | None) -> str:
    return "" if element is None else element.get(f"{_W}val", "")
