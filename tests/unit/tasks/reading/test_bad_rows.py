"""Every kind of bad file is refused with file, line, what was found and what to do; or counted, when asked for."""

from __future__ import annotations

import lzma
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import TASKS, load_split
from bertkit.tasks.reading import lines

TWEETS, SST2, IMDB, STSB = (TASKS[name] for name in ("tweets", "sst2", "imdb", "stsb"))
HEAD = b"text,sentiment\nfine,positive\n"  # line 3 comes next


def refused(path: Path, task: object, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        load_split(task, path, "train")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (HEAD + b"a,b,positive\n", r":3: the row has 3 fields, expected 2: \['text', 'sentiment'\]"),
        (HEAD + b"alone\n", r":3: the row has 1 field, expected 2"),
        (HEAD + b",positive\n", r":3: column 'text' is empty"),
        (HEAD + b'"  ",positive\n', r":3: column 'text' is empty"),
        (HEAD + b"good,\n", r":3: column 'sentiment' has no label"),
        (HEAD + b"good,positve\n", r":3: .*label 'positve' is not one of .*did you mean 'positive'"),
        (HEAD + b'"good,positive\nmore,negative\n', r":3: a double quote opened in this row is never closed"),
        (HEAD + b'"go"od,positive\n', r":3: wrong quoting"),
        (
            HEAD + b"caf\x81,positive\n",
            r":3: byte 4 of the line, 0x81, is not UTF-8.*--encoding ",
        ),
        (HEAD + b"a\0b,positive\n", r":3: a NUL byte at byte 2"),
        (HEAD + b"a\rb,positive\n", r":3: a carriage return without a line feed"),
        (b"", r"is empty"),
        (b"\n\n", r"is empty"),
        (b"text,sentiment\n", r"has the columns \['text', 'sentiment'\] but no rows"),
        (b"text,sentimant\na,positive\n", r"no label column 'sentiment'.*did you mean 'sentimant'.*--label"),
        (b"Texts,sentiment\na,positive\n", r"no text column 'text' \(did you mean 'Texts'\?\)"),
        (b"text,text,sentiment\na,b,positive\n", r":1: the header names column 'text' more than once"),
        (b"text|sentiment\na|positive\n", r":1: one column.*separated by '\|'.*delimiter='\|'"),
        (b"\xff\xfet\0e\0\0", r"not utf-16 after line 0"),
    ],
)
def test_bad_csv(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_bytes(content)
    refused(file, TWEETS, said)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"text": "a", "label": 1}\n{"text": "b", "label": \n', r":2: not a JSON object"),
        (b'{"text": "a", "label": 1}\n["b", 1]\n', r":2: expected a JSON object such as .* got a list"),
        (b'{"text": "a", "label": 1}\n{"label": 1}\n', r":2: column 'text' is empty"),
        (b'{"text": "a", "label": 1}\n{"text": 5, "label": 1}\n', r":2: column 'text' holds a int, 5, not a text"),
        (b'{"text": "a", "label": 1}\n{"text": "b"}\n', r":2: column 'label' has no label \(None\)"),
        (b'{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n', r":2: column 'label': label 2 is not one of"),
        (b'{"text": "a", "label": 1}\n{"text": "b", "label": NaN}\n', r":2: column 'label' has no label \(nan\)"),
        (b'[\n{"text": "a", "label": 1}\n]\n', r":1: not a JSON object.*one whole object per line"),
        (b'{"text": "a", "label": 1}\n{"text": "b \\ud83d", "label": 1}\n', r":2: .*half of a surrogate pair"),
        (b'{"text": "a", "label": 1}\n{"text": "b", "label": "\\uDFFF"}\n', r":2: .*half of a surrogate pair"),
        (b"[1]\n[2]\n", r":1: expected a JSON object"),
        (b"", r"is empty"),
    ],
)
def test_bad_json_lines(content: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(content)
    refused(file, IMDB, said)


def test_a_whole_surrogate_pair_is_a_character(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(b'{"text": "a \\ud83d\\ude00", "label": 1}\n{"text": "\\\\ud83d", "label": 0}\n')
    assert [row.text for row in load_split(IMDB, file, "train")] == ["a \U0001f600", "\\ud83d"]


def test_a_parquet_file_that_repeats_a_column_is_refused(tmp_path: Path) -> None:
    columns = [pa.array(["a", "b"]), pa.array([0, 1]), pa.array([1, 0])]
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "label", "label"]), tmp_path / "train.parquet")
    with pytest.raises(DataError, match="column 'label' more than once"):
        load_split(IMDB, tmp_path / "train.parquet", "train")


