"""Documents of every format as text with headings, and what is refused."""

from __future__ import annotations

import contextlib
import io
import re
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import DataError
from bertkit.tasks.reading.documents import document
from bertkit.tasks.reading.documents.document import Document
from bertkit.tasks.reading.documents.find_documents import find_documents, how_many, lies_in
from bertkit.tasks.reading.documents.mail_files import read_eml
from bertkit.tasks.reading.documents.pdf_files import read_pdf
from bertkit.tasks.reading.documents.plain_text import read_markdown, read_plain
from bertkit.tasks.reading.documents.read_document import read_document
from bertkit.tasks.reading.documents.web_pages import read_html
from bertkit.tasks.reading.documents.word_files import read_docx
from document_files import docx_bytes, paragraph, pdf_bytes, with_aes, with_password, write_all_formats


def shown(found: Document) -> list[tuple[str, int]]:
    """The blocks of a document as text and level."""
    return [(found.text[block.start : block.end], block.level) for block in found.blocks]


def test_markdown_has_headings_of_both_forms_and_code_has_none() -> None:
    text = (
        "---\ntitle: x\n---\n\n# One #\nfirst\nparagraph\n\nTwo\n---\n\n```python\n# no heading\n\nx = 1\n```\n"
        "### Three\r\nlast\r\n#no heading\n\n---\n"
    )
    assert shown(read_markdown(text)) == [
        ("---\ntitle: x\n---", 0),
        ("One", 1),
        ("first\nparagraph", 0),
        ("Two", 2),
        ("```python\n# no heading\n\nx = 1\n```", 0),
        ("Three", 3),
        ("last\r\n#no heading", 0),
        ("---", 0),
    ]


@given(st.text(alphabet="ab# \n\r-=`~", max_size=60))
@settings(max_examples=200, deadline=None)
def test_no_character_of_a_text_is_lost(text: str) -> None:
    """Between the blocks of plain text there are blanks only, in Markdown signs of headings and rules also."""
    for read, between in ((read_plain, r"\s*"), (read_markdown, r"[\s#=-]*")):
        found, end = read(text), 0
        for block in found.blocks:
            assert block.end > block.start >= end
            assert re.fullmatch(between, text[end : block.start])
            end = block.end
        assert re.fullmatch(between, text[end:])


def test_html_is_what_a_reader_sees() -> None:
    page = (
        "<title>Shop &amp; more</title><style>p{}</style><h1>Prices</h1><p>An <b>apple</b>\n costs<br>one euro.</p>"
        "<script>if (a < b) {}</script><table><tr><th>what</th><td>much</td></tr></table><pre>a  b\n c</pre><p>open"
    )
    assert shown(read_html(page)) == [
        ("Shop & more", 1),
        ("Prices", 2),
        ("An apple costs\none euro.", 0),
        ("what | much", 0),
        ("a  b\n c", 0),
        ("open", 0),
    ]
    assert shown(read_html("<title>Same</title><h1>Same</h1>x")) == [("Same", 1), ("x", 0)]


def test_comments_of_html_are_no_text_and_open_ones_cost_little() -> None:
    """The parser of the standard library takes minutes for the last ones."""
    assert read_html("<!DOCTYPE html><!-- a <p> --><?x y?><p>b <!-- c -->d</p>e<!-- f").text == "b d\n\ne<!-- f"
    for mark in ("<!--", "<!", "<?", "<"):
        assert len(read_html(mark * 50_000).text) == len(mark) * 50_000


def test_word_documents_by_the_names_of_their_styles() -> None:
    body = (
        paragraph("Head", "berschrift1") + paragraph("Below", "Own") + paragraph("a &lt; b")
        + "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p>"
        + f"<w:tbl><w:tr><w:tc>{paragraph('x')}{paragraph('y')}</w:tc><w:tc>{paragraph('z')}</w:tc></w:tr></w:tbl>"
    )  # fmt: skip
    assert shown(read_docx(docx_bytes(body))) == [
        ("Head", 1), ("Below", 2), ("a < b", 0), ("a\tb", 0), ("x | y | z", 0)
    ]  # fmt: skip


def test_word_documents_without_a_list_of_styles() -> None:
    whole, out = zipfile.ZipFile(io.BytesIO(docx_bytes(paragraph("Head", "Heading2") + paragraph("a")))), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("word/document.xml", whole.read("word/document.xml"))
    assert shown(read_docx(out.getvalue())) == [("Head", 2), ("a", 0)]


def test_pdf_has_pages_and_words_that_were_split() -> None:
    found = read_pdf(pdf_bytes([["One infor-", "mation."], [], ["Three."]]))
    assert found.text == "One information.\n\nThree."
    assert found.pages == (0, 16, 18)
    assert found.unread == ("1 page without text",)


def test_mail_has_a_subject_and_counts_attachments() -> None:
    mail = (
        b'Subject: =?utf-8?b?R3LDvMOfZQ==?=\r\nContent-Type: multipart/mixed; boundary="x"\r\n\r\n'
        b"--x\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n<h1>Tag</h1><p>sch\xf6n</p>\r\n"
        b"--x\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment\r\n\r\nxyz\r\n--x--\r\n"
    )
    found = read_eml(mail)
    assert shown(found) == [("Grüße", 1), ("Tag", 2), ("schön", 0)]
    assert found.unread == ("1 attachment",)


