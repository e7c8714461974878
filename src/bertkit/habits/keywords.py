"""Keywords of calls that other libraries have."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from bertkit.habit_table import refuse_others

ValueT = TypeVar("ValueT")


def known_keywords(entry: str, given: Mapping[str, ValueT], known: Collection[str]) -> dict[str, ValueT]:
    """Those of ``given`` that have an effect; InputError, with what to write instead, for one that there is not.

    ``entry``: of :mod:`bertkit.habit_table`, and the name of the call in messages.
    """
    refuse_others(entry, given, known)
    return {name: value for name, value in given.items() if name in known}
