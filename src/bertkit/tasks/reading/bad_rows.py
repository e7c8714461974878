"""What the value of a cell means; and rows that cannot be used, refused together with their reasons or left out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np

from bertkit.errors import ConfigError, DataError, counted
from bertkit.tasks.examples import Located, SkippedRow, is_in_memory, place_of

OnError = Literal["raise", "skip"]
#: Bad rows that an error message lists.
SHOWN = 10
ADVICE = "Correct {what}, or leave bad rows out with on_error='skip' (--on-error skip)"


class RowError(Exception):
    """What is wrong with a row: the kind of fault, for counting, and the message, which does not name the place."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class BadRows:
    """Collects the bad rows of one file, so far ``skipped``.

    With "raise" the first one raises (``at_once``); with ``gather`` as well, :meth:`finish` does instead and names all.
    """

    def __init__(self, on_error: OnError = "raise", *, gather: bool = False, unit: str = "object") -> None:
        if on_error not in ("raise", "skip"):
            raise ConfigError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self.skipped: list[SkippedRow] = []
        self._unit = unit
        self._raises = on_error == "raise"
        self.at_once = self._raises and not gather

    def report(self, path: Path, row: int, kind: str, message: str, advice: str = "") -> None:
        """Note a row that cannot be used, or raise DataError. Of ``advice`` that many rows have, one is shown."""
        where = place_of(path, row, self._unit)
        found = SkippedRow(where, row, kind, f"{where}: {message}", advice)
        if self.at_once:
            raise DataError(sentences(found.message, advice))
        self.skipped.append(found)

    def leave_out(self, path: Path, row: int, label: str) -> None:
        """Note a row that is left out because its label is, as the user asked."""
        where = place_of(path, row, self._unit)
        self.skipped.append(SkippedRow(where, row, f"label {label!r}", f"{where}: label {label!r}", asked=True))

    def finish(self, path: Path, usable: int, nothing: str) -> None:
        """At the end of a file raise DataError if there are bad rows not to skip, or no usable ones (``nothing``)."""
        bad = [row for row in self.skipped if not row.asked]
        count = len(bad)
        if bad and self._raises:
            shown = bad[:SHOWN]
            advice = ADVICE.format(what="the data" if is_in_memory(path) else "the file")
            advice = sentences(*dict.fromkeys(row.advice for row in shown), advice)
            if count == 1:
                raise DataError(sentences(shown[0].message, advice))
            lines = [f"{path}: {counted(count, 'row')} cannot be used:"]
            lines += [f"  {row.message}" for row in shown]
            lines += [f"  and {count - SHOWN:,} more"] if count > SHOWN else []
            raise DataError("\n".join([*lines, advice]))
        if not usable:
            if not count:
                raise DataError(nothing)
            first = bad[0]
            raise DataError(
                sentences(f"{path}: no row can be used; the first of {count:,}: {first.message}", first.advice)
            )


def sentences(*parts: str) -> str:
    """The parts that are not empty, with a full stop between them where there is none."""
    *before, last = filter(None, parts)
    return " ".join([*(part if part.endswith((".", "?", ",")) else f"{part}." for part in before), last])


def all_or_none(examples: Iterable[Located], labelled: Iterable[bool], what: str = "label") -> None:
    """Raise DataError if a test file has labels in some rows only; names the first row without one."""
    flags = list(labelled)
    if 0 < sum(flags) < len(flags):
        first = next(example for example, has in zip(examples, flags, strict=True) if not has)
        raise DataError(
            f"{first.where}: no {what}, but other rows have it ({sum(flags):,} of {len(flags):,}). Label the whole "
            "test file, or none of it"
        )


HALF_PAIR = "a text has half of a surrogate pair, such as half an emoji, which no file can store"
REMOVE = "Remove half characters"
#: Texts that mean "no value" wherever the other values are numbers.
_NO_VALUE = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>"})
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.0*)?")


def is_missing(value: object) -> bool:
    """True for None, NaN, and text that is empty or white space."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, (float, np.floating)) and math.isnan(value))


def text_in(place: str, value: object) -> str:
    """The text of a cell, else RowError; ``place`` names it in messages, as in ``column 'text'``."""
    if is_missing(value):
        raise RowError("empty text", f"{place} is empty")
    if not isinstance(value, str):
        raise RowError("not text", f"{place} holds a {type(value).__name__}, {value!r:.40}, not a text")
    return value


def looks_missing(text: str) -> bool:
    """True for texts such as ``NA`` that stand for a missing value."""
    return text.strip().casefold() in _NO_VALUE


def whole_text(value: object) -> str:
    """``"1"`` for 1, 1.0, ``"1.0"`` and ``" 1 "``; other values, ``"01"`` among them, as stripped text."""
    text = str(value).strip()
    if not _WHOLE.fullmatch(text):
        return text
    whole = text.partition(".")[0].removeprefix("+")
    return "0" if whole == "-0" else whole
