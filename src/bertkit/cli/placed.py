"""Texts of files whose errors name the file and the line, not the number that a pipeline counts."""

from __future__ import annotations

import os
import re
import shlex
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Self, TypeVar

from bertkit.errors import BertkitError, ConfigError

if TYPE_CHECKING:
    from bertkit.tasks.reading.file_rows import Samples

T = TypeVar("T")
R = TypeVar("R")


class Placed(Iterator[T]):
    """Texts, pairs, queries or questions of a file or of standard input; knows the line of each that was drawn.

    ``items`` come with the line, or another number from 1, of which ``place`` says where it is; 0: it is no part of a
    file. ``taken``: the columns of the file with other content than the texts.
    """

    def __init__(
        self, items: Iterable[tuple[int, T]], place: Callable[[int], str], taken: Samples = MappingProxyType({})
    ) -> None:
        self._items, self._place, self._lines, self.taken = iter(items), place, array("q"), taken

    def __next__(self) -> T:
        line, item = next(self._items)
        self._lines.append(line)
        return item

    def map(self, change: Callable[[T], R]) -> Placed[R]:
        """The same with each item changed, where it is."""
        return Placed(((line, change(item)) for line, item in self._items), self._place, self.taken)

    def only(self, wanted: Callable[[T], bool]) -> Placed[T]:
        """Those that are wanted, each where it is."""
        return Placed(((line, item) for line, item in self._items if wanted(item)), self._place, self.taken)

    def after(self, item: T) -> Self:
        """The same after one that is no part of the file."""
        self._items = chain([(0, item)], self._items)
        return self

    def place_of(self, number: int) -> str | None:
        """Where item ``number`` (counted from 0) is; None if it is no part of the file."""
        line = self._lines[number] if number < len(self._lines) else 0
        return self._place(line) if line else None


@contextmanager
def located(texts: Iterable[T], what: str = "(?:text|query|question)", first: int = 0) -> Iterator[None]:
    """Errors on :class:`Placed` texts name the place; ``what`` is what pipelines call them, ``first`` their text 0."""
    try:
        yield
    except BertkitError as error:
        found = re.match(
            rf"(.*?)\b({what}) (\d+)( with its document \d+)? \((?:both )?counted from 0\)(.*)", str(error), re.DOTALL
        )
        place = texts.place_of(first + int(found[3])) if found and isinstance(texts, Placed) else None
        if found and place is not None:
            document = f"{found[4]} (counted from 0)" if found[4] else ""
            error.args = (f"{place}: {found[1]}the {found[2].split()[-1]}{document}{found[5]}",)
        raise


def refuse_file_name(texts: Sequence[str], instead: str) -> None:
    """ConfigError if the only text is the name of a file: ``instead`` reads its texts, with the name for ``{0}``."""
    if len(texts) == 1 and os.path.isfile(texts[0]):
        name = shlex.quote(texts[0])
        raise ConfigError(
            f"{texts[0]!r} is the name of a file; to read the texts in it, write {instead.format(name)}; to read the "
            f"name itself as a text, give it on standard input: echo {name} | bertkit ... -"
        )
