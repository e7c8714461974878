"""Tasks: reading their files, scoring, reports, baselines."""

from __future__ import annotations

from collections.abc import Mapping

from bertkit.config.file_columns import Columns
from bertkit.tasks.check_task import check_task
from bertkit.tasks.data_report import DataReport
from bertkit.tasks.examples import Example, Examples, SkippedRow, Split
from bertkit.tasks.hold_out import carve
from bertkit.tasks.own_files import task_of
from bertkit.tasks.reading.splits import split_of, splits_of
from bertkit.tasks.registry import Task, get_task, task_from_dict, task_to_dict
from bertkit.tasks.text.baseline import tfidf_baseline
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tasks.text.glue import IMDB, TWEETS, WHOLE_GLUE
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.report import data_report
from bertkit.tasks.text.task import TextTask, diagnose, score
from bertkit.tasks.tokens.reading import ner_task
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
    "task_to_dict",
    "tfidf_baseline",
]

#: The built-in text tasks that have labels and one dev set at most, by name: not ``mnli``, which :func:`get_task` has.
TASKS: Mapping[str, TextTask] = {task.name: task for task in (*WHOLE_GLUE, IMDB, TWEETS) if not task.more_dev}
