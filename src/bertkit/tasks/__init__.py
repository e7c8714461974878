"""Tasks: reading their files, scoring, reports, baselines. The names load when first used."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

#: Module to the public names in it.
_NAMES = {
    "bertkit.config.file_columns": "Columns",
    "bertkit.tasks.battery": "check_task",
    "bertkit.tasks.examples": "Example Examples SkippedRow Split",
    "bertkit.tasks.hold_out": "carve",
    "bertkit.tasks.own_files": "task_of",
    "bertkit.tasks.reading.splits": "split_of splits_of",
    "bertkit.tasks.registry": "Task get_task task_from_dict task_to_dict",
    "bertkit.tasks.report": "DataReport",
    "bertkit.tasks.text.baseline": "tfidf_baseline",
    "bertkit.tasks.text.csv_task": "csv_task",
    "bertkit.tasks.text.glue": "TASKS",
    "bertkit.tasks.text.reading": "load_split",
    "bertkit.tasks.text.report": "data_report",
    "bertkit.tasks.text.task": "TextTask diagnose score",
    "bertkit.tasks.tokens.reading": "ner_task",
    "bertkit.tasks.tokens.task": "TokenTask",
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
