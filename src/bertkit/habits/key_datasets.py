"""One column, or two, of a data set whose rows are dictionaries: what pipelines read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

RowT = TypeVar("RowT", covariant=True)


class Rows(Protocol[RowT]):
    """Rows by number."""

    def __len__(self) -> int: ...
    def __getitem__(self, number: int) -> RowT: ...


class KeyDataset:
    """The column ``key`` of a data set."""

    def __init__(self, dataset: Rows[Any], key: str) -> None:
        self.dataset, self.key = dataset, key

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        return self.dataset[number][self.key]

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))


class KeyPairDataset(KeyDataset):
    """The columns ``key1`` and ``key2`` of a data set, as pairs of texts."""

    def __init__(self, dataset: Rows[Any], key1: str, key2: str) -> None:
        super().__init__(dataset, key1)
        self.key1, self.key2 = key1, key2

    def __getitem__(self, number: int) -> dict[str, str]:
        row = self.dataset[number]
        return {"text": row[self.key1], "text_pair": row[self.key2]}
