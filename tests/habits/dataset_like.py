"""A table with the interface of ``datasets.Dataset``, which is not installed here: what people pass to a trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np


class Dataset:
    """Columns by name; rows as dictionaries."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = {name: list(values) for name, values in columns.items()}

    @classmethod
    def from_dict(cls, columns: Mapping[str, Sequence[Any]]) -> Dataset:
        return cls(columns)

    @classmethod
    def from_list(cls, rows: Sequence[Mapping[str, Any]]) -> Dataset:
        return cls({name: [row[name] for row in rows] for name in rows[0]})

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        return {name: values[key] for name, values in self._columns.items()}

    def map(self, function: Callable[[Any], Mapping[str, Any]], batched: bool = False) -> Dataset:
        if batched:
            return Dataset({**self._columns, **function(self._columns)})
        return Dataset.from_list([{**row, **function(row)} for row in self])

    def select(self, places: Sequence[int]) -> Dataset:
        return Dataset({name: [values[place] for place in places] for name, values in self._columns.items()})

    def shuffle(self, seed: int) -> Dataset:
        return self.select(np.random.default_rng(seed).permutation(len(self)).tolist())

    def rename_column(self, old: str, new: str) -> Dataset:
        return Dataset({new if name == old else name: values for name, values in self._columns.items()})

    def train_test_split(self, test_size: float, seed: int) -> dict[str, Dataset]:
        mixed, cut = self.shuffle(seed), round(len(self) * (1 - test_size))
        return {"train": mixed.select(range(cut)), "test": mixed.select(range(cut, len(self)))}
