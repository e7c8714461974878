"""What a call of ``finetune`` asks for: settings and task, of which some may be keywords, and who follows the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, cast

from bertkit.errors import ConfigError, InputError
from bertkit.tasks.own_files import task_of
from bertkit.tasks.registry import Task
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.trackers import MLflowCallback, TensorBoardCallback

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import DataclassInstance


def chosen(
    task: str | Task, data: str | Path, config: FinetuneConfig, options: Mapping[str, object]
) -> tuple[FinetuneConfig, Task]:
    """Settings and task, of which some may be keywords."""
    if not isinstance(config, FinetuneConfig):
        raise InputError(
            f"config is a {type(config).__name__}, expected a FinetuneConfig: settings are keywords, as in "
            "finetune(..., epochs=3) or FinetuneConfig(epochs=3)"
        )
    known = FinetuneConfig.model_fields
    settings = {name: value for name, value in options.items() if name in known}
    reading = {name: value for name, value in options.items() if name not in known}
    if settings:
        config = FinetuneConfig(**{**config.model_dump(exclude_unset=True), **settings})
    if isinstance(task, str):
        task = task_of(task, data, on_error=config.on_error, settings=known, **reading)
    elif not hasattr(task, "main_metric"):
        raise InputError(f'task is a {type(task).__name__}, expected a name, such as "csv"; the table is data=')
    elif reading:
        given = ", ".join(f"{name}=" for name in reading)
        raise ConfigError(
            f"{given} is for a task by its name; task {task.name} knows how its data is read. Leave it out"
        )
    return config, _judged_by(task, config.metric_for_best)


def trackers_of(config: FinetuneConfig) -> list[Callback]:
    """Those that the settings ask for; their packages are looked for before anything is done."""
    return [*([TensorBoardCallback()] if config.tensorboard else []), *([MLflowCallback()] if config.mlflow else [])]


def _judged_by(task: Task, metric: str | None) -> Task:
    if metric is None or metric == task.main_metric:
        return task
    changeable = cast("DataclassInstance", task)  # of some kinds the main metric is fixed
    known = task.metrics if any(part.name == "main_metric" for part in fields(changeable)) else (task.main_metric,)
    if metric not in known:
        raise ConfigError(f"metric_for_best={metric!r}: task {task.name} can be judged by {', '.join(known)}")
    return cast(Task, replace(changeable, main_metric=metric))
