"""The checks of several heads for :func:`bertkit.tasks.check_task`: those of each head's task on its own data."""

from __future__ import annotations

from pathlib import Path

from bertkit.tasks.battery import check_task
from bertkit.tasks.multi.task import MultiTask


class MultiBattery:
    """Several heads, which know where their files are."""

    def __init__(self, task: MultiTask, folder: str | Path) -> None:
        self.task = task

    def run(self) -> list[str]:
        """A line for each check that passed."""
        heads = self.task.tasks.items()
        return [f"{name}: {line}" for name, task in heads for line in check_task(task, self.task.data[name])]
