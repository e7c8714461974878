"""Files of texts that are compared: columns, bad rows, what the report says, the battery."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.cli.file_options import FileColumns
from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError
from bertkit.tasks import check_task, get_task
from bertkit.tasks.embeddings.reading import read_embeddings
from bertkit.tasks.embeddings.task import PAIRS, SCORED_PAIRS, TRIPLETS, EmbeddingTask
from bertkit.tasks.examples import Split
from bertkit.tasks.task_settings import TaskSettings
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization import BertTokenizer
from embedding_data import write_data


def read(
    task: EmbeddingTask, path: Path, text: str, split: Split = "train"
) -> list[tuple[tuple[str, ...], float | None]]:
    path.write_text(text)
    return [(row.texts, row.score) for row in read_embeddings(task, path, split)]


def test_columns_by_their_names(tmp_path: Path) -> None:
    assert read(PAIRS, tmp_path / "a.csv", "query,answer\na,b\n") == [(("a", "b"), None)]
    several = "id,anchor,positive,negative_1,negative_2,notes\n1,a,b,c,d,x\n"
    assert read(PAIRS, tmp_path / "b.csv", several) == [(("a", "b", "c", "d"), None)]
    assert read(TRIPLETS, tmp_path / "c.csv", "neg,positive,anchor\nc,b,a\n") == [(("a", "b", "c"), None)]
    table = "sentence1\tsentence2\tscore\na\tb\t4.5\n"
    assert read(SCORED_PAIRS, tmp_path / "d.tsv", table) == [(("a", "b"), 4.5)]
    assert read(SCORED_PAIRS, tmp_path / "e.tsv", "sentence1\tsentence2\na\tb\n", "test") == [(("a", "b"), None)]


def test_lists_of_negatives(tmp_path: Path) -> None:
    rows = [
        {"anchor": "a", "positive": "b", "negatives": ["c", "d"]},
        {"anchor": "e", "positive": "f", "negatives": []},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert [texts for texts, _ in read(PAIRS, tmp_path / "a.jsonl", text)] == [("a", "b", "c", "d"), ("e", "f")]
    with pytest.raises(DataError, match=r"a.jsonl:2: column 'negatives' holds 0 negatives, expected one"):
        read(TRIPLETS, tmp_path / "a.jsonl", text.replace('["c", "d"]', '["c"]'))


def test_columns_by_option(tmp_path: Path) -> None:
    columns = FileColumns(text="q", text_pair="p", negative="n,m")
    task = columns.of("pairs").task("pairs", tmp_path)
    assert isinstance(task, EmbeddingTask)
    assert read(task, tmp_path / "a.csv", "m,n,p,q\n4,3,2,1\n") == [(("1", "2", "3", "4"), None)]
    task = replace(task, negatives=("missing",))
    with pytest.raises(DataError, match="no negative column 'missing'"):
        read(task, tmp_path / "a.csv", "m,n,p,q\n4,3,2,1\n")
    scored = FileColumns(score="s").of("scored-pairs").task("scored-pairs", tmp_path)
    assert isinstance(scored, EmbeddingTask)
    assert scored.columns.label == ("s",)


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        (
            "scored-pairs",
            FileColumns(negative="n"),
            "does not take --negative, but task pairs does",
        ),
        ("pairs", FileColumns(score="s"), "does not take --score, but task scored-pairs"),
        (
            "pairs",
            FileColumns(label="y"),
            "does not take --label, but task csv does",
        ),
        ("sst2", FileColumns(text="y"), "does not take --text, but task csv does"),
        ("csv", FileColumns(score="s"), "task csv does not take --score"),
    ],
)
def test_options_of_other_tasks(task: str, columns: FileColumns, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        columns.of(task)


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        (PAIRS, "anchor,other\na,b\n", "no second text column 'positive'"),
        (PAIRS, "anchor,positive\na,b\n , c\n", "a.csv:3: column 'anchor' is empty"),
        (PAIRS, "anchor,positive,negative\na,b, B \n", "a.csv:2: column 'negative' holds the positive, 'b'"),
        (PAIRS, "anchor,positive,negative\na,b,\n", "a.csv:2: column 'negative' is empty"),
        (TRIPLETS, "anchor,positive\na,b\n", "one column of negatives, found none"),
        (TRIPLETS, "anchor,positive,neg_1,neg_2\na,b,c,d\n", r"found \['neg_1', 'neg_2'\]"),
        (SCORED_PAIRS, "text1,text2\na,b\n", "no score column"),
        (SCORED_PAIRS, "text1,text2,score\na,b,1\nc,d,NaN\n", "a.csv:3: column 'score': score 'NaN' is not a finite"),
        (SCORED_PAIRS, "text1,text2,score\na,b,inf\n", "a.csv:2: .* is not a finite number"),
        (SCORED_PAIRS, "text1,text2,score\na,b,high\n", "a.csv:2: .*'high' is not a number"),
        (SCORED_PAIRS, "text1,text2,score\na,b,\n", "a.csv:2: column 'score' has no score"),
        (PAIRS, "anchor,positive\n", "but no rows"),
    ],
)
def test_bad_files(task: EmbeddingTask, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        read(task, tmp_path / "a.csv", text)


def test_a_score_in_some_rows_of_test(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.csv:3: no score in column 'score', but other rows have it"):
        read(SCORED_PAIRS, tmp_path / "a.csv", "text1,text2,score\na,b,1\nc,d,\n", "test")


def test_metrics_of_a_task() -> None:
    with pytest.raises(ConfigError, match=r"unknown metric 'recal@1' \(did you mean 'recall@1'"):
        replace(PAIRS, main_metric="recal@1")
    with pytest.raises(ConfigError, match="not one of"):
        replace(SCORED_PAIRS, metrics=("pearson",))


@pytest.mark.parametrize("name", ["pairs", "triplets", "scored-pairs"])
def test_battery(name: str, tmp_path: Path) -> None:
    passed = check_task(get_task(name), write_data(tmp_path, name, train=30))
    assert sum("every loss is reported" in line for line in passed) == 2
    assert sum("bad rows by their place" in line for line in passed) == 2


def test_the_report(tmp_path: Path) -> None:
    lines = ["text1,text2,score", "a b,a c,0", "a b,a c,5", "c,c,2"]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]) + "\n")
    workflow, settings = workflow_of(SCORED_PAIRS), TaskSettings(max_length=3, loss="cosine")
    splits = {name: workflow.read(tmp_path, name) for name in ("train", "dev")}  # type: ignore[arg-type]
    tokenizer = BertTokenizer(tmp_path / "vocab.txt")
    encoded = {name: workflow.encode(rows, tokenizer, settings, labelled=True) for name, rows in splits.items()}
    text = workflow.report(splits, encoded, settings).render()
    assert "columns: 'text1' and 'text2'; score 'score'" in text
    assert "scores: 0 to 5, mean 2.33; scaled to cosines of 0 to 1 for the loss" in text
    assert text.count("scaled") == 1
    assert "1 row whose two texts are the same" in text
    assert "CONTRADICTIONS: 2 rows with the same texts but several scores" in text
    assert "50.0 % cut at 3" in text
    assert "LEAK: 3 of 3 dev rows" in text
    assert encoded["train"].truncated.tolist() == [True, True, False]


def test_prompts_stand_before_texts(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abqd"]) + "\n")
    tokenizer = BertTokenizer(tmp_path / "vocab.txt")
    rows = read_embeddings(PAIRS, _write(tmp_path / "x.csv", "anchor,positive\na,b\n"), "train")
    settings = TaskSettings(query_prompt="q ", document_prompt="d d ", max_length=9)
    found = workflow_of(PAIRS).encode(rows, tokenizer, settings, labelled=True)
    assert [tokenizer.decode(ids) for ids in found.texts] == ["[CLS] q a [SEP]", "[CLS] d d b [SEP]"]
    assert found.scores is None


def test_files_of_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("anchor,positive\ncafé,thé\n", encoding="cp1252")
    task = replace(PAIRS, columns=replace(PAIRS.columns, encoding="cp1252"))
    assert read_embeddings(task, tmp_path / "a.csv", "train")[0].texts == ("café", "thé")
    assert Columns(()).encoding is None


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_missing_column_is_told_with_all_columns_of_the_file(tmp_path: Path) -> None:
    """Also with those that were found already."""
    (tmp_path / "one.csv").write_text("text\nx\n")
    with pytest.raises(DataError, match=r"no second text column .*The columns are \['text'\]"):
        columns_of(tmp_path / "one.csv", "pairs")
    (tmp_path / "two.csv").write_text("anchor,positive\nx,y\n")
    with pytest.raises(DataError, match=r"found none. The columns are \['anchor', 'positive'\]"):
        columns_of(tmp_path / "two.csv", "triplets")


def columns_of(path: Path, task: str) -> None:
    read_embeddings(FileColumns().of(task).task(task, path), path, "train")
