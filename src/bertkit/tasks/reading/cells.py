"""What the value of a cell means: a text, a missing value, a whole number."""

from __future__ import annotations

import math
import re

import numpy as np

from bertkit.tasks.reading.bad_rows import RowError

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
