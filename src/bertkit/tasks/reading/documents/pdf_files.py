"""PDF files with text, by ``pypdf``."""

from __future__ import annotations

import io
import logging
import re

from bertkit.errors import BertkitError, DataError, counted, require
from bertkit.tasks.reading.documents.document import MAX_BYTES, Block, Document
from bertkit.tasks.reading.documents.plain_text import read_plain

#: The pip extra that brings it.
EXTRA = "documents"


def check_pypdf() -> None:
    """MissingExtraError where PDF files cannot be read."""
    require("pypdf", extra=EXTRA, needed_for="reading PDF files")


def read_pdf(data: bytes) -> Document:
    """DataError for a file with a password, without text (a scan) or with damage."""
    check_pypdf()
    from pypdf import PdfReader
    from pypdf.errors import DependencyError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it warns of each small fault that it mends
    pages: list[str] = []
    size = 0
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError("it needs a password; save it without one")
        for page in reader.pages:
            pages.append(_flowing(page.extract_text()))
            size += len(pages[-1])
            if size > MAX_BYTES:
                raise DataError(f"it has a text of more than {MAX_BYTES:,} characters")
    except BertkitError:
        raise
    except DependencyError:
        raise DataError("it is encrypted with AES; save it unencrypted, or run: pip install cryptography") from None
    except Exception as error:  # pypdf raises whatever a wrong file leads it to
        raise DataError(f"not a readable PDF ({type(error).__name__}: {str(error)[:100]})") from None
    return _document(pages)


def _document(pages: list[str]) -> Document:
    if not any(pages):
        what = counted(len(pages), "page")
        have = "has" if len(pages) == 1 else "have"
        raise DataError(f"its {what} {have} no text, as scans have none; recognize their text first (OCR)")
    text, starts = "", []
    for page in pages:
        text += "\n\n" if text and page else ""
        starts.append(len(text))
        text += page
    empty = sum(not page for page in pages)
    unread = (f"{counted(empty, 'page')} without text",) if empty else ()
    return Document(text, tuple(map(Block._make, read_plain(text).blocks)), tuple(starts), unread)


def _flowing(text: str | None) -> str:
    """The text of a page, with words whole that were split at the end of a line."""
    return re.sub(r"(?<=[^\W\d_])-\n(?=[a-zß-ÿ])", "", (text or "").replace("\r\n", "\n")).replace("\0", "").strip()
