"""A text or a pair of texts as a caller passes it, brought into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.errors import InputError
from bertkit.tokenization.features import Text


def read_text(item: Any, where: str, pair_required: bool = False) -> Text:
    """A text, a pair of two, or either by the names ``text`` and ``text_pair``; ``where`` names it in errors."""
    if type(item) is str and not pair_required:  # first, since nearly all are: asking for a Mapping takes longer
        return item, None
    if isinstance(item, Mapping):
        if "text" not in item or item.keys() - {"text", "text_pair"}:
            keys = sorted(map(str, item))
            raise InputError(f"{where} is a dict with the keys {keys}; expected 'text' and 'text_pair'")
        first, second = _text(item["text"], f"'text' of {where}"), item.get("text_pair")
        if second is None and pair_required:
            raise InputError(f"{where} has no 'text_pair'; this task needs two texts")
        return first, None if second is None else _text(second, f"'text_pair' of {where}")
    if isinstance(item, Sequence) and not isinstance(item, str | bytes) and len(item) == 2:
        return _text(item[0], f"the first half of {where}"), _text(item[1], f"the second half of {where}")
    if isinstance(item, str) and pair_required:
        raise InputError(
            f"{where} is a single text; this task needs a pair: ('first', 'second') or "
            "{'text': 'first', 'text_pair': 'second'}"
        )
    return _text(item, where), None


def _text(value: Any, where: str) -> str:
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        raise InputError(
            f"{where} is missing ({value!r}): leave out such rows, with series.dropna() in pandas and drop_nulls() in "
            "polars, or make them empty texts with fillna('') and fill_null('')"
        )
    if not isinstance(value, str):
        hint = "; decode it first, for example with .decode('utf-8')" if isinstance(value, bytes) else ""
        raise InputError(f"{where} must be a str, got {type(value).__name__}{hint}")
    return value
