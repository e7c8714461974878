"""How a file lists any number of labels per row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, did_you_mean, shorten

#: How a yes and a no are written in a column of a label's own.
_YES, _NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no", ""})


def listed_labels(value: object, separator: str) -> list[str]:
    """The labels in one cell: a list (JSON, Parquet), or text with a separator between them; blanks around are not
    part of a label, and an empty cell has none.
    """
    if isinstance(value, (list, tuple, np.ndarray)):
        return [str(part).strip() for part in value]
    return [part.strip() for part in str(value).split(separator) if part.strip()]


def label_numbers(value: object, labels: Sequence[str], written: Sequence[str], separator: str) -> tuple[int, ...]:
    """The numbers of the labels in one cell, in order.

    Args:
        value: see :func:`listed_labels`.
        labels: names of all labels.
        written: what a file holds for each; may be the names themselves.
        separator: between the labels of a text.

    Raises:
        DataError: something that is no label.
    """
    numbers = set()
    for text in listed_labels(value, separator):
        for names in (written, labels):
            if text in names:
                numbers.add(names.index(text))
                break
        else:
            raise DataError(
                f"label {text!r} is not one of {shorten(written, limit=12)}{did_you_mean(text, written)}. Correct the "
                f"row, or choose the separator of labels (label_separator=, now {separator!r})"
            )
    return tuple(sorted(numbers))


def flagged_labels(cells: Sequence[object], labels: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the labels whose own column says yes.

    Args:
        cells: a value for each label: 1 or 0, true or false, yes or no.
        labels: their names, for the message.

    Raises:
        DataError: another value.
    """
    numbers = []
    for number, (cell, name) in enumerate(zip(cells, labels, strict=True)):
        text = "" if cell is None else str(cell).strip().casefold()
        if text in _YES:
            numbers.append(number)
        elif text not in _NO:
            raise DataError(f"column {name!r} holds {cell!r:.40}, expected 1 or 0: whether the label applies")
    return tuple(numbers)


def indicators(labels: Sequence[tuple[int, ...]], num_labels: int) -> npt.NDArray[np.float32]:
    """1 where a row has a label, else 0: float32 ``(n, C)``, as the loss takes it."""
    found = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, numbers in enumerate(labels):
        found[row, list(numbers)] = 1.0
    return found
