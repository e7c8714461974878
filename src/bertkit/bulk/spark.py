"""``bertkit.spark``: a :class:`BatchPredictor` as a function of columns for Spark, and the schema of its answers.

Spark opens the model once a Python worker, with as many threads as ``spark.task.cpus``. Rows of an answer are those of
the call on a table; the last bits of numbers depend on ``spark.sql.execution.arrow.maxRecordsPerBatch``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.bulk.predictor import BatchPredictor
from bertkit.errors import require

if TYPE_CHECKING:
    import pyarrow as pa


def udf(model: str | Path, task: str | None = None, reads: Sequence[str] = ("text",), **settings: Any) -> Any:
    """A function of as many columns as ``reads`` has names, whose value is a struct of the answer's columns.

    ``df.withColumn("answer", bertkit.spark.udf("run")("review"))``, and then ``answer.predicted``.

    Args:
        model: as for :class:`bertkit.BatchPredictor`.
        task: likewise.
        reads: what the columns are read as, for example ``("question", "context")``.
        **settings: as for :class:`bertkit.BatchPredictor`.

    Raises:
        MissingExtraError: PySpark is not installed.
        InputError, CheckpointError: as for :class:`bertkit.BatchPredictor`; the model is opened here, for the columns.
    """
    import pyarrow as pa

    functions = require("pyspark.sql.functions", extra=None, needed_for="bertkit.spark")
    import pandas as pd

    predictor = BatchPredictor(model, task, {name: name for name in reads}, **settings)
    answers = list(predictor.output_schema(pa.schema([(name, pa.string()) for name in reads])))[len(reads) :]
    several = len(reads) > 1

    def answer(batches: Any) -> Any:
        for batch in batches:
            columns = batch if several else (batch,)
            given = pa.table([pa.Array.from_pandas(column) for column in columns], list(reads))
            yield predictor(given).select([field.name for field in answers]).to_pandas()

    taken = tuple[pd.Series, ...] if several else pd.Series
    answer.__annotations__ = {"batches": Iterator[taken], "return": Iterator[pd.DataFrame]}  # type: ignore[valid-type]
    # PySpark's predict_batch_udf stands on the same, but knows neither true and false nor lists and structs.
    return functions.pandas_udf(answer, _of_spark(pa.schema(answers)))


def schema(predictor: BatchPredictor, frame: Any) -> Any:
    """The schema of the answers, for ``df.mapInArrow(predictor.arrow_iterator, bertkit.spark.schema(predictor, df))``.

    Opens the model in this process, for the names and types of its columns.
    """
    types = require("pyspark.sql.pandas.types", extra=None, needed_for="bertkit.spark")
    return _of_spark(predictor.output_schema(types.to_arrow_schema(frame.schema)))


def _of_spark(found: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(found)
