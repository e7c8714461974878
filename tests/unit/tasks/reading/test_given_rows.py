"""Rows in memory are read as the same rows of a file are, and a bad row is named as its owner counts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tasks import ner_task, task_of
from bertkit.tasks.reading.given_rows import given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES, splits_of
from bertkit.tasks.registry import KINDS, form_of
from bertkit.tasks.workflow import workflow_of

#: Rows of each kind of task, with cells of every type that its files may hold.
ROWS: dict[str, list[dict[str, Any]]] = {
    "csv": [
        {"id": n, "text": f"text {n} é", "pair": None if n % 2 else "x", "label": [True, 1, 1.0, "b"][n % 4]}
        for n in range(12)
    ],
    "ner": [{"tokens": ["Ann", f"w{n}"], "ner_tags": ["B-PER", "O"]} for n in range(6)],
    "squad": [
        {"id": str(n), "question": "who?", "context": f"Ann {n}", "answers": {"text": ["Ann"], "answer_start": [0]}}
        for n in range(6)
    ],
    "swag": [{"sent1": "a", "sent2": "b", "ending0": f"c{n}", "ending1": "d", "label": n % 2} for n in range(6)],
    "rerank": [{"query": f"q{n // 2}", "document": f"d{n}", "label": n % 2} for n in range(6)],
    "summarize": [{"text": f"a long text {n}", "summary": f"text {n}"} for n in range(6)],
    "pairs": [{"question": f"q{n}", "answer": f"a{n}", "negative": ["x", f"y{n}"]} for n in range(6)],
    "scored-pairs": [{"sentence1": f"a{n}", "sentence2": f"b{n}", "score": n / 3} for n in range(6)],
    "triplets": [{"anchor": f"a{n}", "positive": f"b{n}", "negative": f"c{n}"} for n in range(6)],
    "sparse-pairs": [{"question": f"q{n}", "answer": f"a{n}"} for n in range(6)],
}
OPTIONS: dict[str, dict[str, str]] = {"pairs": {"text": "question", "text_pair": "answer"}}
OPTIONS["sparse-pairs"] = OPTIONS["pairs"]


class Hub:
    """Columns as a dataset of the library ``datasets`` gives them, whose labels are numbers with names."""

    features: ClassVar = {"label": type("ClassLabel", (), {"names": ["no", "yes"]})(), "text": object()}
    column_names: ClassVar = ["text", "label"]

    def __getitem__(self, name: str) -> list[Any]:
        return {"text": ["a", "b", "c"], "label": [0, 1, 1]}[name]


#: Ways to hold the same rows.
FORMS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "records": lambda rows: rows,
    "iterator": iter,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "arrays": lambda rows: {name: pd.Series([row[name] for row in rows]) for name in rows[0]},
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda rows: pd.DataFrame(rows).convert_dtypes(),
    "pandas, other index": lambda rows: pd.DataFrame(rows, index=[f"r{n}" for n in range(len(rows))]),
    "polars": pl.DataFrame,
    "polars, lazy": pl.LazyFrame,
    "arrow": pa.Table.from_pylist,
}


def _path(rows: Any) -> Path:
    return Path(path) if isinstance(path := given_data(rows, None, SPLIT_NAMES), str) else path


def _content(task: str, data: Path) -> list[object]:
    made = task_of(task, data, **OPTIONS.get(task, {}))
    workflow = workflow_of(made)
    return [workflow.content(example) for example in workflow.read(data, "train")]


@pytest.mark.parametrize("task", ROWS)
def test_rows_of_every_kind_are_read_as_those_of_a_file(task: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS[task]))
    expected = _content(task, file)
    assert len(expected) == len({row.get("query", number) for number, row in enumerate(ROWS[task])})
    assert _content(task, _path(ROWS[task])) == expected


def test_every_kind_that_reads_files_is_here() -> None:
    assert {form_of(task) for task in ROWS} == KINDS.keys() - {"multi"}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_every_form_are_read_alike(form: str) -> None:
    rows = [{"text": f"text {n}", "label": n % 3, "share": n / 2, "day": "x"} for n in range(9)]
    assert _content("csv", _path(FORMS[form](rows))) == _content("csv", _path(rows))
    assert _content("ner", _path(FORMS[form](ROWS["ner"]))) == _content("ner", _path(ROWS["ner"]))


def test_names_of_labels_come_with_a_dataset_and_with_its_table() -> None:
    notes = json.dumps({"info": {"features": {"label": {"names": ["no", "yes"]}}}})
    table = pa.table({"text": ["a", "b", "c"], "label": [0, 1, 1]})
    for rows in (Hub(), table.replace_schema_metadata({"huggingface": notes})):
        path = _path(rows)
        assert task_of("csv", path).labels == ("no", "yes")  # type: ignore[attr-defined]
        assert [each.label for each in workflow_of(task_of("csv", path)).read(path, "train")] == [0, 1, 1]
    assert task_of("csv", _path(table)).labels == ("0", "1")  # type: ignore[attr-defined]


TEXTS = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            {"text": TEXTS, "label": ["x", np.nan, "y", "x"]},
            r"row 1 \(counted from 0\): column 'label' has no label.*Correct the data,",
        ),
        ({"text": TEXTS, "label": ["x", "y", None, "x"]}, r"row 2 \(counted from 0\): column 'label' has no label"),
        ({"text": TEXTS, "label": pd.array(["x", "y", pd.NA, "x"])}, r"row 2 \(counted from 0\).* no label \(None"),
        ({"text": ["a", "b", "c", " "], "label": list("xyxy")}, r"row 3 \(counted from 0\): column 'text' is empty"),
        ({"text": ["a", 3, "c", "d"], "label": list("xyxy")}, r"row 1 \(counted from 0\): column 'text' holds a int"),
        ({"text": ["a", "\ud83d", "c", "d"], "label": list("xyxy")}, r"row 1 \(counted from 0\).*half"),
        ({"text": TEXTS, "label": list("xyx")}, "columns differ in length.*4 text.*3 label"),
        ({"text": TEXTS, "label": list("xxxx")}, "holds the one label 'x'"),
        ({"texts": TEXTS, "label": list("xyxy")}, r"is it 'texts'"),
        (pd.DataFrame([["a", "b", "x"]], columns=["text", "text", "label"]), "column 'text' more than once"),
        (pd.DataFrame({"text": [], "label": []}), "<data> has no rows"),
        ([], "<data> has no rows"),
        (pd.Series(TEXTS), "is a Series; of a Series make a frame"),
        (np.array([["a", "x"]]), "is a ndarray; expected a path, a DataFrame"),
        (3, "is a int; expected a path"),
        ([{"text": "a", "label": 1}, ("b", 0)], r"row 1 \(counted from 0\) is a tuple"),
        ({"text": "a", "label": [1]}, r"data\['text'\] is 'a'; expected the values of a column"),
        ({"train": [{"text": "a"}], "training": [{"text": "b"}]}, "two parts for train"),
        ({"one": [{"text": "a"}], "two": [{"text": "b"}]}, "name its parts train, dev and test"),
        ({"train": "missing.csv", "dev": "missing.csv"}, "train: missing.csv is not a file"),
    ],
)
def test_what_is_wrong_is_named_as_its_owner_counts(rows: Any, message: str) -> None:
    with pytest.raises((DataError, InputError), match=message):
        _content("csv", _path(rows))


def test_a_bad_row_of_a_part_is_named_with_the_part() -> None:
    good = {"text": TEXTS, "label": list("xyxy")}
    path = _path({"train": good, "validation": {**good, "label": ["x", "y", "x", None]}})
    with pytest.raises(DataError, match=r"<dev>: row 3 \(counted from 0\): column 'label'"):
        workflow_of(task_of("csv", path)).read(path, "dev")


def test_parts_are_mappings_names_or_a_keyword(tmp_path: Path) -> None:
    train, dev = ({"text": TEXTS, "label": labels} for labels in (list("xyxy"), list("yyxx")))
    pd.DataFrame(dev).to_csv(tmp_path / "held-out.csv", index=False)
    for path in (
        given_data({"train": train, "test": dev, "validation": dev}, None, SPLIT_NAMES),
        given_data(train, dev, SPLIT_NAMES),
        given_data(train, tmp_path / "held-out.csv", SPLIT_NAMES),
        given_data({"train": pd.DataFrame(train), "dev": str(tmp_path / "held-out.csv")}, None, SPLIT_NAMES),
    ):
        workflow = workflow_of(task_of("csv", path))
        assert [each.label for each in workflow.read(path, "train")] == [0, 1, 0, 1]
        assert [each.label for each in workflow.read(path, "dev")] == [1, 1, 0, 0]
    with pytest.raises(InputError, match="both given"):
        given_data({"train": train, "dev": dev}, dev, SPLIT_NAMES)
    with pytest.raises(DataError, match="has no test file in <data>, only train"):
        workflow.read(given_data(train, dev, SPLIT_NAMES), "test")


def test_a_dataset_with_a_split_of_another_name_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"text": TEXTS, "label": list("xyxy")}
    given_data({"train": rows, "unsupervised": rows}, None, SPLIT_NAMES)
    assert "data['unsupervised'] is of no known split and left out" in capsys.readouterr().err


def test_options_of_reading_are_those_of_the_command() -> None:
    frame = pd.DataFrame([["a b", "x"], ["c d", "y"]])
    assert task_of("csv", _path(frame), text=0, label=1).labels == ("x", "y")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"no option or setting 'lable'.*did you mean 'label'"):
        task_of("csv", _path(frame), lable="x")
    with pytest.raises(ConfigError, match=r"no option or setting 'text'.*read without any"):
        task_of("squad", _path(ROWS["squad"]), text="x")
    with pytest.raises(ConfigError, match="multi_label"):
        task_of("csv", _path(frame), multi_label="perhaps")


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        ("ner", [{"tokens": ["a"], "ner_tags": ["O"]}, {"tokens": ["b"]}], r"<data>: row 1 \(counted from 0\)"),
        (
            "swag",
            [{"ctx": "a", "endings": ["b", "c"], "label": 0}, {"ctx": "a", "endings": ["b", "c", "d"], "label": 0}],
            r"row 1 \(counted from 0\): 3 choices, but 2 in row 0 \(counted from 0\)",
        ),
        (
            "rerank",
            [{"query": "a", "document": "b", "label": 1}] * 2,
            r"row 1 \(counted from 0\).*in row 0 \(counted from 0\) already",
        ),
    ],
)
def test_another_row_is_named_likewise(task: str, rows: list[dict[str, Any]], message: str) -> None:
    path = _path(rows)
    made = task_of(task, path) if task != "ner" else ner_task(path, types=["PER"])
    with pytest.raises(DataError, match=message):
        workflow_of(made).read(path, "train")


def test_a_run_folder_cannot_give_back_what_was_in_memory() -> None:
    with pytest.raises(DataError, match=r"<data> stands for rows that a run was given in memory"):
        splits_of(task_of("csv", _path({"text": TEXTS, "label": list("xyxy")})), "<data>")  # type: ignore[arg-type]
