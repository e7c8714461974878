"""The same documents come out of every kind of file, in the same order."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.corpus import documents as corpus
from bertkit.data.corpus import text_files as opening
from bertkit.data.corpus.documents import CorpusReport, read_documents
from bertkit.errors import DataError, InputError
from everyday import some

DOCUMENTS = [["One sentence", "Two, größer 中文"], ["Three"], ["Four 😀", "Five", "Six"]]
TEXT = "\n\n".join("\n".join(lines) for lines in DOCUMENTS) + "\n"
JSONL = "".join(json.dumps({"id": i, "text": "\n".join(lines)}) + "\n" for i, lines in enumerate(DOCUMENTS))


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
ONE_OF_PACKERS = some(PACKERS, [".gz"])


def sentences(path: Path | str | list[Path], **options: object) -> list[list[str]]:
    return [list(document.sentences) for document in read_documents(path, sentences="line", **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize(("suffix", "content"), [(".txt", TEXT), (".jsonl", JSONL)])
def test_every_packing(suffix: str, content: str, packing: str, tmp_path: Path) -> None:
    file = tmp_path / f"corpus{suffix}{packing}"
    file.write_bytes(PACKERS[packing](content.encode()))
    report = CorpusReport()
    assert sentences(file, report=report) == DOCUMENTS
    assert (report.files, report.documents, report.sentences) == (1, 3, 6)
    assert report.bytes_read == len(content.encode())
    assert not report.skipped


@pytest.mark.slow
@pytest.mark.parametrize("packing", ONE_OF_PACKERS)
def test_pipes(packing: str, tmp_path: Path) -> None:
    """What ``prepare <(zcat ...)`` gives: a name that can be read once, from beginning to end, and has no position."""
    text = "".join(f"line {number}\n\n" for number in range(200_000)).encode()
    assert len(text) > 2 * opening.CHUNK_BYTES
    pipe = tmp_path / f"corpus.txt{packing}"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(PACKERS[packing](text),))
    writer.start()
    report = CorpusReport()
    found = list(read_documents(pipe, sentences="line", report=report))
    writer.join()
    assert (len(found), found[-1].sentences) == (200_000, ("line 199999",))
    assert (report.bytes_read, report.file_bytes_read) == (len(text), 0)


@pytest.mark.parametrize("packing", [".gz", ".bz2", ".xz", ".zst"])
def test_archives_of_several_parts(packing: str, tmp_path: Path) -> None:
    """What ``cat a.gz b.gz`` and the multistream dumps of Wikipedia are."""
    file = tmp_path / os.fsdecode(b"corp\xffs.txt" + packing.encode())  # a name that is not UTF-8
    half = len(TEXT) // 2
    file.write_bytes(PACKERS[packing](TEXT[:half].encode()) + PACKERS[packing](TEXT[half:].encode()))
    assert sentences(file) == DOCUMENTS


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    rows = pa.array(["\n".join(lines) for lines in DOCUMENTS] * 300).cast(kind)
    pq.write_table(pa.table({"id": pa.array(range(900)), "body": rows}), tmp_path / "a.parquet", row_group_size=100)
    assert sentences(tmp_path / "a.parquet") == DOCUMENTS * 300
    found = list(read_documents(tmp_path / "a.parquet", text="body"))
    assert found[0].source == f"{tmp_path / 'a.parquet'}:row 1"
    assert found[899].source == f"{tmp_path / 'a.parquet'}:row 900"


def test_lists_of_sentences(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array([*DOCUMENTS, None, []], pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": lines}) + "\n" for lines in [*DOCUMENTS, None, []]))
    for name in ("a.parquet", "a.jsonl"):
        report = CorpusReport()
        assert sentences(tmp_path / name, report=report) == DOCUMENTS
        assert report.empty_rows == 2


@pytest.mark.parametrize("first", [None, "x"])
def test_the_text_column_is_found_once(tmp_path: Path, first: str | None) -> None:
    """JSON lines give what the same table gives as Parquet, whose columns are known from the beginning."""
    body = [first, "one", None, "two"]
    table = pa.table({"id": pa.array(range(4)), "body": pa.array(body), "score": pa.array([None, 0.5, None, 1.0])})
    pq.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    reports = CorpusReport(), CorpusReport()
    found = [sentences(tmp_path / f"a.{kind}", report=r) for kind, r in zip(("jsonl", "parquet"), reports, strict=True)]
    assert found[0] == found[1] == [[text] for text in body if text]
    assert reports[0].empty_rows == reports[1].empty_rows == body.count(None)


def test_columns_of_texts_are_not_mixed(tmp_path: Path) -> None:
    """The column of the first row that tells stays: a title is not a text because one row has nothing else."""
    rows = [{"id": 1, "body": "a"}, {"body": "b", "title": "B"}, {"id": 3, "title": "C"}, {"text": "d", "body": "e"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"a\.jsonl:3: no column 'body', there is 'id', 'title'"):
        sentences(tmp_path / "a.jsonl")
    assert sentences(tmp_path / "a.jsonl", on_error="skip") == [["a"], ["b"], ["e"]]
    (tmp_path / "b.jsonl").write_text(json.dumps({"id": None, "body": "a", "title": "A"}))
    with pytest.raises(DataError, match=r"b\.jsonl:1: no column 'text', there is 'id', 'body', 'title'"):
        sentences(tmp_path / "b.jsonl")


def test_a_column_that_was_null_is_no_reason_to_take_another(tmp_path: Path) -> None:
    """As the same tables as Parquet: which of two columns is the text nobody has said."""
    rows = [{"id": "a1", "body": None}, {"id": "a2", "body": "One text."}, {"id": "a3", "body": "Two."}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"a\.jsonl:2: no column 'text', there is 'id', 'body'"):
        sentences(tmp_path / "a.jsonl")
    rows = [{"title": "A", "body": "One."}, {"title": "B"}, {"title": "C", "body": "Three."}, {"text": "Four."}]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert sentences(tmp_path / "b.jsonl", on_error="skip") == [["Four."]]


def test_where_documents_begin(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\n \t\n\nA\nB\n \r\n\x0c\nC")
    assert [document.source for document in read_documents(file)] == [f"{file}:4", f"{file}:8"]


def test_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"\xef\xbb\xbfA\x85B\r\n\xe2\x80\xa8C\r\n\r\nD".replace(b"\x85", "\x85".encode()))
    assert sentences(file) == [["A\x85B", "C"], ["D"]], "only a line feed ends a line"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(TEXT, DOCUMENTS), ("\n" + JSONL, DOCUMENTS), ("\ufeff" + JSONL, DOCUMENTS), ("\ufeff" + TEXT, DOCUMENTS)],
)
def test_standard_input(content: str, expected: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(content.encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    found = list(read_documents("-", sentences="line"))
    assert [list(document.sentences) for document in found] == expected
    assert found[0].source.startswith("<stdin>:")
    assert not stream.closed


def test_patterns_folders_and_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/1.txt", "a.txt", "b/.hidden.txt", "b/notes.md", "b/[x].txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    both = [["b/1.txt"], ["b/2.txt"]]
    assert sentences(tmp_path / "b") == [*both, ["b/[x].txt"]]
    assert sentences(str(tmp_path / "b" / "?.txt")) == both
    assert sentences(str(tmp_path / "**" / "*.txt")) == [["a.txt"], *both, ["b/[x].txt"]]
    assert sentences(tmp_path / "b" / "[x].txt") == [["b/[x].txt"]], "an existing file is no pattern"
    assert sentences(tmp_path / "b" / "notes.md") == [["b/notes.md"]], "named one by one: plain text"
    twice = [tmp_path / "b" / "2.txt", tmp_path / "b", tmp_path / "a.txt"]
    assert sentences(twice) == [["b/2.txt"], ["b/1.txt"], ["b/[x].txt"], ["a.txt"]]


@given(
    documents=st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\n")), min_size=1), min_size=1, max_size=6
    ),
    chunk=st.integers(1, 40),
)
def test_text_round_trip(documents: list[list[str]], chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """For any text and wherever chunks are cut: the lines of Python's own ``split``, grouped at blank ones."""
    content = "\n\n".join("\n".join(lines) for lines in documents)
    expected: list[list[str]] = [[]]
    for line in content.removeprefix("\ufeff").split("\n"):
        if line.strip():
            expected[-1].append(line.strip())
        else:
            expected.append([])
    expected = [lines for lines in expected if lines]
    file = tmp_path_factory.mktemp("text") / "a.txt"
    file.write_bytes(content.encode())
    with pytest.MonkeyPatch.context() as patch:
        # A byte order mark is looked for at the start of the first line, which a chunk of one byte still holds whole.
        patch.setattr(opening, "CHUNK_BYTES", chunk)
        if expected:
            assert sentences(file) == expected
        else:
            with pytest.raises(DataError):
                sentences(file)


