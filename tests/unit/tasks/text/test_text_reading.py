"""The official files are read as an independent reader reads them, with the official labels and exact lines."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
from collections import Counter
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import DataError
from bertkit.tasks import TASKS, get_task, load_split, splits_of

TEXTS = {
    "cola": ("sentence", None, "label"),
    "sst2": ("sentence", None, "label"),
    "mrpc": ("#1 String", "#2 String", "Quality"),
    "stsb": ("sentence1", "sentence2", "score"),
    "qqp": ("question1", "question2", "is_duplicate"),
    "rte": ("sentence1", "sentence2", "label"),
    "wnli": ("sentence1", "sentence2", "label"),
    "qnli": ("question", "sentence", "label"),
}
COUNTS = {  # the label counts that the data sets publish
    ("cola", "train"): {"acceptable": 6023, "unacceptable": 2528},
    ("cola", "dev"): {"acceptable": 721, "unacceptable": 322},
    ("rte", "train"): {"entailment": 1249, "not_entailment": 1241},
    ("rte", "dev"): {"entailment": 146, "not_entailment": 131},
    ("wnli", "train"): {"entailment": 312, "not_entailment": 323},
    ("wnli", "dev"): {"entailment": 31, "not_entailment": 40},
    ("mrpc", "train"): {"equivalent": 2474, "not_equivalent": 1194},
    ("mrpc", "dev"): {"equivalent": 279, "not_equivalent": 129},
    ("sst2", "train"): {"positive": 37569, "negative": 29780},
    ("sst2", "dev"): {"positive": 444, "negative": 428},
    ("qnli", "dev"): {"entailment": 2702, "not_entailment": 2761},
    ("imdb", "train"): {"negative": 5000, "positive": 5000},
    ("imdb", "test"): {"negative": 2500, "positive": 2500},
}
ORDERS = {
    "cola": ("unacceptable", "acceptable"),
    "sst2": ("negative", "positive"),
    "mrpc": ("not_equivalent", "equivalent"),
    "stsb": None,
    "qqp": ("not_duplicate", "duplicate"),
    "rte": ("entailment", "not_entailment"),
    "wnli": ("not_entailment", "entailment"),
    "qnli": ("entailment", "not_entailment"),
    "imdb": ("negative", "positive"),
    "tweets": ("negative", "neutral", "positive"),
}


def with_pandas(name: str, path: Path) -> pd.DataFrame:
    """GLUE as its own scripts read it: tabs, no quoting, nothing taken for missing."""
    options = {"sep": "\t", "quoting": csv.QUOTE_NONE, "keep_default_na": False, "dtype": str, "encoding": "utf-8-sig"}
    if name == "cola" and "test" not in path.name:
        options |= {"header": None, "names": ["source", "label", "star", "sentence"]}
    return pd.read_csv(path, **options)


#: Data sets of tens of thousands of rows are read in the campaign.
LARGE = ("sst2", "qqp", "qnli", "imdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.campaign) if name in LARGE else name for name in TEXTS]
)
def test_glue_equals_pandas(name: str, shared: Path) -> None:
    task = TASKS[name]
    text, pair, label = TEXTS[name]
    for split, path in splits_of(task, shared / "data" / "glue").items():
        rows = load_split(task, shared / "data" / "glue", split)
        frame = with_pandas(name, path)
        assert [row.text for row in rows] == frame[text].tolist()
        assert [row.text_pair for row in rows] == (frame[pair].tolist() if pair else [None] * len(rows))
        if split == "test":
            assert {row.label for row in rows} == {None}
        elif task.labels is None:
            assert [row.label for row in rows] == frame[label].astype(float).tolist()
        else:
            written = task.raw_labels or task.labels
            assert [written[row.label] for row in rows] == frame[label].tolist()


def test_tweets_equal_pandas(shared: Path) -> None:
    task = TASKS["tweets"]
    for split, path in splits_of(task, shared / "data").items():
        rows = load_split(task, shared / "data", split)
        frame = pd.read_csv(path, keep_default_na=False, dtype=str)
        assert [row.text for row in rows] == frame["text"].tolist()
        assert [task.labels[row.label] for row in rows] == frame["sentiment"].tolist()


def test_imdb_equals_json(shared: Path) -> None:
    with lzma.open(shared / "data/imdb/test.jsonl.xz", "rt", encoding="utf-8") as stream:
        records = [json.loads(line) for line in stream]
    rows = load_split(TASKS["imdb"], shared / "data", "test")
    assert [(row.text, row.label) for row in rows] == [(record["text"], record["label"]) for record in records]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "split"),
    [pytest.param(*each, marks=pytest.mark.campaign) if each[0] in LARGE else each for each in COUNTS],
)
def test_published_label_counts(name: str, split: str, shared: Path) -> None:
    task = TASKS[name]
    rows = load_split(task, shared / "data", split)
    assert Counter(task.labels[row.label] for row in rows) == COUNTS[name, split]


def test_official_label_orders() -> None:
    assert {name: task.labels for name, task in TASKS.items()} == ORDERS


def test_rows_are_line_numbers(shared: Path) -> None:
    lines = (shared / "data/glue/MRPC/dev.tsv").read_text(encoding="utf-8-sig").split("\n")
    for row in load_split(TASKS["mrpc"], shared / "data", "dev"):
        assert lines[row.row - 1].split("\t")[3:] == [row.text, row.text_pair]


def test_csv_rows_are_line_numbers_across_quoted_line_breaks(tmp_path: Path) -> None:
    file = tmp_path / "train.csv"
    file.write_text('text,sentiment\n"one\ntwo\n\nthree",neutral\nfour,positive\n\n"fi,ve",negative\n')
    rows = load_split(TASKS["tweets"], file, "train")
    assert [(row.row, row.text) for row in rows] == [(2, "one\ntwo\n\nthree"), (6, "four"), (8, "fi,ve")]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".gz", ".bz2"])
def test_every_compression_byte_order_mark_and_line_ending(suffix: str, mark: str, ending: str, tmp_path: Path) -> None:
    content = (mark + ending.join(["sentence\tlabel", 'a "quoted\u2028 word\x85\t1', "été \t0", ""])).encode()
    pack = {"": bytes, ".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[suffix]
    file = tmp_path / f"dev.tsv{suffix}"
    file.write_bytes(pack(content))
    rows = load_split(TASKS["sst2"], tmp_path, "dev")
    # U+2028 and U+0085 end lines for str.splitlines, not in a file
    assert [(row.text, row.label, row.row) for row in rows] == [('a "quoted\u2028 word\x85', 1, 2), ("été ", 0, 3)]


def test_last_line_without_an_ending(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\ngood\t1")
    assert len(load_split(TASKS["sst2"], tmp_path, "dev")) == 1


@pytest.mark.parametrize("name", ["train.parquet", "train.parquet.gz"])
def test_the_hub_copies_of_glue(name: str, tmp_path: Path) -> None:
    table = pa.table({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [0, 1], "idx": [0, 1]})
    pq.write_table(table, tmp_path / "plain")
    content = (tmp_path / "plain").read_bytes()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    rows = load_split(TASKS["rte"], tmp_path, "train")
    assert [(row.text, row.text_pair, row.label, row.row) for row in rows] == [("a", "c", 0, 1), ("b", "d", 1, 2)]
    hidden = pa.table({"sentence1": ["a"], "sentence2": ["c"], "label": [-1]})
    pq.write_table(hidden, tmp_path / "test.parquet")
    assert load_split(TASKS["rte"], tmp_path, "test")[0].label is None
    pq.write_table(hidden, tmp_path / "dev.parquet")
    with pytest.raises(DataError, match="label -1 is not one of"):
        load_split(TASKS["rte"], tmp_path, "dev")


def test_a_number_counts_as_a_label_only_where_the_hub_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "a", "sentiment": 1}\n')
    with pytest.raises(DataError, match="label 1 is not one of 'negative', 'neutral', 'positive'"):
        load_split(TASKS["tweets"], tmp_path, "train")


def test_a_test_file_may_have_labels(tmp_path: Path) -> None:
    file = tmp_path / "test.csv"
    file.write_text("text,sentiment\ngood,positive\nbad,negative\n")
    assert [row.label for row in load_split(TASKS["tweets"], file, "test")] == [2, 0]
    file.write_text("text\ngood\nbad\n")
    assert [row.label for row in load_split(TASKS["tweets"], file, "test")] == [None, None]
    file.write_text("text,sentiment\ngood,positive\nbad,\n")
    with pytest.raises(DataError, match=r"test\.csv:3: .*no label in column 'sentiment', but other rows .*\(1 of 2\)"):
        load_split(TASKS["tweets"], file, "test")


def test_an_empty_second_question_is_part_of_qqp(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "train.tsv").write_text(header + "1\t1\t2\tHow can I?\t\t0\n")
    assert load_split(TASKS["qqp"], tmp_path, "train")[0].text_pair == ""
    (tmp_path / "train.tsv").write_text(header + "1\t1\t2\t\tHow?\t0\n")
    with pytest.raises(DataError, match="'question1' is empty"):
        load_split(TASKS["qqp"], tmp_path, "train")


def test_labels_that_the_first_row_of_a_json_test_file_lacks_are_not_lost(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    file.write_text('{"text": "a"}\n{"text": "b", "sentiment": "positive"}\n')
    with pytest.raises(DataError, match=r":1: no label in column 'sentiment', but other rows .*\(1 of 2\)"):
        load_split(TASKS["tweets"], file, "test")
    file.write_text('{"text": "a"}\n{"text": "b"}\n')
    assert [row.label for row in load_split(TASKS["tweets"], file, "test")] == [None, None]
    file.write_text('{"sentence1": "a", "sentence2": "b", "label": "neutral"}\n')
    assert load_split(get_task("mnli"), file, "test")[0].label == 1
