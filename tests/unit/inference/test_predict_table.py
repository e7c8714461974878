"""Columns in, columns out: the same answers as for files and from pipelines, for every kind of run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertkit import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    pipeline,
)
from bertkit.bulk.planner import predict_file
from bertkit.errors import DataError, InputError
from bertkit.inference.predict_table import predict_table
from bertkit.inference.runs import open_run
from bertkit.tasks import Columns, TokenTask, get_task
from bertkit.tasks.registry import Task
from pipeline_helpers import save_tiny

TEXTS = ["good film", "", "the film was bad", "good " * 100]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("texts"), BertForSequenceClassification, num_labels=2)


def run_of(folder: Path, model_class: type, task: Task, **changes: Any) -> Any:
    return open_run(save_tiny(folder, model_class, **changes), task)


def test_columns_are_kept_and_those_of_the_answers_are_added(texts: Path, tmp_path: Path) -> None:
    given = {"n": np.arange(4), "text": TEXTS, "predicted": ["by hand"] * 4}
    found = predict_table(texts, given)
    assert found["n"] is given["n"]
    assert found["predicted"] is given["predicted"]
    names = ["n", "text", "predicted", "bertkit_predicted", "probability", "p_LABEL_0", "p_LABEL_1"]
    assert list(found) == [*names, "truncated", "empty"]
    assert found["truncated"].tolist() == [False, False, False, True]
    assert found["empty"].tolist() == [False, True, False, False]
    assert [each is None for each in found["bertkit_predicted"]] == [False, True, False, False]
    np.testing.assert_allclose(found["p_LABEL_0"] + found["p_LABEL_1"], [1, np.nan, 1, 1], atol=1e-6)
    source = tmp_path / "in.csv"
    rows = (f'{number},"{text}",by hand\n' for number, text in enumerate(TEXTS))
    source.write_text("n,text,predicted\n" + "".join(rows), encoding="utf-8")
    predict_file(texts, source, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert list(table) == list(found)
    assert table["bertkit_predicted"] == found["bertkit_predicted"]
    np.testing.assert_allclose(np.array(table["p_LABEL_0"], float), found["p_LABEL_0"], atol=1e-6)


def test_names_that_differ_by_case_alone_are_taken(texts: Path, tmp_path: Path) -> None:
    """Spark, SQL and tables of Excel would find two columns of one name."""
    given = {"Text": TEXTS, "PROBABILITY": [0.0] * 4, "Bertkit_Empty": [1] * 4, "EMPTY": [2] * 4}
    found = predict_table(texts, given, Columns(text=("Text",)))
    source = tmp_path / "in.csv"
    rows = (f'"{text}",0.0,1,2\n' for text in TEXTS)
    source.write_text(",".join(given) + "\n" + "".join(rows), encoding="utf-8")
    predict_file(texts, source, tmp_path / "out.parquet", Columns(text=("Text",)))
    table = pq.read_table(tmp_path / "out.parquet").to_pydict()
    added = ["predicted", "bertkit_probability", "p_LABEL_0", "p_LABEL_1", "truncated", "bertkit_bertkit_empty"]
    assert list(found) == [*given, *added]
    assert list(table) == [*given, "bertkit_text", *added]  # files have what was read as well
    assert len({name.lower() for name in table}) == len(table)
    assert found["EMPTY"] is given["EMPTY"]
    assert table["EMPTY"] == ["2"] * 4
    assert table["bertkit_bertkit_empty"] == [False, True, False, False]


def test_the_order_of_rows_is_that_of_the_answers(texts: Path) -> None:
    loaded = open_run(texts)
    there, back = (predict_table(loaded, {"text": rows})["p_LABEL_1"] for rows in (TEXTS, TEXTS[::-1]))
    np.testing.assert_allclose(there, back[::-1], atol=1e-6)
    assert len(set(np.round(there, 6))) > 1, "the control: the texts are told apart"


def test_what_is_no_table_of_texts_is_named(texts: Path) -> None:
    loaded = open_run(texts)
    assert predict_table(loaded, {"text": []}) == {"text": []}
    with pytest.raises(InputError, match="as many values each"):
        predict_table(loaded, {"text": ["a"], "n": [1, 2]})
    with pytest.raises(DataError, match="no text column 'text' or 'sentence'"):
        predict_table(loaded, {"remark": ["a"]})
    with pytest.raises(InputError, match=r"'text' of row 1 \(counted from 0\) is missing \(nan\)"):
        predict_table(loaded, {"text": ["a", float("nan")]})
    assert len(predict_table(loaded, {"review": ["a"]}, Columns(text=("review",)))["probability"]) == 1


def test_choices(tmp_path: Path) -> None:
    run = run_of(tmp_path, BertForMultipleChoice, get_task("swag"))
    asked = {"context": ["the film", "the end"], "choices": [["good", "bad"], np.array(["great start", "an end"])]}
    found = predict_table(run, asked)
    pipe = pipeline("multiple-choice", model=tmp_path, precision="fp32")
    for row in range(2):
        one = pipe(asked["context"][row], list(asked["choices"][row]))
        assert found["predicted"][row] == one["index"]
        np.testing.assert_allclose(found["probabilities"][row], one["scores"], atol=1e-5)
    with pytest.raises(InputError, match=r"row 0 \(counted from 0\) must be a dict with 'context' and 'choices'"):
        predict_table(run, {"context": ["the film"]})


def test_questions(tmp_path: Path) -> None:
    run = run_of(tmp_path, BertForQuestionAnswering, get_task("squad"))
    asked = {"id": ["a", "b"], "question": ["good film", "the end"], "context": ["the film was good " * 3, "an end"]}
    found = predict_table(run, asked)
    assert found["id"] is asked["id"]
    for answer, start, end, context in zip(
        *(found[name] for name in ("predicted", "start", "end", "context")), strict=True
    ):
        assert answer
        assert answer == context[start:end]
    pipe = pipeline("question-answering", model=tmp_path, precision="fp32")
    said = pipe(asked["question"], asked["context"], align_to_words=False)
    assert found["predicted"] == [one["answer"] for one in said]


def test_documents(tmp_path: Path) -> None:
    run = run_of(tmp_path, BertForSequenceClassification, get_task("rerank"), num_labels=1)
    asked = {"query": ["good film", "the end"], "documents": [["bad", "good start", "film"], ["an end"]]}
    found = predict_table(run, asked)
    pipe = pipeline("text-ranking", model=tmp_path, precision="fp32")
    for row in range(2):
        ranked = pipe(asked["query"][row], asked["documents"][row])
        assert found["predicted"][row] == [one["index"] for one in ranked]


def test_words(tmp_path: Path) -> None:
    task = TokenTask("ner", ("PER", "LOC"))
    run = run_of(tmp_path, BertForTokenClassification, task, id2label=task.id2label)
    asked = {"tokens": [["good", "film"], ["the"]]}
    found = predict_table(run, asked)
    assert [len(tags) for tags in found["predicted"]] == [2, 1]
    assert {tag for tags in found["predicted"] for tag in tags} <= set(task.labels)
    with pytest.raises(InputError, match="must be a list of words, got str"):
        predict_table(run, {"tokens": ["good film"]})
    with pytest.raises(InputError, match=r"task ner is predicted from tokens; the columns are \['text'\]"):
        predict_table(run, {"text": ["good film"]})
