"""Tasks: reading their files, scoring, reports, baselines. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import cast

from bertkit.errors import ConfigError, did_you_mean
from bertkit.tasks.check_task import check_task
from bertkit.tasks.duplicate_rows import carve
from bertkit.tasks.examples import Columns, Example, Examples, SkippedRow, Split
from bertkit.tasks.reading.splits import split_of, splits_of
from bertkit.tasks.registry import Task, task_from_dict
from bertkit.tasks.text.baseline import tfidf_baseline
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tasks.text.glue import GLUE_TASKS
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.report import DataReport, data_report
from bertkit.tasks.text.sentiment import IMDB, TWEETS
from bertkit.tasks.text.task import TextTask, diagnose, score
from bertkit.tasks.tokens.task import TokenTask, ner_task

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
    "tfidf_baseline",
]

#: The tasks with a fixed format, by name. ``csv`` is not here: :func:`csv_task` makes one from a user's file.
TASKS: Mapping[str, TextTask] = {task.name: task for task in (*GLUE_TASKS, IMDB, TWEETS)}
#: Further tasks by name: where they are; loaded when first used.
OTHER_TASKS: Mapping[str, str] = {
    "mnli": "bertkit.tasks.text.glue:MNLI",
    "ax": "bertkit.tasks.text.glue:DIAGNOSTIC",
    "squad": "bertkit.tasks.spans.task:SQUAD",
    "squad2": "bertkit.tasks.spans.task:SQUAD2",
    "swag": "bertkit.tasks.choices.task:SWAG",
    "codah": "bertkit.tasks.choices.task:CODAH",
    "arc": "bertkit.tasks.choices.task:ARC",
}


def get_task(name: str) -> Task:
    """The task of that name: one of :data:`TASKS` or :data:`OTHER_TASKS`.

    Raises:
        ConfigError: an unknown name, with the nearest known one; ``csv``, which needs a file (:func:`csv_task`).
    """
    if name in TASKS:
        return TASKS[name]
    if name in OTHER_TASKS:
        module, _, constant = OTHER_TASKS[name].partition(":")
        return cast(Task, getattr(import_module(module), constant))
    if name == "csv":
        raise ConfigError("task csv is made from a file: use bertkit.tasks.csv_task(path, text=..., label=...)")
    if name == "ner":
        raise ConfigError("task ner is made from files: use bertkit.tasks.ner_task(data), or task_of('ner', data)")
    known = [*TASKS, *OTHER_TASKS]
    raise ConfigError(f"unknown task {name!r}{did_you_mean(name, known)}; known: {', '.join(known)}, ner, csv")


def task_of(name: str, data: str | Path) -> Task:
    """The task of that name; of ``ner``, whose entity types only its files tell, the one that the data make.

    Raises:
        ConfigError: as :func:`get_task`.
        DataError: as :func:`ner_task`.
    """
    return ner_task(data) if name == "ner" else get_task(name)