@pytest.mark.parametrize(
    ("score", "said"),
    [
        ("six", r":2: column 'score': score 'six' is not a number"),
        ("5.1", r":2: .*score '5.1' is not a finite number from 0 to 5"),
        ("1e39", r":2: .*score '1e39' is not a finite number"),
        ("nan", r":2: .*'nan' is not a finite number"),
        ("", r":2: column 'score' has no label"),
    ],
)
def test_bad_scores(score: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "train.tsv"
    file.write_text(f"sentence1\tsentence2\tscore\na\tb\t{score}\n")
    refused(file, STSB, said)


def test_damaged_files(tmp_path: Path) -> None:
    packed = lzma.compress(b"sentence\tlabel\n" + b"good\t1\n" * 1000)
    file = tmp_path / "train.tsv.xz"
    file.write_bytes(packed[:-30])
    refused(file, SST2, "damaged or cut short after line")
    file.write_bytes(b"sentence\tlabel\ngood\t1\n")
    refused(file, SST2, "damaged or cut short after line 0")
    table = tmp_path / "train.parquet"
    table.write_bytes(b"PAR1 and nothing else")
    refused(table, SST2, "not a readable Parquet file")
    (tmp_path / "dev.parquet").mkdir()
    with pytest.raises(DataError):
        load_split(SST2, tmp_path / "dev.parquet", "dev")


@pytest.mark.campaign
@pytest.mark.slow
def test_a_field_without_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "train.csv"
    long = "x" * 300_000  # over the csv module's own limit, a legitimate text
    file.write_text(f"text,sentiment\n{long},positive\n")
    assert len(load_split(TWEETS, file, "train")[0].text) == 300_000
    file.write_text('text,sentiment\n"' + "x\n" * 5_100_000 + ",positive\n")
    refused(file, TWEETS, r":2: a field has more than 10,000,000 characters.*left open")
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    table = tmp_path / "train.tsv"
    table.write_text("sentence\tlabel\n" + "y" * 2000 + "\t1\n")
    refused(table, SST2, r":2: a line of more than 1,000 bytes")


BAD_ROWS = HEAD + (
    b"a,b,positive\n"  # 3
    b",negative\n"  # 4
    b"good,\n"  # 5
    b"good,great\n"  # 6
    b"caf\x81,positive\n"  # 7
    b"a\0b,positive\n"  # 8
    b"last,negative\n"  # 9
)


def test_skipping_is_counted_with_reasons(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_bytes(BAD_ROWS)
    examples = load_split(TWEETS, file, "train", on_error="skip")
    assert [(row.text, row.row) for row in examples] == [("fine", 2), ("last", 9)]
    assert [(bad.where, bad.kind) for bad in examples.skipped] == [
        (f"{file}:3", "ragged row"),
        (f"{file}:4", "empty text"),
        (f"{file}:5", "missing label"),
        (f"{file}:6", "unknown label"),
        (f"{file}:7", "not UTF-8"),
        (f"{file}:8", "NUL"),
    ]
    assert all(bad.message.startswith(bad.where) for bad in examples.skipped)


def test_skipping_json(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_bytes(b'oops\n{"text": "a", "label": 1}\n[]\n{"text": "", "label": 1}\n{"text": "\x81", "label": 0}\n')
    examples = load_split(IMDB, file, "train", on_error="skip")
    assert [row.row for row in examples] == [2]
    assert [bad.kind for bad in examples.skipped] == ["not JSON", "not an object", "empty text", "not UTF-8"]


def test_skipping_does_not_skip_what_spoils_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_bytes(HEAD + b'"open,positive\nmore,negative\n')
    with pytest.raises(DataError, match="never closed"):
        load_split(TWEETS, file, "train", on_error="skip")
    file.write_bytes(b"text,sentiment\n,positive\n,negative\n")
    with pytest.raises(DataError, match=r"no row can be used; the first of 2: .*:2: column 'text' is empty"):
        load_split(TWEETS, file, "train", on_error="skip")
    with pytest.raises(ConfigError, match="on_error must be"):
        load_split(TWEETS, file, "train", on_error="ignore")


@pytest.mark.slow
def test_reading_is_linear(tmp_path: Path) -> None:
    """A guard against quadratic time (seconds and minutes apart), not a speed test."""
    file = tmp_path / "train.csv"
    file.write_text('text,sentiment\n"' + "a line\n" * 300_000 + '",positive\n' + "x,negative\n" * 100_000)
    start = time.perf_counter()
    assert len(load_split(TWEETS, file, "train")) == 100_001
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
def test_a_name_that_an_object_has_twice_is_refused(name: str, tmp_path: Path) -> None:
    """All but the last of the values would be lost."""
    rows = ['{"text": "a", "label": 1}', '{"text": "b", "label": 0, "text": "c"}']
    (tmp_path / name).write_text("\n".join(rows) if name.endswith("l") else f"[{','.join(rows)}]")
    where = r"train\.jsonl:2: not a JSON object" if name.endswith("l") else r"train\.json is not JSON"
    with pytest.raises(DataError, match=rf"{where}: it has 'text' more than once"):
        load_split(IMDB, tmp_path / name, "train")
