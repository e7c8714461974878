"""Each fault of a corpus is named with its place; skipped, it is counted and the rest is read."""

from __future__ import annotations

import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.data.corpus.documents import CorpusReport, read_documents
from bertkit.errors import DataError

GOOD = b"A good line\n"


def check(path: Path | str, message: str, kind: str, rest: list[list[str]]) -> CorpusReport:
    """Raises ``message``; with skipping, gives ``rest`` and counts one ``kind``."""
    with pytest.raises(DataError, match=message) as caught:
        list(read_documents(path, sentences="line"))
    assert "on_error='skip'" in str(caught.value)
    report = CorpusReport()
    found = read_documents([path, Path(__file__)], sentences="line", on_error="skip", report=report)
    kept = [list(document.sentences) for document in found if not document.source.startswith(__file__)]
    assert kept == rest
    assert dict(report.skipped) == {kind: 1}
    assert len(report.examples) == 1
    assert f"{kind} 1" in report.summary()
    return report


@pytest.mark.parametrize(
    ("line", "message", "kind"),
    [
        (b"caf\xe9 au lait", r"a\.txt:2: byte 4 of the line \(0xe9\) is not UTF-8.*iconv", "bad UTF-8"),
        (b"\xff\xfeA\x00", r"a\.txt:2: byte 1 .*looks like UTF-16", "bad UTF-8"),
        ("surrogate \udc80".encode(errors="surrogatepass"), r"a\.txt:2: byte 11", "bad UTF-8"),
        (b"nul \0 here", r"a\.txt:2: character 5 of the line is a NUL", "NUL"),
    ],
)
def test_bad_bytes(line: bytes, message: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n" + line + b"\nthree\nfour")
    # What stood before and after the bad line is not made neighbours.
    check(tmp_path / "a.txt", message, kind, [["one"], ["three", "four"]])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.XLSX"])
def test_a_table_is_not_read_as_lines_of_text(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"id,text,label\n1,A good line,x\n")
    check(tmp_path / name, "is a table, whose lines hold more than text; write its texts to a .txt file", "table", [])


def test_a_bad_last_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD + b"cut off in a charact\xc3")
    check(tmp_path / "a.txt", r"a\.txt:2: byte 21", "bad UTF-8", [["A good line"]])


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_a_line_of_100_megabytes_in_little_memory(suffix: str, tmp_path: Path) -> None:
    good = GOOD if suffix == ".txt" else b'{"text": "A good line"}\n'
    file = tmp_path / f"a{suffix}.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(good)
        for _ in range(100):
            packed.write(b"x" * 1_000_000)
        packed.write(b"\n" + good)
    tracemalloc.start()
    report = check(file, rf"a{suffix}\.gz:2: longer than 16 MiB", "line too long", [["A good line"]] * 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.bytes_read > 100_000_000
    places = [document.source for document in read_documents(file, on_error="skip")]
    assert places == [f"{file}:1", f"{file}:3"]
    assert peak < 64 * 2**20


def test_a_long_line_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD + b"y" * 2**24 + b"\n" + GOOD)
    # Documents of its own, for none may be longer than MAX_DOCUMENT_CHARS by more than one line.
    documents = read_documents(tmp_path / "a.txt", sentences="line")
    assert [len("".join(document.sentences)) for document in documents] == [11, 2**24, 11]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", r"a\.txt: there is nothing in it \(0 bytes of text\)"),
        ("a.txt", b" \n\n\t", r"a\.txt: there is no text in it"),
        ("a.txt.gz", gzip.compress(b"", mtime=0), r"a\.txt\.gz: there is nothing in it"),
        ("a.jsonl", b"\n", r"a\.jsonl: there is no text in it"),
        ("a.jsonl", b'{"text": " "}\n', r"a\.jsonl: there is no text in it"),
        ("a.xml", b"", r"a\.xml: there is nothing in it"),
    ],
)
def test_empty_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    check(tmp_path / name, message, "empty file", [])


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_bytes(GOOD)
    check(tmp_path / "corpsu.txt", r"no file '.*corpsu\.txt'.*did you mean 'corpus\.txt'", "missing file", [])
    check(str(tmp_path / "*.jsonl"), r"no file matches '.*\*\.jsonl'; check", "missing file", [])
    check("~typo/a.txt", r"no file '~typo/a.txt' \(looked in /.*\); check", "missing file", [])
    (tmp_path / "empty").mkdir()
    advice = r"name its files one by one: .* as plain text, or skip it"
    check(tmp_path / "empty", rf"folder .*empty has no file that ends in \.txt.*; {advice}", "empty folder", [])
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nowhere")
    check(tmp_path / "dangling.txt", r"cannot read .*dangling\.txt: No such file", "unreadable file", [])


