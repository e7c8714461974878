"""What is written by other software comes back; held-out rows are a partition."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError
from bertkit.tasks import TASKS, Example, carve, csv_task, load_split
from bertkit.tasks.hold_out import text_key
from bertkit.tasks.text.task import TextTask

# Anything that a UTF-8 file can hold, except NUL; not only white space.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: bool(text.strip())
)
ROWS = st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["no", "yes"])), min_size=1, max_size=8)
PAIRS = TextTask("pairs", ("no", "yes"), ("accuracy",), "accuracy", Columns(text=("a",), text_pair=("b",)))


def came_back(path: Path, rows: list[tuple[str, str, str]]) -> None:
    read = load_split(PAIRS, path, "train")
    assert [(row.text, row.text_pair, PAIRS.labels[row.label]) for row in read] == rows


@given(ROWS, st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_csv_of_the_csv_module_comes_back(rows: list[tuple[str, str, str]], quote_all: bool, ending: str) -> None:
    # The csv module leaves a lone carriage return unquoted when lines end with \n: that file is not CSV any more.
    quote_all = quote_all or any("\r" in text for row in rows for text in row)
    written = []
    for row in [("a", "b", "label"), *rows]:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator=ending, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL).writerow(
            row
        )
        written.append(buffer.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.csv"
        path.write_text("".join(written), encoding="utf-8", newline="")
        came_back(path, rows)
        starts = [1 + "".join(written[:number]).count("\n") for number in range(1, len(written))]
        assert [row.row for row in load_split(PAIRS, path, "train")] == starts


@given(ROWS)
def test_json_lines_and_parquet_come_back(rows: list[tuple[str, str, str]]) -> None:
    records = [dict(zip(("a", "b", "label"), row, strict=True)) for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "train.jsonl"
        lines.write_text("".join(json.dumps(record) + "\n" for record in records))
        came_back(lines, rows)
        lines.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), "utf-8")
        came_back(lines, rows)
        table = Path(folder) / "train.parquet"
        pq.write_table(pa.Table.from_pylist(records), table)
        came_back(table, rows)


@given(st.lists(st.tuples(TEXT, TEXT).map(lambda pair: [t.replace("\t", " ").replace("\n", " ") for t in pair])))
def test_unquoted_tsv_comes_back(pairs: list[list[str]]) -> None:
    rows = [(first, second) for first, second in pairs if first.strip() and second.strip()]
    if not rows:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dev.tsv"
        text = "index\tsentence1\tsentence2\tlabel\n" + "".join(f"0\t{a}\t{b}\t1\n" for a, b in rows)
        path.write_text(text, encoding="utf-8", newline="")
        read = load_split(TASKS["wnli"], path, "dev")
        assert [(row.text, row.text_pair) for row in read] == rows


LABELLED = st.lists(st.tuples(st.sampled_from("abcdefghijklmnop"), st.integers(0, 2)), min_size=1, max_size=60)


@given(LABELLED, st.floats(0.05, 0.5), st.integers(0, 1000), st.booleans())
def test_carve_is_a_partition(pairs: list[tuple[str, int]], share: float, seed: int, scores: bool) -> None:
    rows = [Example(t, None, float(y) if scores else y, n) for n, (t, y) in enumerate(pairs)]
    try:
        stay, out = carve(rows, share, seed)
    except ValueError:
        return  # one text per label: nothing can be held out
    assert sorted([*stay, *out], key=lambda row: row.row) == rows
    assert not {text_key(row) for row in stay} & {text_key(row) for row in out}
    assert stay
    assert out
    if not scores:
        first = {}
        for row in rows:
            first.setdefault(row.text, row.label)
        for label in set(first.values()):
            texts = [text for text, found in first.items() if found == label]
            if len(texts) > 1:
                assert 0 < sum(row.text in texts for row in stay) < sum(row.text in texts for row in rows)


FRAGMENTS = st.sampled_from(
    b'text|,|\t|\n|\r\n|\r|"|""|label|sentence|a|0|1|\0|\xff|\xef\xbb\xbf|{|}|[|NaN|nan|2.5| |PAR1|'
    b"\xfd7zXZ\x00|\x1f\x8b|"
    b'{"text": "a", "label": 1}|{"text": "b", "label": 0}|text,label\n|sentence\tlabel\n|a,1\n|b\t0\n'.split(b"|")
)
NAMES = st.sampled_from(
    ["train.csv", "train.tsv", "train.jsonl", "train.parquet", "train.csv.gz", "train.tsv.xz", "train.jsonl.bz2"]
)


def survives(content: bytes, name: str, skip: bool) -> None:
    """Any bytes at all are read or refused by a DataError; any other exception is a bug."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        for make in (lambda: TASKS["sst2"], lambda: csv_task(path, on_error="skip" if skip else "raise")):
            try:
                rows = load_split(make(), path, "train", on_error="skip" if skip else "raise")
            except DataError:
                continue
            assert rows
            assert all(row.text.strip() and row.label is not None for row in rows)
            assert skip or not rows.skipped


@given(st.one_of(st.binary(max_size=60), st.lists(FRAGMENTS, max_size=25).map(b"".join)), NAMES, st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, name: str, skip: bool) -> None:
    survives(content, name, skip)


@pytest.mark.campaign
@given(st.one_of(st.binary(max_size=60), st.lists(FRAGMENTS, max_size=25).map(b"".join)), NAMES, st.booleans())
@settings(max_examples=30_000, deadline=None)
def test_campaign_any_bytes_are_read_or_refused(content: bytes, name: str, skip: bool) -> None:
    survives(content, name, skip)
