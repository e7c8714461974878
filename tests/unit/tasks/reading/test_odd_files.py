"""Files that once were read as something else without a word."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from bertkit.errors import DataError, InputError
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.documents.web_pages import read_html
from bertkit.tasks.reading.documents.word_files import read_docx
from bertkit.tasks.reading.lines import Lines, check_file
from bertkit.tasks.reading.listed_texts import listed
from bertkit.tasks.tokens.span_files import read_marked


def lines(path: Path, encoding: str | None = None) -> list[str]:
    return list(Lines(path, BadRows(), encoding))


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("given", ["utf-8-sig", "UTF-8-SIG", None])
def test_a_mark_is_left_out_where_there_is_one(marked: bool, given: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" * marked + b"good\nbad\n")
    assert lines(tmp_path / "a.txt", given) == ["good\n", "bad\n"]


@pytest.mark.parametrize("name", ["utf-32", "utf-16"])
def test_text_in_wide_characters_with_a_mark(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("gut, schön\nbad\n".encode(name))
    assert lines(tmp_path / "a.txt") == ["gut, schön\n", "bad\n"]


def test_a_byte_that_is_a_blank_in_a_candidate_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n\x01\xff")
    with pytest.raises(DataError, match=r"a.txt:2: byte 2 .* is not UTF-8"):
        lines(tmp_path / "a.txt")


def test_a_text_box_is_read_once_and_moved_text_where_it_is_now() -> None:
    w = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = "<w:p><w:r><w:t>in the box</w:t></w:r></w:p>"
    body = (
        f"<w:p><w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
        "</mc:AlternateContent><w:t>host</w:t></w:r></w:p>"
        "<w:p><w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom><w:r><w:t>here</w:t></w:r></w:p>"
    )
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("word/document.xml", f"<w:document {w} {mc}><w:body>{body}</w:body></w:document>")
    text = read_docx(data.getvalue()).text
    assert text.count("in the box") == 1
    assert "host" in text
    assert "here" in text
    assert "gone" not in text


def test_many_empty_cells_of_a_page_cost_little() -> None:
    """Quadratic, these took minutes."""
    assert read_html("<p>text</p><table><tr>" + "<td>" * 200_000).text.startswith("text")


def test_marks_of_another_kind_and_two_lists_are_refused(tmp_path: Path) -> None:
    result = [{"value": {"start": 0, "end": 3, "hypertextlabels": ["PER"]}}]
    odd = [{"data": {"text": "Ann left"}, "annotations": [{"result": result}]}]
    (tmp_path / "a.json").write_text(json.dumps(odd))
    (tmp_path / "b.jsonl").write_text(
        json.dumps({"text": "Ann left", "entities": [[0, 3, "A"]], "label": [[4, 8, "B"]]})
    )
    for name, told in (("a.json", "hypertextlabels"), ("b.jsonl", "differ; keep one")):
        with pytest.raises(DataError, match=told):
            read_marked(tmp_path / name, BadRows(), None, tagged=True)


def test_a_set_of_texts_has_no_order() -> None:
    with pytest.raises(InputError, match="no order"):
        listed({"a", "b"})


@pytest.mark.parametrize(
    ("typed", "told"), [("train.csv", r" \(did you mean 'train\.csv\.xz'\?\)$"), ("elsewhere.txt", " does not exist$")]
)
def test_a_name_that_is_nearly_that_of_a_file_is_answered_with_it(tmp_path: Path, typed: str, told: str) -> None:
    (tmp_path / "train.csv.xz").touch()
    with pytest.raises(DataError, match=told):
        check_file(tmp_path / typed)
