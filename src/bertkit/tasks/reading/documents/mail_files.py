"""E-mails (.eml): subject and text; attachments are counted, not read."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from itertools import chain

from bertkit.errors import DataError, counted
from bertkit.tasks.reading.documents.document import Document, check_text, joined
from bertkit.tasks.reading.documents.plain_text import read_plain
from bertkit.tasks.reading.documents.web_pages import read_html

#: One of them is in every e-mail.
_HEADERS = ("From", "To", "Subject", "Date", "Message-ID", "Received")


def read_eml(data: bytes) -> Document:
    """The subject is the heading; of a text that is there as HTML too, the plain one is read."""
    try:
        message = email.message_from_bytes(data, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        if not any(name in message for name in _HEADERS):
            raise DataError("it has none of the headers of an e-mail (From, Subject ...)")
        body = message.get_body(("plain", "html"))
        text = "" if body is None else body.get_content()
        is_html = body is not None and body.get_content_subtype() == "html"
        attached = counted(len(files), "attachment") if (files := list(message.iter_attachments())) else None
        subject = str(message["Subject"] or "")
    except DataError:
        raise
    except Exception as error:  # whatever a wrong header or character set leads the parser to
        raise DataError(f"not a readable e-mail ({type(error).__name__}: {str(error)[:100]})") from None
    text = text.replace("\r\n", "\n")
    check_text(text)
    found = read_html(text) if is_html else read_plain(text)
    parts = ((found.text[block.start : block.end], block.level and block.level + 1) for block in found.blocks)
    return joined(chain([(subject, 1)], parts), [attached] if attached else [])
