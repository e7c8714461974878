"""Files of queries and documents, negatives from a search, and what cannot be ordered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import check_task
from bertkit.tasks.examples import Examples
from bertkit.tasks.rerank.comparison import bm25_scores, comparison_table, means, query_values, random_values
from bertkit.tasks.rerank.negatives import add_negatives
from bertkit.tasks.rerank.reading import read_rerank
from bertkit.tasks.rerank.report import rerank_report
from bertkit.tasks.rerank.task import RERANK, RerankExample, RerankTask
from bertkit.tasks.task_settings import TaskSettings
from pipeline_helpers import save_tiny

A, B = RerankExample("q a", ("x", "y"), (1.0, 0.0)), RerankExample("q b", ("z", "x"), (0.0, 2.0))
LIST = [{"query": "q a", "documents": ["x", "y"], "labels": [1, 0]}]
LIST += [{"query": "q b", "documents": ["z", "x"], "labels": [0, 2.0]}]
SCATTERED = "question,passage,relevance\nq a,x,1\nq b,z,0\nq a,y,0\nq b,x,2\n"


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def plain(examples: Examples[RerankExample]) -> list[RerankExample]:
    return [replace(example, row=0, source="") for example in examples]


@pytest.mark.parametrize(("name", "content"), [("a.jsonl", lines(LIST)), ("a.csv", SCATTERED)])
def test_forms_of_files(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert plain(read_rerank(RERANK, tmp_path / name, "train")) == [A, B]


def test_positives_and_negatives_in_columns(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    rows = [{"anchor": "q", "positive": "x", "negative": "y", "id": 3}]
    rows += [{"anchor": "q", "positive": "z", "negative": None, "negative_2": "w", "id": 4}]
    file.write_text(lines(rows))
    (found,) = read_rerank(RERANK, file, "train")
    assert (found.documents, found.gains) == (("x", "y", "z", "w"), (1.0, 0.0, 1.0, 0.0))
    assert found.where == f"{file}:1"


def test_labels_of_a_test_file(tmp_path: Path) -> None:
    file = tmp_path / "test.csv"
    file.write_text("query,document\nq,x\nq,y\n")
    assert [example.gains for example in read_rerank(RERANK, file, "test")] == [None]
    with pytest.raises(DataError, match=r"no label column 'label'.*column 'positive'"):
        read_rerank(RERANK, file, "train")
    file.write_text("query,document,label\nq,x,-1\nq,y,-1\n")
    assert [example.gains for example in read_rerank(RERANK, file, "test")] == [None]
    file.write_text("query,document,label\nq,x,1\nr,y,\n")
    with pytest.raises(DataError, match="no label, but other rows have it"):
        read_rerank(RERANK, file, "test")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("q,x,-1", "expected how relevant the document is"),
        ("q,x,good", "expected how relevant the document is"),
        ("q,x,nan", "expected how relevant"),
        ("q,x,inf", "expected how relevant"),
        ("q,x,", "has no label"),
        ("q,,1", "column 'document' is empty"),
        (",x,1", "column 'query' is empty"),
        ("q0,d0,1", "the query has the document 'd0' in line 2 already"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, row: str, said: str) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"query,document,label\nq0,d0,1\n{row}\n")
    with pytest.raises(DataError, match=r"a\.csv:3: ") as error:
        read_rerank(RERANK, file, "train")
    assert said in str(error.value)
    kept = read_rerank(RERANK, file, "train", on_error="skip")
    assert (len(kept), len(kept.skipped)) == (1, 1)


def test_bad_lists(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for row, said in (
        ({"query": "q", "documents": ["x", "y"], "labels": [1]}, "2 documents in column 'documents', but 1 label in"),
        ({"query": "q", "documents": ["x", "x"], "labels": [1, 0]}, "in this row twice"),
        ({"query": "q", "documents": [], "labels": []}, "an empty list"),
        ({"query": "q", "documents": ["x"], "labels": 1}, "expected one for each"),
    ):
        file.write_text(lines([row]))
        with pytest.raises(DataError, match=said):
            read_rerank(RERANK, file, "train")


def test_battery(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(SCATTERED)
    (tmp_path / "dev.jsonl").write_text(lines(LIST))
    passed = check_task(RERANK, tmp_path)
    assert sum("perfect predictions" in line for line in passed) == 2


def examples(count: int = 12) -> Examples[RerankExample]:
    """Query n is about word n; its document has it, and so have two others of other queries."""
    words = [f"word{number}" for number in range(count)]
    texts = [f"{word} {words[(number + 1) % count]} {words[(number + 2) % count]}" for number, word in enumerate(words)]
    rows = [RerankExample(word, (text,), (1.0,)) for word, text in zip(words, texts, strict=True)]
    return Examples(rows, Path("x.csv"), "train")


def test_negatives_by_words() -> None:
    given = examples()
    found = add_negatives(given, 2, "bm25")
    for number, (before, after) in enumerate(zip(given, found, strict=True)):
        assert after.documents[0] == before.documents[0]
        assert after.gains == (1.0, 0.0, 0.0)
        assert set(after.documents[1:]) == {given[number - 1].documents[0], given[number - 2].documents[0]}
    assert (found.path, found.split) == (given.path, given.split)
    assert add_negatives(given, 5, "bm25")[0].documents == found[0].documents, "no more than share a word"
    assert add_negatives(given, 0, "bm25") is given


def test_a_relevant_document_in_other_letters_is_no_negative() -> None:
    given = examples()
    given.append(RerankExample("other", (given[0].documents[0].upper() + " ",), (1.0,)))
    assert all(
        text.casefold().strip() != given[0].documents[0] for text in add_negatives(given, 9, "bm25")[0].documents[1:]
    )


def test_negatives_by_vectors(tmp_path: Path) -> None:
    from bertkit import pipeline

    folder = save_tiny(tmp_path)
    texts = "the good film,a bad film,a great scene,the dull end,not very good,it was bad,of the start".split(",")
    given = Examples([RerankExample(f"{text} is", (text,), (1.0,)) for text in texts], Path("x.csv"), "train")
    found = add_negatives(given, 3, str(folder))
    pipe = pipeline("feature-extraction", model=folder, device="cpu", pooling="mean", normalize=True)
    vectors = np.stack(pipe(texts))
    for number, example in enumerate(found):
        cosines = vectors @ pipe(example.query)
        allowed = [n for n in np.argsort(-cosines).tolist() if cosines[n] < 0.95 * cosines[number]][:3]
        assert example.documents[1:] == tuple(texts[n] for n in allowed)
    assert any(len(example.documents) > 1 for example in found), "control"


def test_beside_bm25_and_no_order() -> None:
    given = add_negatives(examples(), 2, "bm25")
    given.append(RerankExample("nothing", ("to", "order"), (1.0, 1.0)))
    right = [gain for example in given for gain in example.gains or ()]
    assert means(query_values(RERANK, given, right)) == dict.fromkeys(RERANK.metrics, 1.0)
    assert np.isnan(query_values(RERANK, given, right)["mrr@10"][-1]), "any order of that query would be right"
    chance = means(random_values(RERANK, given))
    assert chance["mrr@10"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3, abs=0.06)
    assert chance["recall@10"] == 1.0
    assert bm25_scores(given)[0] == max(bm25_scores(given)[:3])
    table = comparison_table(RERANK, given, np.array(right, np.float32))
    assert "12 queries; left out: 1 query whose" in table
    assert [line.split("  ")[0] for line in table.splitlines()[1:5]] == [
        "model",
        "BM25",
        "random order",
        "model - BM25",
    ]


def test_what_cannot_be_ordered_is_refused() -> None:
    given = examples()
    lengths = {"train": np.arange(1, 13), "dev": np.arange(1, 13)}
    for splits, loss in (({"dev": given}, "pointwise"), ({"train": given}, "listwise")):
        with pytest.raises(DataError, match=r"none of the (dev|train) 12 queries.*negatives=N"):
            rerank_report(RERANK, splits, lengths, TaskSettings(rank_loss=loss))
    rerank_report(RERANK, {"train": given}, lengths, TaskSettings(rank_loss="pointwise"))
    with pytest.raises(ConfigError, match="none are asked for"):
        RerankTask("rerank", searcher="folder")
