"""Keywords of calls that other libraries have: which are known, which have no effect, and what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from bertkit.errors import InputError
from bertkit.habit_table import habits, remedy, without_meaning

ValueT = TypeVar("ValueT")


def known_keywords(entry: str, given: Mapping[str, ValueT], known: Collection[str]) -> dict[str, ValueT]:
    """Those of ``given`` that have an effect; InputError, with what to write instead, for one that there is not.

    One of the table that is None, as by default, says nothing.

    ``entry``: of :mod:`bertkit.habit_table`, and the name of the call in messages.
    """
    ignored = without_meaning(entry)
    for name in given:
        if name not in known and name not in ignored and (given[name] is not None or (entry, name) not in habits()):
            near = remedy(entry, name, known)
            raise InputError(f"{entry} has no keyword {name!r}{near}; it takes: {', '.join(sorted(known))}")
    return {name: value for name, value in given.items() if name in known}
