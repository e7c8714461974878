"""``bertkit evaluate``: which task is scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bertkit.cli.file_options import FileColumns
from bertkit.config.bert_config import BertConfig
from bertkit.config.reading_settings import ReadingSettings
from bertkit.inference.runs import Run
from bertkit.tasks import get_task
from bertkit.tasks.own_files import Finished
from bertkit.tasks.registry import Task
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