def test_long_documents_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MAX_DOCUMENT_CHARS", 10)
    (tmp_path / "a.txt").write_text("\n".join(["1234", "5678", "9", "x" * 30, "a", "", "b"]))
    report = CorpusReport()
    assert sentences(tmp_path / "a.txt", report=report) == [["1234", "5678", "9"], ["x" * 30], ["a"], ["b"]]
    assert report.cut_documents == 2


def test_arguments(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    with pytest.raises(InputError, match="'split' or 'line', got 'both'"):
        read_documents(tmp_path / "a.txt", sentences="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'raise' or 'skip'"):
        read_documents(tmp_path / "a.txt", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no corpus was named"):
        read_documents([])
    with pytest.raises(InputError, match="got ''"):
        read_documents("")


def test_real_text(shared: Path) -> None:
    """Counts as its SOURCE.md states them: 800 documents and 7,263 lines."""
    file = shared / "data/pretrain_text/wikipedia_en.valid.txt.xz"
    report = CorpusReport()
    documents = list(read_documents(file, sentences="line", report=report))
    assert len(documents) == report.documents == 800
    assert report.sentences == sum(len(document.sentences) for document in documents)
    assert report.bytes_read == 1_663_061
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        numbered = list(lines)
    for document in documents[::50]:
        first = int(document.source.rpartition(":")[2])
        assert numbered[first - 1].strip() == document.sentences[0]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ONE_OF_PACKERS)
def test_how_much_of_a_file_was_read(tmp_path: Path, suffix: str) -> None:
    """Bytes of the file as it lies on the disk, compressed or not: part of them on the way, all of them at the end."""
    draw = random.Random(0)
    text = "\n\n".join(draw.randbytes(500).hex() for _ in range(2000)).encode()
    path = tmp_path / f"c.txt{suffix}"
    path.write_bytes(PACKERS[suffix](text))
    report = CorpusReport()
    documents = read_documents(path, sentences="line", report=report)
    next(documents)
    size = path.stat().st_size
    assert 0 < report.file_bytes_read < size
    assert sum(1 for _ in documents) == 1999
    assert report.file_bytes_read == size
    assert report.bytes_read == len(text)


def test_how_much_of_a_parquet_file_was_read(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({"text": [f"document {n}" for n in range(1000)]}), path)
    report = CorpusReport()
    documents = read_documents(path, sentences="line", report=report)
    next(documents)
    assert report.file_bytes_read == path.stat().st_size * 256 // 1000
    assert sum(1 for _ in documents) == 999
    assert report.file_bytes_read == path.stat().st_size
