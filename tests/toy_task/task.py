"""What the toy kind of task is: its examples, and the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bertkit.tasks.examples import Located


@dataclass(frozen=True, slots=True)
class ToneExample(Located):
    """A text and its tone, which a test file may leave out."""

    text: str
    tone: float | None
    row: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class ToneTask:
    """A text -> a number from 0 to 1. Its only setting is what stands between the columns of its files."""

    form: ClassVar[str] = "tone"

    name: str = "tone"
    separator: str = "\t"
    metrics: tuple[str, ...] = ("closeness",)
    main_metric: str = "closeness"
    about: str = "how good does it sound?"
    notes: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


TONE = ToneTask()
