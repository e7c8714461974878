"""A table in, the same table with answers out: of the library it came from, of a schema that no row changes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import bertkit
from bertkit import (
    BatchPredictor,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    pipeline,
)
from bertkit.bulk.answers import RunAnswers
from bertkit.bulk.bad_rows import Failure, answers_or_failures
from bertkit.errors import CheckpointError, DataError, InputError, TextError
from bertkit.inference.predict_table import predict_table
from bertkit.system import granted_cores as grants
from pipeline_helpers import save_tiny

TEXTS = ["good film", None, "the film was bad", " ", "good " * 100]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("texts"), BertForSequenceClassification, num_labels=2)


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_every_library_gets_its_own_kind_of_table_with_the_same_answers(texts: Path) -> None:
    predict = BatchPredictor(texts)
    given = table(n=[0, 1, 2, 3, 4], text=TEXTS, predicted=["by hand"] * 5)
    found = predict(given)
    names = ["bertkit_predicted", "probability", "p_LABEL_0", "p_LABEL_1", "truncated", "empty", "error"]
    assert found.column_names == ["n", "text", "predicted", *names]
    assert [row is None for row in found["error"].to_pylist()] == [True, False, True, False, True]
    assert found["truncated"].to_pylist() == [False, None, False, None, True]
    theirs = predict_table(texts, {"text": [TEXTS[0], TEXTS[2], TEXTS[4]]})
    answered = found.take([0, 2, 4])
    assert answered["bertkit_predicted"].to_pylist() == theirs["predicted"]
    np.testing.assert_allclose(answered["p_LABEL_1"].to_numpy(), theirs["p_LABEL_1"], atol=1e-4)
    assert len(set(answered["p_LABEL_1"].to_pylist())) == 3, "the control: the texts are told apart"
    batch = predict(given.to_batches()[0])
    assert isinstance(batch, pa.RecordBatch)
    assert pa.Table.from_batches([batch]) == found
    frame = given.to_pandas().set_index(pd.Index(list("abcde")))
    assert list(predict(frame).index) == list("abcde")
    for other in (pa.Table.from_pandas(predict(frame), preserve_index=False), predict(pl.from_arrow(given)).to_arrow()):
        for name in names:
            assert other[name].to_pylist() == found[name].to_pylist(), name
    arrays = predict({"n": np.arange(5), "text": np.array(TEXTS, object), "predicted": np.array(["by hand"] * 5)})
    np.testing.assert_array_equal(arrays["p_LABEL_1"], found["p_LABEL_1"].to_pandas())
    assert arrays["truncated"].tolist() == [False, False, False, False, True]


def test_the_schema_depends_on_task_and_model_only(texts: Path) -> None:
    predict = BatchPredictor(texts)
    given = table(text=TEXTS)
    schema = predict.output_schema(given.schema)
    for rows in (given, given.slice(0, 0), given.slice(1, 1), given.slice(0, 1)):
        assert predict(rows).schema == schema
    assert [each.schema for each in predict.arrow_iterator(given.to_batches(max_chunksize=2))] == [schema] * 3
    for frame in (given.to_pandas(), pl.from_arrow(given)):
        assert [str(kind) for kind in predict(frame).dtypes] == [str(kind) for kind in predict(frame[:0]).dtypes]


#: A model class, its settings, the task, and a table with a row that has an answer and one that has none.
KINDS: list[tuple[type, dict[str, Any], str, dict[str, list[Any]]]] = [
    (BertForSequenceClassification, {"num_labels": 1}, "text-classification", {"text": ["good", ""]}),
    (
        BertForSequenceClassification,
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        "text-classification",
        {"text": ["good", ""]},
    ),
    (
        BertForSequenceClassification,
        {"num_labels": 1},
        "text-ranking",
        {"query": ["good", None], "documents": [["bad", "good film"], ["a"]]},
    ),
    (BertForQuestionAnswering, {}, "question-answering", {"question": ["good", None], "context": ["a film", "a"]}),
    (
        BertForMultipleChoice,
        {},
        "multiple-choice",
        {"context": ["the film", None], "choices": [["good", "bad"], ["a", "b"]]},
    ),
    (
        BertForTokenClassification,
        {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}},
        "token-classification",
        {"text": ["good film of the end", " "]},
    ),
    (BertModel, {}, "feature-extraction", {"text": ["good film", None]}),
    (BertForMaskedLM, {}, "sparse-encoding", {"text": ["good film", None]}),
    (BertModel, {}, "sentence-similarity", {"text": ["good film", "a"], "text_pair": ["bad", None]}),
]


@pytest.mark.parametrize(("model_class", "settings", "task", "columns"), KINDS, ids=lambda value: str(value)[:24])
def test_each_task_keeps_its_schema_and_marks_what_it_cannot_answer(
    tmp_path: Path, model_class: type, settings: dict[str, Any], task: str, columns: dict[str, list[Any]]
) -> None:
    predict = BatchPredictor(save_tiny(tmp_path, model_class, **settings), task)
    given = table(**columns)
    found = predict(given)
    assert found.schema == predict(given.slice(0, 0)).schema == predict(given.slice(1)).schema
    added = found.drop_columns(list(columns))
    answer, failed = added.to_pylist()
    assert answer.pop("error") is None
    assert all(value is not None for value in answer.values()), answer
    assert failed.pop("error")
    assert not any(failed.values()), failed


def test_sparse_vectors_in_every_kind_of_table(tmp_path: Path) -> None:
    """The oracle is the pipeline."""
    model = save_tiny(tmp_path, BertForMaskedLM)
    given = table(text=["good film", None, "the film was bad"])
    found = BatchPredictor(model, "sparse-encoding")(given)
    rows = found["sparse"].to_pylist()
    theirs = pipeline("sparse-encoding", model)(["good film", "the film was bad"])
    for row, alone in zip((rows[0], rows[2]), theirs, strict=True):
        assert row["indices"] == alone.ids.tolist()
        assert row["values"] == pytest.approx(alone.weights.tolist(), abs=1e-5)
    assert rows[1] is None
    assert rows[0]["values"] != rows[2]["values"], "the control: texts are told apart"
    predict = BatchPredictor(model, "sparse-encoding")
    assert pa.Table.from_batches([predict(given.to_batches()[0])]) == found
    assert predict(pl.from_arrow(given)).to_arrow()["sparse"].to_pylist() == rows
    frame, arrays = predict(given.to_pandas()), predict({"text": np.array(given["text"].to_pylist(), object)})
    assert list(frame["sparse"]) == list(arrays["sparse"]) == rows
    (heaviest,) = BatchPredictor(model, "sparse-encoding", top_k=1)(given.slice(0, 1))["sparse"].to_pylist()
    assert heaviest["values"] == [pytest.approx(max(rows[0]["values"]), abs=1e-5)]


def test_vectors_are_those_of_the_pipeline_and_words_are_tagged(tmp_path: Path) -> None:
    given = table(text=["good film", None, "the end"])
    found = BatchPredictor(bertkit.system.model_sources.INCLUDED, "feature-extraction", normalize=True)(given)
    assert found.schema.field("vector").type == pa.list_(pa.float32(), 384)
    assert found["vector"].null_count == 1
    theirs = pipeline("feature-extraction", "bertkit-tiny-en")(
        ["good film", "the end"], pooling="model", normalize=True
    )
    np.testing.assert_allclose(np.stack(found.take([0, 2])["vector"].to_pylist()), np.stack(theirs), atol=1e-5)
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    tagger = save_tiny(tmp_path, BertForTokenClassification, id2label=labels)
    (row,) = BatchPredictor(tagger)(table(text=["the film was not good"]))["entities"].to_pylist()
    assert row, "the control: there are entities"
    assert all(entity["word"] == "the film was not good"[entity["start"] : entity["end"]] for entity in row)


@pytest.mark.slow
def test_a_predictor_is_small_and_opens_its_model_once_a_process(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = pickle.dumps(BatchPredictor(texts, threads=2))
    assert len(content) < 1000
    opened = []
    real = RunAnswers.__init__
    monkeypatch.setattr(RunAnswers, "__init__", lambda self, run: (opened.append(run), real(self, run))[1])
    copies = [pickle.loads(content) for _ in range(2)]
    first, second = (copy(table(text=["good"])) for copy in copies)
    assert first == second
    assert len(opened) == 1
    script = (
        "import pickle, sys, pyarrow as pa\n"
        "predict = pickle.loads(sys.stdin.buffer.read())\n"
        "print(predict(pa.table({'text': ['good']})).to_pylist())"
    )
    elsewhere = subprocess.run([sys.executable, "-c", script], input=content, capture_output=True, check=True)
    assert elsewhere.stdout.decode().strip() == str(first.to_pylist())


def test_a_worker_without_the_model_or_with_another_one_says_so(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification, num_labels=2)
    predict = BatchPredictor(folder)
    save_tiny(folder, BertForSequenceClassification, num_labels=3)
    with pytest.raises(CheckpointError, match="is not the one that the predictor was made with"):
        predict(table(text=["good"]))
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match=r"the worker on .* has no model .* all workers share"):
        predict(table(text=["good"]))


def test_the_row_at_which_a_model_fails_is_found(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict, given = BatchPredictor(texts, precision="fp32"), table(text=[f"good {n}" for n in range(37)])
    whole = predict(given)
    real, sizes = RunAnswers.cells, []

    def fails(self: RunAnswers, items: Any) -> Any:
        sizes.append(len(items))
        if any(item.text in ("good 7", "good 30") for item in items):
            raise RuntimeError("this text\nbreaks the model")
        return real(self, items)

    monkeypatch.setattr(RunAnswers, "cells", fails)
    found = predict(given)
    assert {n for n, said in enumerate(found["error"].to_pylist()) if said} == {7, 30}
    assert found["error"][7].as_py() == "this text breaks the model"
    good = [n for n in range(37) if n not in (7, 30)]
    assert found.take(good)["predicted"] == whole.take(good)["predicted"]
    assert sizes[-1] == 35
    assert len(sizes) < 30, "halving, not one by one"
    with pytest.raises(InputError, match=r"row 7 \(counted from 0\): this text breaks the model"):
        BatchPredictor(texts, precision="fp32", on_error="raise")(given)
    monkeypatch.setattr(RunAnswers, "cells", lambda self, items: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predict(given)


def test_failures_for_their_texts_are_marked_even_if_all_are() -> None:
    def answer(items: Any) -> Any:
        raise TextError(f"text 0 (counted from 0) has no mask: {items}")

    assert answers_or_failures(["a", "b"], answer) == [
        Failure(f"the text has no mask: {[each]}") for each in ("a", "b")
    ]
    assert answers_or_failures([], answer) == []


def test_what_is_no_table_or_lacks_a_column_is_named(texts: Path) -> None:
    predict = BatchPredictor(texts)
    with pytest.raises(DataError, match=r"no text column 'text' or 'sentence'.*The columns are"):
        predict(table(remark=["a"]))
    with pytest.raises(DataError, match=r"no column 'reviw' for 'text' \(did you mean 'review'"):
        BatchPredictor(texts, columns={"text": "reviw"})(table(review=["a"]))
    assert BatchPredictor(texts, columns={"text": "review"})(table(review=["a"]))["probability"].null_count == 0
    with pytest.raises(InputError, match="two columns 'text'"):
        predict(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"]))
    with pytest.raises(InputError, match="as many values each"):
        predict({"text": np.array(["a"]), "n": np.arange(2)})
    with pytest.raises(InputError, match=r"expected a pyarrow\.Table .* got a list"):
        predict(["a"])
    with pytest.raises(InputError, match=r"no task 'text-clasification' \(did you mean 'text-class"):
        BatchPredictor(texts, "text-clasification")
    with pytest.raises(InputError, match="names one column twice"):
        BatchPredictor(texts, columns={"text": "a", "text_pair": "a"})
    with pytest.raises(InputError, match="top_k: a run is read as in training"):
        BatchPredictor(texts, top_k=2)(table(text=["a"]))


def test_threads_are_as_many_as_are_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "usable_cores", lambda: 8)
    monkeypatch.setattr(grants, "CGROUP", tmp_path / "cpu.max")
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    assert grants.granted_cores() is None
    grants.CGROUP.write_text("max 100000\n")
    assert grants.granted_cores() is None
    grants.CGROUP.write_text("50000 100000\n")
    assert grants.granted_cores() == 1
    grants.CGROUP.write_text("300000 100000\n")
    assert grants.granted_cores() == 3
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "12")
    assert grants.granted_cores() == 8