def bad_files() -> dict[str, tuple[bytes, str]]:
    """Files that are no documents, and what is said of them."""
    bomb = docx_bytes(paragraph("a" * 3_000_000))
    entities = docx_bytes("", **{"word/styles.xml": '<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>'})
    return {
        "locked.pdf": (with_password(pdf_bytes([["hello"]]), "secret"), "password"),
        "aes.pdf": (with_aes(pdf_bytes([["hello"]])), "(encrypted with AES|password)"),
        "scan.pdf": (pdf_bytes([[], []]), "2 pages have no text"),
        "junk.pdf": (b"\x93\x00" * 500, "not a readable PDF"),
        "empty.pdf": (b"", "not a readable PDF"),
        "cut.docx": (bomb[:200], "zip archive"),
        "old.docx": (b"\xd0\xcf\x11\xe0" * 100, r"old \.doc, or has it a password"),
        "bomb.docx": (bomb, "more than 1 MiB"),
        "entities.docx": (entities, "declares entities"),
        "xml.docx": (docx_bytes("<w:p>"), "XML is damaged"),
        "empty.docx": (docx_bytes(""), "it has no text"),
        "junk.txt": (b"a\x00b" * 20, "a NUL byte at byte 2"),
        "bells.txt": (b"a\x07b" * 20, "control characters"),
        "latin.md": (b"F\x81\x8d\xff", "not UTF-8"),
        "blank.txt": (b" \n\n ", "it has no text"),
        "scripts.html": (b"<script>x</script>", "it has no text"),
        "junk.eml": (b"no mail at all", "none of the headers"),
        "big.txt": (b"word " * 300_000, "1,500,000 bytes, more than 1,048,576"),
    }


@pytest.mark.parametrize("name", bad_files())
def test_bad_documents_are_refused_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("word_files", "pdf_files", "read_document"):
        monkeypatch.setattr(f"bertkit.tasks.reading.documents.{module}.MAX_BYTES", 1 << 20)
    content, said = bad_files()[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(str(tmp_path / name))}(:\d+)?: .*({said})"):
        read_document(tmp_path / name)


def test_every_format_is_read(tmp_path: Path) -> None:
    for name in write_all_formats(tmp_path / "docs"):
        assert len(read_document(tmp_path / "docs" / name).text) > 40
    page = '<meta charset="iso-8859-1"><p>Füße'.encode("latin-1")
    (tmp_path / "old.html").write_bytes(page)
    assert read_document(tmp_path / "old.html").text == "Füße"


@given(st.binary(max_size=300), st.sampled_from(["docx", "pdf", "eml", "html", "md"]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_junk_is_an_error_that_is_ours_or_text(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str, is_changed: bool
) -> None:
    """Also a good file with a part of it replaced."""
    path = tmp_path_factory.mktemp("junk") / f"x.{ending}"
    good = {"docx": docx_bytes(paragraph("text")), "pdf": pdf_bytes([["text"]])}.get(ending, b"Subject: x\n\ntext")
    path.write_bytes(good[: len(good) // 2] + data + good[len(good) // 2 + len(data) :] if is_changed else data)
    with contextlib.suppress(DataError):
        assert read_document(path).text.strip()


def test_folders_and_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = write_all_formats(tmp_path / "docs")
    (tmp_path / "docs" / ".hidden.txt").write_text("x")
    (tmp_path / "docs" / ".git").mkdir()
    (tmp_path / "docs" / "table.csv").write_text("x")
    (tmp_path / "docs" / "~$office.docx").write_text("x")
    (tmp_path / "docs" / "sub" / "up").symlink_to(tmp_path / "docs", target_is_directory=True)
    found = find_documents(["docs"])
    assert sorted(path.as_posix() for path in found.files) == sorted(f"docs/{name}" for name in names)
    assert found.passed == {
        "hidden": 2, "links to folders": 1, "with other endings (.csv)": 1, "open in Word (~$)": 1
    }  # fmt: skip
    assert how_many(found).startswith("6 documents; passed over: 2 hidden, ")
    assert [path.name for path in find_documents(["docs/*.md", "docs/refunds.md"]).files] == ["refunds.md"]
    assert len(find_documents(["docs/**/*.html"]).files) == 1
    with pytest.raises(DataError, match=r"docs/\*.xyz names no documents"):
        find_documents(["docs/*.xyz"])
    with pytest.raises(DataError, match=r"docs/\*.csv names no documents .*1 with other endings \(.csv\)"):
        find_documents(["docs/*.csv"])
    assert lies_in("docs/gone.md", "docs")
    assert lies_in("docs/gone.md", "docs/*.md")
    assert lies_in("docs/gone.md", ".")
    assert not lies_in("docs2/gone.md", "docs")
    assert not lies_in("../gone.md", ".")


def test_the_limit_is_far_above_documents() -> None:
    assert document.MAX_BYTES == 100 << 20


@pytest.mark.campaign
@pytest.mark.slow
def test_junk_in_a_word_document_stays_small() -> None:
    """Deep and long junk is refused, and junk between paragraphs forgotten, before it fills the memory."""
    text = "<w:p><w:r><w:t>good</w:t></w:r></w:p>"
    count = 250_000
    for body, said in (
        ("<w:x>" * count + "</w:x>" * count, "more than 1,000 elements within each other"),
        (f"<w:p>{'<w:x/>' * count}</w:p>", "more than 200,000 parts in one paragraph"),
        ("<w:x/>" * count + text, None),
    ):
        data = docx_bytes(body)
        tracemalloc.start()
        if said is None:
            assert read_docx(data).text == "good"
        else:
            with pytest.raises(DataError, match=said):
                read_docx(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (40 if "parts" in (said or "") else 12) << 20, (said, peak)
