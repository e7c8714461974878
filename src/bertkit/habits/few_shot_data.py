"""Texts and labels in the forms that users of SetFit have, and samples of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertkit.errors import DataError, InputError
from bertkit.habits.trainer_data import Row, rows_of

#: A label: a number, a name, or for several labels 0 or 1 for each.
Label = int | str | Sequence[int]
_NEEDED = ("text", "label")


class MadeRows(list[dict[str, Any]]):
    """Rows as dicts; ``rows["text"]`` is a column, as in the library ``datasets``."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self[0]) if self else []

    def __getitem__(self, place: Any) -> Any:
        return [row[place] for row in self] if isinstance(place, str) else super().__getitem__(place)


def texts_and_labels(
    dataset: Any, name: str, column_mapping: Mapping[str, str] | None = None
) -> tuple[list[str], list[Any]]:
    """Columns ``text`` and ``label`` of a data set; ``column_mapping``: its names to these.

    Raises:
        DataError: a column is missing (with the mapping to write), or a row has no text or label.
    """
    rows = rows_of(dataset, name)
    there = list(rows[0].keys())
    renamed = {new: old for old, new in (column_mapping or {}).items()}
    columns = [renamed.get(each, each) for each in _NEEDED]
    if missing := [column for column in columns if column not in there]:
        raise DataError(
            f"{name} has no column {missing[0]!r}, only {', '.join(map(repr, there))}: write "
            f"column_mapping={_suggested(rows[0])!r}"
        )
    texts, labels = ([row[column] for row in rows] for column in columns)
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{name}, row {number} (counted from 0): {columns[0]!r} is no text: {text!r:.60}")
        if label is None or (isinstance(label, float) and label != label):
            raise DataError(f"{name}, row {number} (counted from 0): {columns[1]!r} is empty; leave such rows out")
    return texts, labels


def _suggested(row: Row) -> dict[str, str]:
    """Which column has probably the text, and which the label."""
    texts = [name for name in row.keys() if isinstance(row[name], str)]  # noqa: SIM118
    text = "text" if "text" in texts else max(texts, key=lambda name: len(row[name]), default="TEXT")
    rest = [name for name in row.keys() if name != text]  # noqa: SIM118
    return {text: "text", ("label" if "label" in rest else rest[0] if rest else "LABEL"): "label"}


def sample_dataset(dataset: Any, label_column: str = "label", num_samples: int = 8, seed: int = 42) -> Any:
    """At most ``num_samples`` rows of each label, drawn by ``seed``, in a random order and in the form of ``dataset``.

    dataset: a ``datasets.Dataset``, a DataFrame, a dict of columns, or a list of dicts. Deviates: the rows that a seed
    draws are not those of SetFit.

    Raises:
        DataError: no rows, or no such column.
    """
    rows = rows_of(dataset, "dataset")
    if label_column not in rows[0].keys():  # noqa: SIM118
        raise DataError(
            f"dataset has no column {label_column!r}: write label_column= with one of {', '.join(rows[0].keys())}"
        )
    labels = [row[label_column] for row in rows]
    generator = np.random.default_rng(seed)
    left = dict.fromkeys(labels, num_samples)
    places = []
    for place in generator.permutation(len(rows)).tolist():
        if left[labels[place]] > 0:
            left[labels[place]] -= 1
            places.append(place)
    if hasattr(dataset, "select") and hasattr(dataset, "column_names"):
        return dataset.select(places)
    if hasattr(dataset, "iloc"):
        return dataset.iloc[places].reset_index(drop=True)
    if isinstance(dataset, Mapping):
        return {name: [values[place] for place in places] for name, values in dataset.items()}
    return dataset[places] if hasattr(dataset, "columns") else [rows[place] for place in places]


def get_templated_dataset(
    dataset: Any = None,
    candidate_labels: Sequence[str] | None = None,
    reference_dataset: str | None = None,
    template: str = "This sentence is {}",
    sample_size: int = 2,
    *,
    text_column: str = "text",
    label_column: str = "label",
    multi_label: bool = False,
) -> Any:
    """Texts made of the names of labels, ``sample_size`` each, for a classifier without training rows.

    candidate_labels: their names; the label of a text is the number of its name, or with ``multi_label`` a list of 0
    and 1. dataset: rows to put before them, of these two columns. Returns rows in the form of ``dataset``, without
    one :class:`MadeRows`. To classify without training at all there is
    ``pipeline("zero-shot-classification")``.

    Raises:
        InputError: no labels, or a template without ``{}``; labels of a ``reference_dataset``, which is not downloaded.
    """
    if not candidate_labels or "{}" not in template:
        raise InputError(
            "get_templated_dataset needs candidate_labels=['sports', 'politics'] and a template with {} for the label"
        )
    count = len(candidate_labels)
    numbers = [number for number in range(count) for _ in range(sample_size)]
    texts = [template.format(candidate_labels[number]) for number in numbers]
    labels = [[int(place == number) for place in range(count)] for number in numbers] if multi_label else numbers
    made: dict[str, list[Any]] = {text_column: texts, label_column: list(labels)}
    before = [] if dataset is None else rows_of(dataset, "dataset")
    columns = {name: [*(row[name] for row in before), *values] for name, values in made.items()}
    if isinstance(dataset, Mapping):
        return columns
    if hasattr(dataset, "from_dict"):  # of the library datasets
        return type(dataset).from_dict(columns)
    if hasattr(dataset, "columns"):  # a frame
        return type(dataset)(columns)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return MadeRows(rows) if dataset is None else rows
