"""``bertkit evaluate``: which task is scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from openpyxl import Workbook

from bertkit import BertForSequenceClassification
from bertkit.cli.file_options import FileColumns
from bertkit.config.bert_config import BertConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import DataError
from bertkit.inference.runs import Run
from bertkit.tasks import csv_task, get_task
from bertkit.tasks.own_files import Finished
from bertkit.tasks.registry import Task
from bertkit.tasks.text.columns import TextFiles
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization import AutoTokenizer
from pipeline_helpers import save_tiny


@pytest.mark.parametrize("name", ["squad", "squad2", "swag", "codah", "arc", "sst2", "rerank", "summarize", "pairs"])
def test_other_data_than_those_of_training(name: str, tmp_path: Path) -> None:
    task: Task = get_task(name)
    if "columns" in task.__dataclass_fields__:
        task = replace(task, columns=replace(task.columns, encoding="cp1252"))
    tokenizer = AutoTokenizer.from_pretrained(save_tiny(tmp_path / "model"))
    settings = {"data": str(tmp_path / "data")}
    run = Run(tmp_path, workflow_of(task), None, tokenizer, ReadingSettings(), BertConfig(), settings)
    files = FileColumns().of(name)
    for data, expected in (("data", task), ("other", get_task(name))):
        model = Finished(tmp_path, task, run.learned_from(tmp_path / data))
        assert files.task_for(name, tmp_path / data, "raise", model) == expected


def a_sheet(book: Workbook, name: str, *columns: str) -> None:
    sheet = book.create_sheet(name)
    for row in (columns, *([f"film {n}", f"note {n}", ("LABEL_0", "LABEL_1")[n % 2], n] for n in range(6))):
        sheet.append(list(row))


def test_what_is_not_given_is_as_in_the_run(tmp_path: Path) -> None:
    file = tmp_path / "films.xlsx"
    book = Workbook()
    a_sheet(book, "first", "body", "text", "mark", "n")
    a_sheet(book, "second", "body", "text", "mark", "n")
    a_sheet(book, "third", "body", "text", "verdict", "n")
    book.save(file)
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2)
    trained = csv_task(file, "body", label="mark", sheet="second")
    learned, other = (Finished(model, trained, same) for same in (True, False))

    def columns(files: TextFiles, run: Finished) -> tuple[str | None, ...]:
        task = files.task_for("csv", file, "raise", run)
        assert isinstance(task, TextTask)
        assert task.labels == ("LABEL_0", "LABEL_1")
        return (*task.columns.text, *task.columns.label, task.columns.sheet)

    assert columns(TextFiles(), learned) == ("body", "mark", "second")
    assert columns(TextFiles(sheet="third", label="verdict"), learned) == ("body", "verdict", "third")
    assert columns(TextFiles(text="text"), learned) == ("text", "mark", "second")
    assert columns(TextFiles(text="text"), other) == ("text", "mark", None)  # whose sheets may have other names
    assert columns(TextFiles(text="text", label="mark"), Finished(model, None, False)) == ("text", "mark", None)
    with pytest.raises(DataError, match=r"no label column 'mark'.* The columns are \[.*\]; choose one with --label"):
        columns(TextFiles(sheet="third"), learned)


def test_what_is_not_given_of_other_kinds(tmp_path: Path) -> None:
    options = {
        "rerank": {"text": "q", "text_pair": "d", "label": "l", "negatives": 3},
        "pairs": {"text": "q", "text_pair": "d", "negative": "n", "delimiter": ";"},
        "summarize": {"source": "s", "target": "t", "prefix": "p: "},
    }
    for name, given in options.items():
        kind = type(FileColumns().of(name))
        trained = kind(**given).task(name, tmp_path)
        for option, value in given.items():
            files = kind(**{option: type(value)(7) if isinstance(value, int) else f"{value}2"[-1:]})
            expected = kind(**{**given, option: getattr(files, option)}).task(name, tmp_path)
            assert files.task_for(name, tmp_path, "raise", Finished(tmp_path, trained, True)) == expected
            assert expected != trained
