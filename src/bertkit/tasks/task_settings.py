"""The settings of all kinds of tasks in one flat class, from the registry, because any may be given in any run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

from bertkit.config.reading_settings import ReadingSettings, Use
from bertkit.tasks.registry import KINDS, part_of

if TYPE_CHECKING:

    class TaskSettings(ReadingSettings):
        """The common settings and those of every kind; a kind's workflow asks for its own by :meth:`of`."""

else:
    OWN = [own for form in KINDS if (own := part_of(form, "settings")) is not None]
    NAMES = [name for own in (ReadingSettings, *OWN) for name in own.model_fields]
    assert len({*NAMES}) == len(NAMES), "two kinds of tasks have a setting of one name"
    BASES = (*reversed(OWN), ReadingSettings)  # the common fields come first
    TaskSettings = type(ReadingSettings)("TaskSettings", BASES, {"__module__": __name__})


@cache
def settings_of_kind(form: str) -> Collection[str]:
    """The settings that a kind has of its own."""
    own = part_of(form, "settings")
    return () if own is None else tuple(own.model_fields)


@cache
def uses() -> Mapping[str, Use]:
    """The settings that not all kinds of tasks have a use for, and what each says of itself."""
    marks = ((name, mark) for name, field in TaskSettings.model_fields.items() for mark in field.metadata)
    return {name: mark for name, mark in marks if isinstance(mark, Use)}
