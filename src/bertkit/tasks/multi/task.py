"""Heads of different kinds on one encoder: each head is a task with its own data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bertkit.errors import ConfigError
from bertkit.tasks.registry import Task, task_from_dict, task_to_dict

#: The kinds of tasks whose heads may share an encoder.
KINDS_OF_HEADS = ("text", "token", "span")
#: Name of the score that chooses the best epoch: the mean of the heads' main metrics.
MEAN = "mean"
#: The compiled encoder holds 256 matrices of heads, two of each that reads texts.
MOST_HEADS = 100
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class HeadExample:
    """An example of one head."""

    head: str
    example: Any

    @property
    def row(self) -> int:
        """Its line or record, counted from 1."""
        return int(self.example.row)

    @property
    def source(self) -> str:
        """The file it came from."""
        return str(self.example.source)

    @property
    def where(self) -> str:
        """``file:row`` for error messages."""
        return str(self.example.where)


@dataclass(frozen=True, slots=True)
class MultiTask:
    """Several tasks, as :func:`task_to_dict` returns them, and their data by the names of their heads.

    alpha: a step is drawn from a head with a probability proportional to (its training rows) ** alpha.
    """

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "multi"

    heads: Mapping[str, dict[str, Any]]
    data: Mapping[str, str]
    alpha: float = 0.5
    name: str = "multi"
    about: str = "heads of different kinds on one encoder"
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_heads(self.tasks)
        if self.heads.keys() != self.data.keys():
            raise ConfigError(f"heads {', '.join(self.heads)} need data each, got data of {', '.join(self.data)}")
        if not 0 <= self.alpha <= 1:
            raise ConfigError(f"alpha must be from 0 (all heads alike) to 1 (in proportion to rows), got {self.alpha}")

    @classmethod
    def of(cls, heads: Mapping[str, tuple[Task, str]], alpha: float = 0.5) -> MultiTask:
        """The task of some heads, each a task and where its files are."""
        check_heads({name: task for name, (task, _) in heads.items()})
        plain = {name: task_to_dict(task) for name, (task, _) in heads.items()}
        return cls(plain, {name: data for name, (_, data) in heads.items()}, alpha)

    @property
    def tasks(self) -> dict[str, Task]:
        """The task of each head."""
        return {name: task_from_dict(values) for name, values in self.heads.items()}

    @property
    def metrics(self) -> tuple[str, ...]:
        """``HEAD/METRIC`` of each head, and their :data:`MEAN`."""
        return (MEAN, *(f"{name}/{metric}" for name, task in self.tasks.items() for metric in task.metrics))

    @property
    def main_metric(self) -> str:
        """The mean of the heads' main metrics."""
        return MEAN


def check_heads(tasks: Mapping[str, Task]) -> None:
    """Raise ConfigError for names that are no names of folders, and for tasks that cannot share an encoder."""
    if not tasks:
        raise ConfigError("no heads: name at least one, with its task and its data")
    if len(tasks) > MOST_HEADS:
        raise ConfigError(f"{len(tasks)} heads; at most {MOST_HEADS} can share an encoder. Train some by themselves")
    for name, task in tasks.items():
        if not _NAME.fullmatch(name):
            raise ConfigError(f"the head {name!r:.80}: a name is made of letters, digits, - and _, at most 64")
        if task.form not in KINDS_OF_HEADS:
            raise ConfigError(
                f"head {name}: task {task.name} cannot share an encoder with others; possible are single texts and "
                "pairs (csv and the like), ner, and squad. Train it by itself: bertkit finetune"
            )
