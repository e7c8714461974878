"""How files of one's own hold tones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from bertkit.config.file_columns import Option
from bertkit.tasks.own_files import OwnFiles
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.registry import Task
from toy_task.task import TONE


@dataclass(frozen=True)
class ToneFiles(OwnFiles):
    """A tone and a text a line."""

    separator: Annotated[str, Option("What stands between a tone and its text.")] = TONE.separator

    def task(self, name: str, data: Path, on_error: OnError = "raise") -> Task:
        return replace(TONE, separator=self.separator)
