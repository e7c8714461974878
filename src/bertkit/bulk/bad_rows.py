"""The rows that make a model fail: found by halving, and marked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bertkit.errors import ConfigError, MissingExtraError, ResourceError, TextError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
#: How pipelines name a text: by its place in a call, which nobody knows here.
_NUMBER = re.compile(r"^text \d+(?: \(counted from 0\))?")
#: Errors that are no row's.
_OF_THE_MACHINE = (ConfigError, MissingExtraError, ResourceError, MemoryError, AssertionError)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no answer."""

    reason: str


def answers_or_failures(
    items: Sequence[ItemT], answer: Callable[[Sequence[ItemT]], Sequence[ResultT]]
) -> list[ResultT | Failure]:
    """An answer for each item, or why there is none.

    Items that fail are found by halving, and the others then answered together, so that the result does not depend on
    the way to it. Where every one of several items fails, and not for its text, it is the model that does, and its
    error is raised; so are errors of the machine or of the settings.
    """
    if not items:
        return []
    try:
        return list(answer(items))
    except _OF_THE_MACHINE:
        raise
    except Exception as error:
        failed = _failing(items, 0, answer, error)
        if len(failed) == len(items) > 1 and not isinstance(error, TextError):
            raise
    good = [item for number, item in enumerate(items) if number not in failed]
    answered = iter(answer(good) if good else [])
    return [failed[number] if number in failed else next(answered) for number in range(len(items))]


def _failing(
    items: Sequence[ItemT], first: int, answer: Callable[[Sequence[ItemT]], Sequence[ResultT]], error: Exception
) -> dict[int, Failure]:
    """The items that fail alone, by number. ``items`` as a whole are known to fail."""
    if len(items) == 1:
        return {first: Failure(reason_of(error))}
    middle, found = len(items) // 2, dict[int, Failure]()
    for part, start in ((items[:middle], first), (items[middle:], first + middle)):
        try:
            answer(part)
        except _OF_THE_MACHINE:
            raise
        except Exception as own:
            found |= _failing(part, start, answer, own)
    return found


def reason_of(error: BaseException) -> str:
    """An error in one line."""
    said = _NUMBER.sub("the text", " ".join(str(error).split()))
    return said[:500] or type(error).__name__
