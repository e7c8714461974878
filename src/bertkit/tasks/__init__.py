"""Tasks: reading their files, scoring, reports, baselines. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertkit.tasks.check_task import check_task
from bertkit.tasks.data_report import DataReport
from bertkit.tasks.examples import Columns, Example, Examples, SkippedRow, Split
from bertkit.tasks.hold_out import carve
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import split_of, splits_of
from bertkit.tasks.registry import Task, get_task, task_from_dict, task_to_dict
from bertkit.tasks.text.baseline import tfidf_baseline
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tasks.text.glue import IMDB, TWEETS, WHOLE_GLUE
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.report import data_report
from bertkit.tasks.text.task import TextTask, diagnose, score
from bertkit.tasks.tokens.reading import ner_task, ner_task_of_model
from bertkit.tasks.tokens.task import TokenTask

__all__ = [
    "TASKS",
    "Columns",
    "DataReport",
    "Example",
    "Examples",
    "SkippedRow",
    "Split",
    "Task",
    "TextTask",
    "TokenTask",
    "carve",
    "check_task",
    "csv_task",
    "data_report",
    "diagnose",
    "get_task",
    "load_split",
    "ner_task",
    "score",
    "split_of",
    "splits_of",
    "task_from_dict",
    "task_of",
    "task_of_model",
    "task_to_dict",
    "tfidf_baseline",
]

#: The built-in text tasks that have labels and one dev set at most, by name: not ``mnli``, which :func:`get_task` has.
TASKS: Mapping[str, TextTask] = {task.name: task for task in (*WHOLE_GLUE, IMDB, TWEETS) if not task.more_dev}


def task_of(name: str, data: str | Path) -> Task:
    """The task of that name; ``ner`` takes its entity types from the data.

    Raises:
        ConfigError: as :func:`get_task`.
        DataError: as :func:`ner_task`.
    """
    return ner_task(data) if name == "ner" else get_task(name)


def task_of_model(
    name: str, data: str | Path, model: Path, known: Task | None, *, on_error: OnError = "raise", **columns: Any
) -> Task:
    """The task of that name for a model in a local folder or file, whose own task is ``known`` if it is of a run.

    ``ner`` takes its entity types from the model, and what ``columns`` (of :func:`ner_task`) leave open from ``known``.
    """
    return ner_task_of_model(data, model, known, on_error=on_error, **columns) if name == "ner" else get_task(name)
