"""The labels of a config from the three forms in which files give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertkit.errors import counted
from bertkit.system.untrusted_files import Json

#: The forms, by their keys.
LABEL_KEYS = ("id2label", "label2id", "num_labels")
#: The default labels, before and after JSON.
_DEFAULT_TWO: tuple[dict[Any, str], ...] = ({0: "LABEL_0", 1: "LABEL_1"}, {"0": "LABEL_0", "1": "LABEL_1"})


def check_labels(id2label: Mapping[int, str]) -> None:
    """Labels must be numbered ``0 ... n-1`` and differ; anything else is a ValueError."""
    if sorted(id2label) != list(range(len(id2label))):
        raise ValueError(f"id2label must number its labels 0 ... n-1, got {sorted(id2label)[:10]}")
    if len(set(id2label.values())) != len(id2label):
        raise ValueError(f"id2label uses a label twice: {list(id2label.values())[:10]}")


def merged_labels(id2label: Any, label2id: Any, num_labels: Any) -> Any:
    """``id2label`` from whichever of the three forms are given; None if none is. A contradiction is a ValueError.

    Other names in ``label2id`` are ignored: files often have the default ``LABEL_0 ...`` beside real names, or several
    spellings of a label. The two default labels are ignored if ``num_labels`` is not 2: transformers 2 wrote them for
    every classifier. Names that are numbers, as scripts write them, become texts.
    """
    if num_labels is not None and (type(num_labels) is not int or not 1 <= num_labels <= 1_000_000):
        raise ValueError(f"num_labels must be a whole number from 1 to 1,000,000, got {num_labels!r:.80}")
    for name, given in (("id2label", id2label), ("label2id", label2id)):
        if given is not None and not isinstance(given, dict):
            raise ValueError(f"{name} must be an object, got {given!r:.80}")
    if num_labels not in (None, 2) and id2label in _DEFAULT_TWO and label2id in (None, {"LABEL_0": 0, "LABEL_1": 1}):
        id2label = label2id = None
    numbers = {_name(label): _label_number(label, number) for label, number in (label2id or {}).items()}
    if id2label is None and not numbers:
        return None if num_labels is None else {number: f"LABEL_{number}" for number in range(num_labels)}
    pairs = [(number, label) for label, number in numbers.items()]
    if id2label is not None:
        pairs = [(_label_number(label, number), _name(label)) for number, label in id2label.items()]
    labels = dict(pairs)
    if len(labels) != len(pairs):
        raise ValueError(f"two labels have the same number: {pairs!r:.80}")
    if num_labels is not None and num_labels != len(labels):
        raise ValueError(f"num_labels={num_labels} but id2label names {counted(len(labels), 'label')}")
    for number, label in labels.items():
        if not isinstance(label, str):
            raise ValueError(f"id2label.{number} = {label!r:.80}: expected text")
        other = numbers.get(label, number)
        if other != number:
            raise ValueError(
                f"id2label calls number {number} {label!r:.80}, but label2id gives it the number {other}; correct one "
                "of them, or leave label2id out"
            )
    return labels


def _name(label: Json) -> Json:
    """A label by its text, where a script has written a number."""
    return str(label) if type(label) in (int, float) else label


def _label_number(label: Json, number: Json) -> int:
    """The number of a label, which a JSON object holds as text."""
    if isinstance(number, str) and number.isdecimal() and len(number) < 10:
        return int(number)
    if type(number) is not int:
        raise ValueError(f"the number of the label {label!r:.80} must be a whole number, got {number!r:.80}")
    return number