def test_missing_files_are_noticed_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_documents(tmp_path / "nowhere.txt")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), pytest.param(".xz", lzma.compress, marks=pytest.mark.campaign)]
)
def test_damaged_archives(suffix: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    text = b"".join(b"line %d\n\n" % number for number in range(150_000))
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(pack(text)[:-5000])
    with pytest.raises(DataError, match=r"damaged or truncated after [\d,]+ bytes of text"):
        list(read_documents(file, sentences="line"))
    report = CorpusReport()
    found = list(read_documents(file, sentences="line", on_error="skip", report=report))
    assert dict(report.skipped) == {"damaged file": 1}
    assert 0 < len(found) < 150_000, "what came before the damage is kept"
    file.write_bytes(b"not packed at all")
    with pytest.raises(DataError, match=r"a\.txt\.\w+ is damaged"):
        list(read_documents(file))


@pytest.mark.parametrize("cut", [0.5, 0.999])
def test_damaged_zstd(cut: float, tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(b"".join(b"line %d\n\n" % number for number in range(50_000)))
    data = sink.getvalue().to_pybytes()
    (tmp_path / "a.txt.zst").write_bytes(data[: int(len(data) * cut)])
    with pytest.raises(DataError, match="damaged"):
        list(read_documents(tmp_path / "a.txt.zst", sentences="line"))
    (tmp_path / "a.txt.zst").write_bytes(b"not packed at all")
    with pytest.raises(DataError, match="damaged"):
        list(read_documents(tmp_path / "a.txt.zst"))


@pytest.mark.parametrize(
    ("row", "message", "kind"),
    [
        ("{'text': 1}", r"a\.jsonl:2: not a JSON object", "bad JSON"),
        ("[" * 100_000, r"a\.jsonl:2: not a JSON object", "bad JSON"),
        ('["text"]', r"a\.jsonl:2: expected a JSON object with the text, got a list", "bad JSON"),
        ('{"body": "x", "title": "y"}', r"a\.jsonl:2: no column 'text', there is 'body', 'title'", "no text column"),
        ('{"text": 7}', r"a\.jsonl:2: 'text' must be a string or a list of strings, got 7", "not text"),
        ('{"text": ["a", 7]}', r"a\.jsonl:2: 'text' must be .* got a list", "not text"),
        ('{"text": "a\\u0000b"}', r"a\.jsonl:2: 'text' has a NUL at character 2", "NUL"),
        ('{"text": "a\\ud800b"}', r"a\.jsonl:2: 'text' has half of a surrogate pair at character 2", "bad UTF-8"),
    ],
)
def test_bad_rows(row: str, message: str, kind: str, tmp_path: Path) -> None:
    good = json.dumps({"text": "good"})
    (tmp_path / "a.jsonl").write_text(f"{good}\n{row}\n{good}\n")
    check(tmp_path / "a.jsonl", message, kind, [["good"], ["good"]])


def test_a_named_column(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "no", "body": "yes"}\n{"text": "no"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: no column 'body', there is 'text'"):
        list(read_documents(tmp_path / "a.jsonl", text="body"))
    (document,) = read_documents(tmp_path / "a.jsonl", text="body", on_error="skip")
    assert document.sentences == ("yes",)


def test_bad_parquet(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "a": ["x"], "b": ["y"]}), file)
    check(file, r"no column 'text', there is 'id', 'a', 'b'; name the text column", "no text column", [])
    with pytest.raises(DataError, match="column 'id' holds int64, expected strings"):
        list(read_documents(file, text="id"))
    pq.write_table(pa.table({"text": ["x", "a\0b", "y"]}), file)
    check(file, r"a\.parquet:row 2: 'text' has a NUL", "NUL", [["x"], ["y"]])
    latin = pa.array([b"x", b"caf\xe9", b"y"]).view(pa.string())
    pq.write_table(pa.table({"text": latin}), file)
    check(file, r"a\.parquet:row 2: byte 4 of the text is not UTF-8", "bad UTF-8", [["x"], ["y"]])
    file.write_bytes(b"PAR1 but not really")
    check(file, r"a\.parquet cannot be read as Parquet after row 0", "damaged file", [])
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    check(tmp_path / "a.parquet.gz", "unpack it", "unreadable file", [])


def test_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\0")
    with pytest.raises(DataError, match=r"no document in '.*a\.txt': 0 documents.*skipped: NUL 1"):
        list(read_documents(tmp_path / "a.txt", on_error="skip"))
