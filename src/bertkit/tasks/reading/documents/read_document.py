"""A document by the ending of its file."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from bertkit.errors import DataError
from bertkit.tasks.reading.documents.document import MAX_BYTES, Document, check_text
from bertkit.tasks.reading.documents.mail_files import read_eml
from bertkit.tasks.reading.documents.pdf_files import read_pdf
from bertkit.tasks.reading.documents.plain_text import read_markdown, read_plain
from bertkit.tasks.reading.documents.web_pages import charset_of, read_html
from bertkit.tasks.reading.documents.word_files import read_docx
from bertkit.tasks.reading.lines import read_text

_TEXTS: Mapping[str, Callable[[str], Document]] = {
    ".txt": read_plain,
    ".text": read_plain,
    ".md": read_markdown,
    ".markdown": read_markdown,
    ".html": read_html,
    ".htm": read_html,
}
_BYTES: Mapping[str, Callable[[bytes], Document]] = {".docx": read_docx, ".pdf": read_pdf, ".eml": read_eml}
#: Endings of files that are documents.
ENDINGS = (*_TEXTS, *_BYTES)


def read_bytes(path: Path) -> bytes:
    """The content of the file of a document; DataError for no file, a huge one or one that cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise DataError(f"{path}: it is not a regular file")
        if found.st_size > MAX_BYTES:
            raise DataError(f"{path}: it has {found.st_size:,} bytes, more than {MAX_BYTES:,}; split it")
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: it cannot be read: {error.strerror or error}") from None


def read_document(path: Path, encoding: str | None = None, data: bytes | None = None) -> Document:
    """The text of a document, and its headings.

    Args:
        path: a ``.txt``, ``.md``, ``.html``, ``.docx``, ``.pdf`` or ``.eml`` file.
        encoding: of text files; HTML may say its own.
        data: the content of the file, if it has been read before.

    Raises:
        DataError: a file that is not what its ending says, that is damaged, needs a password or has no text.
        MissingExtraError: a PDF without ``pypdf``.
    """
    data = read_bytes(path) if data is None else data
    ending = path.suffix.lower()
    try:
        if ending in _BYTES:
            found = _BYTES[ending](data)
        else:
            own = charset_of(data) if ending.startswith(".htm") else None
            text = read_text(path, encoding or own)
            check_text(text)
            found = _TEXTS[ending](text)
        if not found.blocks:
            raise DataError("it has no text")
    except DataError as error:
        if str(error).startswith(str(path)):
            raise
        raise DataError(f"{path}: {error}") from None
    return found
