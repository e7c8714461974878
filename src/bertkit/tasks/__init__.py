"""Text classification and regression tasks: reading their files, scoring, reports, baselines. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping

from bertkit.errors import ConfigError, did_you_mean
from bertkit.tasks.baseline import tfidf_baseline
from bertkit.tasks.check import check_task
from bertkit.tasks.duplicates import carve
from bertkit.tasks.files import split_of, splits_of
from bertkit.tasks.glue import GLUE_TASKS
from bertkit.tasks.reading import load_split
from bertkit.tasks.report import DataReport, data_report
from bertkit.tasks.sentiment import IMDB, TWEETS
from bertkit.tasks.table import csv_task
from bertkit.tasks.task import Columns, Example, Examples, SkippedRow, Split, TextTask, diagnose, score

__all__ = [
    "TASKS",
    "Columns",
    "DataReport",
    "Example",
    "Examples",
    "SkippedRow",
    "Split",
    "TextTask",
    "carve",
    "check_task",
    "csv_task",
    "data_report",
    "diagnose",
    "get_task",
    "load_split",
    "score",
    "split_of",
    "splits_of",
    "tfidf_baseline",
]

#: The tasks with a fixed format, by name. ``csv`` is not here: :func:`csv_task` makes one from a user's file.
TASKS: Mapping[str, TextTask] = {task.name: task for task in (*GLUE_TASKS, IMDB, TWEETS)}


def get_task(name: str) -> TextTask:
    """The task of that name.

    Raises:
        ConfigError: an unknown name, with the nearest known one; ``csv``, which needs a file (:func:`csv_task`).
    """
    if name in TASKS:
        return TASKS[name]
    if name == "csv":
        raise ConfigError("task csv is made from a file: use bertkit.tasks.csv_task(path, text=..., label=...)")
    raise ConfigError(f"unknown task {name!r}{did_you_mean(name, TASKS)}; known: {', '.join(TASKS)}, csv")
