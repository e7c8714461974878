"""The files of a fine-tuning run that whoever uses the model reads. A damaged one is a CheckpointError."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.config.config_file import checkpoint_folder
from bertkit.config.file_columns import Columns
from bertkit.config.reading_settings import RUN_SETTINGS
from bertkit.errors import CheckpointError
from bertkit.system.json_files import parsed, read_json
from bertkit.system.model_sources import resolve
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.text_rows import USUAL
from bertkit.tasks.registry import Task, task_from_dict

SETTINGS, METRICS, SEARCH, BOOTSTRAP = RUN_SETTINGS, "metrics.json", "search.json", "bootstrap.json"


@dataclass(frozen=True, slots=True)
class RunSettings:
    """What ``finetune.json`` says for later use.

    config: the settings as the user gave them, and the number format, chosen if none was given.
    given: settings that a search leaves alone although they have their default value.
    """

    task: dict[str, Any]
    config: dict[str, Any]
    data: str = ""
    given: Sequence[str] = ()


def read_settings(folder: Path) -> dict[str, Any]:
    """The fields of :class:`RunSettings` of a run folder; empty for a checkpoint that bertkit did not train."""
    path = folder / SETTINGS
    return asdict(read_json(path, RunSettings)) if path.exists() else {}


def read_task(folder: Path) -> Task | None:
    """The task of a run folder; None for a checkpoint that bertkit did not train."""
    settings = read_settings(folder)
    try:
        return task_from_dict(settings["task"]) if settings else None
    except CheckpointError as error:
        raise CheckpointError(f"{folder / SETTINGS}: {error}") from None


def text_places(task: Task | None, given: Columns) -> Columns:
    """Where the texts of a file are: as given, else as in the data of a run's task, else in columns of usual names."""
    known = getattr(task, "columns", None)
    known = known if isinstance(known, Columns) else Columns(USUAL)
    return Columns(
        text=given.text or known.text,
        text_pair=given.text_pair or (() if given.text else known.text_pair),
        headerless=() if given.text else known.headerless,
        quoting=given.quoting or known.quoting,
        delimiter=given.delimiter or known.delimiter,
        sheet=given.sheet,
        encoding=given.encoding,  # never that of the training file, by which UTF-8 would be misread without an error
    )


def trained_places(file: Path, model: str | Path, given: Columns) -> Columns | None:
    """Where the texts of a table are as in the data of the run that is the model; None if nothing says so."""
    if given.text or kind_of(file) is None:
        return None
    task = read_task(checkpoint_folder(resolve(model)))
    return None if task is None else text_places(task, given)


def read_scores(folder: Path) -> dict[str, float]:
    """The scores of a run's model on its evaluation data, by metric; empty where there is no result."""
    path = folder / METRICS
    if not path.exists():
        return {}
    return parsed(read_json(path, dict[str, Any]).get("scores"), dict[str, float], f"{path}: scores")


def read_facts(folder: Path) -> dict[str, Any]:
    """What the protocol block of ``metrics.json`` says of the data; empty where there is no result."""
    path = folder / METRICS
    if not path.exists():
        return {}
    values = read_json(path, dict[str, Any])
    for part in ("protocol", "data"):
        values = parsed(values.get(part), dict[str, Any], f"{path}: {part}")
    return values
