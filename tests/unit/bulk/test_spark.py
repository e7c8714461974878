"""``bertkit.spark`` in a Spark of this machine: a function of one column and of several says what one call says."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bertkit
from bertkit import BatchPredictor, BertForMaskedLM, BertForQuestionAnswering, BertForSequenceClassification, BertModel
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.campaign
FIRST = ["good film", None, "the film was bad", "good " * 100, "the end"]
SECOND = ["bad", "the film", None, "good film", "the film was long"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("Spark needs a JVM")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.chdir(tmp_path_factory.mktemp("spark"))
        builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        yield session
        session.stop()


@pytest.mark.parametrize(
    ("model_class", "settings", "task", "reads"),
    [
        (BertForSequenceClassification, {"num_labels": 2}, None, ("text",)),
        (BertModel, {}, "feature-extraction", ("text",)),
        (BertForMaskedLM, {}, "sparse-encoding", ("text",)),
        (BertModel, {}, "sentence-similarity", ("text", "text_pair")),
        (BertForQuestionAnswering, {}, "question-answering", ("context", "question")),
    ],
)
def test_a_function_of_columns_says_what_one_call_says(
    spark: Any, tmp_path: Path, model_class: type, settings: dict[str, Any], task: str | None, reads: tuple[str, ...]
) -> None:
    model = save_tiny(tmp_path, model_class, **settings)
    rows = [(number, *each) for number, each in enumerate(zip(FIRST, SECOND, strict=True))]
    frame = spark.createDataFrame(rows, "n int, first string, second string").repartition(2)
    answer = bertkit.spark.udf(model, task, reads)(*("first", "second")[: len(reads)])
    found = frame.withColumn("answer", answer).select("n", "answer.*").orderBy("n").collect()
    given = pa.table(dict(zip(reads, (FIRST, SECOND), strict=False)))
    expected = BatchPredictor(model, task, {name: name for name in reads})(given).drop_columns(list(reads)).to_pylist()
    assert any(row["error"] for row in expected)
    assert any(row["error"] is None for row in expected)
    for row, wanted in zip(found, expected, strict=True):
        said = row.asDict(recursive=True)
        del said["n"]
        assert said.keys() == wanted.keys()
        for name, value in wanted.items():
            if isinstance(value, dict):  # weights of words
                assert said[name]["indices"] == value["indices"]
                assert said[name]["values"] == pytest.approx(value["values"], abs=1e-5)
            else:
                assert said[name] == (pytest.approx(value, abs=1e-5) if name != "error" else value), name
