"""Documents of every format, written by hand, so that no reader is tested with its own writer."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def pdf_bytes(pages: Sequence[Sequence[str]]) -> bytes:
    """A PDF with lines of text in Helvetica; an empty page shows nothing, as a scan without OCR."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", ""]
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    kids = []
    for lines in pages:
        shown = " T* ".join(f"({line}) Tj" for line in lines)
        content = f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET" if lines else ""
        objects.append(f"<< /Length {len(content)} >>\nstream\n{content}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, content in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(f"{number} 0 obj\n{content}\nendobj\n".encode("cp1252"))
    start = out.tell()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    out.write(f"xref\n0 {len(places) + 1}\n0000000000 65535 f \n{table}".encode())
    out.write(f"trailer << /Size {len(places) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode())
    return out.getvalue()


def with_password(data: bytes, password: str) -> bytes:
    """A PDF that only opens with a password."""
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def with_aes(data: bytes) -> bytes:
    """A PDF that says it is encrypted with AES."""
    keys = f"/O <{'00' * 48}> /U <{'00' * 48}> /OE <{'00' * 32}> /UE <{'00' * 32}> /Perms <{'00' * 16}>"
    filters = "/CF << /StdCF << /CFM /AESV3 /Length 32 >> >> /StmF /StdCF /StrF /StdCF"
    encrypt = f"/Encrypt << /Filter /Standard /V 5 /R 6 /Length 256 /P -4 {keys} {filters} >> /ID [<00> <00>]"
    return data.replace(b"/Root 1 0 R", f"/Root 1 0 R {encrypt}".encode())


def paragraph(text: str, style: str = "") -> str:
    """A paragraph of a Word document."""
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{properties}<w:r><w:t xml:space="preserve">{text}</w:t></w:r></w:p>'


def docx_bytes(body: str, **parts: str) -> bytes:
    """A Word document with this body; the headings' styles have German ids, as Word in Germany writes them."""
    styles = (
        f'<w:styles xmlns:w="{_W}"><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="berschrift2"><w:name w:val="heading 2"/></w:style>'
        '<w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="berschrift2"/></w:style></w:styles>'
    )
    document = f'<w:document xmlns:w="{_W}"><w:body>{body}</w:body></w:document>'
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {"word/document.xml": document, "word/styles.xml": styles, **parts}.items():
            archive.writestr(name, content)
    return out.getvalue()


def write_all_formats(folder: Path) -> dict[str, str]:
    """One document of each format; for each a question that only it answers."""
    folder.mkdir()
    (folder / "sub").mkdir()
    (folder / "refunds.md").write_text(
        "# Shop manual\n\n## Refunds\n\nYou get your money back within 14 days of the purchase.\n\n"
        "## Shipping\n\nParcels are delivered by bicycle couriers in three days.\n",
        encoding="utf-8",
    )
    (folder / "garden.txt").write_text(
        "Tomatoes need six hours of sun.\n\nWater them every morning,\nbut never at noon.\n", encoding="utf-8"
    )
    (folder / "sub" / "whales.html").write_text(
        "<html><head><title>Whales</title><style>p {color: red}</style><script>var money = 1;</script></head>"
        "<body><h1>Blue whales</h1><p>The blue whale is the <b>largest</b> animal that ever lived.</p>"
        "<h2>Food</h2><ul><li>It eats krill.</li></ul></body></html>",
        encoding="utf-8",
    )
    body = paragraph("Computers", "berschrift1") + paragraph("Passwords", "Own")
    body += paragraph("Change your password every ninety days, and never write it down.")
    (folder / "office.docx").write_bytes(docx_bytes(body))
    pages = [["The volcano on Iceland erupted in", "March and closed the airport."], ["Lava is molten rock."]]
    (folder / "volcano.pdf").write_bytes(pdf_bytes(pages))
    (folder / "invite.eml").write_bytes(
        b"From: ann@example.org\r\nTo: bob@example.org\r\nSubject: =?utf-8?q?Birthday_caf=C3=A9?=\r\n"
        b"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        b"Dear Bob,\r\n\r\nmy birthday party begins on Saturday at eight, bring a guitar.\r\n"
    )
    return {
        "refunds.md": "When is my money returned?",
        "garden.txt": "How much sun do tomato plants want?",
        "sub/whales.html": "Which animal is the biggest of all?",
        "office.docx": "How often must I renew my password?",
        "volcano.pdf": "Which airport was shut after an eruption?",
        "invite.eml": "When does the birthday party start?",
    }
