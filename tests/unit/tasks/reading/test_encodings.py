"""What the bytes of a file mean where nobody has said it, and what is no text."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.encodings import guess_of
from bertkit.tasks.reading.lines import Lines, read_text
from bertkit.tasks.reading.tables import Table, open_table
from bertkit.tasks.text.csv_task import csv_task

#: Sentences in encodings of Windows, each with words that other encodings would show otherwise.
WESTERN = [
    "text,label\nTrès bon café, le garçon était là.,1\nOù êtes-vous ? Ça va bien, à bientôt.,0\n",
    "text,label\nplain,1\nSchöne Grüße aus München, daß es größer wäre.,0\n",
    "text,label\nEl niño comió mañana, ¿qué pasó?,1\n",
    "text,label\nI don’t think it’s “good” – really…,1\n",
    "text,label\ncosts 5 € only,1\n",
    "text,label\n" + "nothing of note,0\n" * 5000 + "café,1\n",
]
OTHERS = {
    "cp1250": ["Příliš žluťoučký kůň úpěl ďábelské ódy, žena šla do města", "Zażółć gęślą jaźń, proszę bardzo"],
    "cp1251": ["Привет мир, это очень хороший фильм"],
    "cp1253": ["Καλημέρα κόσμε, πολύ καλό"],
    "mac_roman": ["Très bon café, le garçon était là. Où êtes-vous ?"],
    "shift_jis": ["これは日本語のテキストです。とても良い"],
    "gb18030": ["这是一个中文文本，非常好"],
}


def lines(path: Path) -> str:
    return "".join(Lines(path, BadRows()))


def table(path: Path) -> Table:
    return open_table(path, Columns(text=("text",)), BadRows("skip"))


@pytest.mark.parametrize("text", WESTERN)
def test_what_windows_writes_is_read_and_said(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode("cp1252"))
    assert lines(path) == read_text(path) == text
    said = capsys.readouterr().err
    assert said.count("read as cp1252, as in") == 1, "once for a file, however often it is read"
    number = next(number for number, line in enumerate(text.split("\n"), 1) if not line.isascii())
    first = next(word for word in text.split() if not word.isascii())
    assert re.search(rf"as in '.*{re.escape(first)}.*' \(line {number:,}\)", said)
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert lines(packed) == text


@pytest.mark.parametrize("encoding", OTHERS)
def test_other_encodings_are_refused_with_two_candidates(encoding: str, tmp_path: Path) -> None:
    for text in OTHERS[encoding]:
        path = tmp_path / "a.txt"
        path.write_bytes(text.encode(encoding) + b"\n")
        guess = guess_of(path)
        assert guess.encoding is None
        assert len(guess.candidates) == 2
        first = next(word for word in text.split() if not word.isascii())
        listed = guess.candidates.get("cp932" if encoding == "shift_jis" else encoding, first)
        assert listed.startswith(first[:60])
        with pytest.raises(
            DataError, match=r"a\.txt:1: byte \d+ .* is not UTF-8; .*: '.*' in \w+, '.*' in \w+. Give its"
        ):
            lines(path)
        assert read_text(path, encoding) == text + "\n"


@pytest.mark.parametrize(
    "content",
    [b"caf\x81\n", "café\n".encode() + b"caf\xe9\n", b"caf\xe9\n" + "café\n".encode()],
    ids=["a byte that cp1252 lacks", "UTF-8 before", "UTF-8 behind"],
)
def test_damaged_utf8_is_not_taken_for_cp1252(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (lines, read_text):
        with pytest.raises(DataError, match="is not UTF-8"):
            read(path)


def test_an_encoding_that_is_given_is_not_questioned(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("café\n".encode("cp1252"))
    for encoding in ("utf-8", "ascii"):
        with pytest.raises(DataError, match="is not"):
            read_text(path, encoding)
        with pytest.raises(DataError, match="is not"):
            list(Lines(path, BadRows(), encoding))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text",
    [
        "привет",
        "текст,метка\nПривет мир,да\n" * 50,
        "Καλημέρα κόσμε\r\nπολύ καλό\r\n",
        "שלום עולם\n",
        "سلام\n",
        "สวัสดี\n",
        "これは日本語\u3000です\nとても良い\n",
        "这是一个中文文本\n非常好\n",
        "한국어 텍스트\n",
        "good 😀\n",
    ],
)
def test_utf16_of_every_script_without_a_mark(
    text: str, encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    assert lines(path) == text
    assert f"as in {' '.join(text.split()[:3])!r}. If that is wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        b"good\0film\nis it\n",
        b"caf\xe9 \0 is good\n" * 3,
        "नमस्ते दुनिया\n".encode("utf-16-le"),
        bytes(range(256)) * 4,
        b"\0" * 5000,
        b"\n\0" * 2000,
    ],
)
def test_zeros_alone_make_no_utf16(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (lines, read_text):
        with pytest.raises(DataError, match=r"NUL|control characters"):
            read(path)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
@pytest.mark.parametrize("text", ["text,label\ngood,1\n", "a\n", "Zoë,1\nnaïve 東,0\n" * 400])
def test_utf16_with_and_without_a_mark(encoding: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(text.encode(encoding))
    assert lines(path) == read_text(path) == text


def test_zero_bytes_here_and_there_are_no_utf16(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,label\nfi\0ne,1\n")
    with pytest.raises(DataError, match="NUL byte at byte 3"):
        list(open_table(path, Columns(text=("text",)), BadRows()).rows(["text"]))
    path.write_bytes(b"text,label\nfine,1\nba\0d,0\n")
    with pytest.raises(
        DataError, match=r"the one label '1' in its only row that can be used; 1 cannot, the first: .*:3: "
    ):
        csv_task(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0", "a zip archive, as Excel workbooks"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 100, "an old Excel or Word file, or one with a password"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture"),
        (b"GIF89a\x01\0\x01\0", "a GIF picture"),
        (gzip.compress(b"text,label\n", mtime=0), "compressed by gzip.*ends in .gz"),
        (b"PAR1\x15\x04\x15\x10", "a Parquet file"),
        (bytes(random.Random(0).choices([*range(1, 128)], k=500)), "control characters, such as 0x"),
    ],
)
def test_junk_in_a_table_is_named(content: bytes, what: str, tmp_path: Path) -> None:
    for name in ("a.csv", "a.tsv", "a.jsonl", "a.json", "a.txt"):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: .*{what}"):
            (lines if name == "a.txt" else table)(path)


def test_what_begins_like_such_a_file_and_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text in ("PAR1 is a word\n", "%PDF-1.4 is a format\n", "a\tb\x0c\x1b[1m\n"):
        path.write_text(text)
        assert lines(path) == text
