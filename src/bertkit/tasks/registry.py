"""The kinds of tasks: what all of them have, and which class a run folder's JSON belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Protocol, cast

from bertkit.errors import CheckpointError

#: Class of each kind of task, by the value of ``kind`` in the JSON of a run folder; loaded when first used.
TASK_CLASSES: Mapping[str, str] = {
    "text": "bertkit.tasks.text.task:TextTask",
    "span": "bertkit.tasks.spans.task:SpanTask",
    "token": "bertkit.tasks.tokens.task:TokenTask",
    "choice": "bertkit.tasks.choices.task:ChoiceTask",
}


class Task(Protocol):
    """What every task has, whatever it predicts. A frozen dataclass of plain values."""

    #: Key of its class in :data:`TASK_CLASSES`.
    form: ClassVar[str]

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def about(self) -> str:
        """One line for people."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of its scores, in the order in which they are shown."""

    @property
    def main_metric(self) -> str:
        """The one, of which more is better, that chooses the best checkpoint."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed when the task was made from a user's file, one sentence each."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with ``kind`` (may be left out for ``text``); :func:`task_from_dict` reads it back."""


def task_from_dict(values: Mapping[str, Any]) -> Task:
    """The task that ``to_dict`` wrote, of the class that its ``kind`` names; without one it is a text task.

    Raises:
        CheckpointError: a kind that this version does not know.
    """
    kind = values.get("kind", "text")
    if kind not in TASK_CLASSES:
        raise CheckpointError(
            f"a task of kind {kind!r} is not known to this version of bertkit, which has {', '.join(TASK_CLASSES)}"
        )
    module, _, name = TASK_CLASSES[kind].partition(":")
    plain = {key: value for key, value in values.items() if key != "kind"}
    return cast(Task, getattr(import_module(module), name).from_dict(plain))
