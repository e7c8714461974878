"""The checks of text tasks for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bertkit.errors import DataError
from bertkit.tasks.battery import Battery
from bertkit.tasks.examples import Example, Split
from bertkit.tasks.text.task import TextTask, score


class TextBattery(Battery[TextTask, Example]):
    """Texts and pairs of texts."""

    rows_passed = "rows; labels round-trip through their names"

    def check_rows(self, rows: Sequence[Example], split: Split) -> None:
        task = self.task
        for row in rows:
            assert row.text.strip(), f"{row.where}: empty text"
            assert (row.text_pair is not None) == task.is_pair, f"{row.where}: a pair where none is expected, or none"
            if row.label is None:
                assert split == "test", f"{row.where}: no label in {split}"
            elif task.labels is None:
                low, high = task.score_range or (-math.inf, math.inf)
                assert isinstance(row.label, float), f"{row.where}: score {row.label!r}"
                assert low <= row.label <= high, f"{row.where}: score {row.label!r}"
            else:
                assert isinstance(row.label, tuple if task.multi_label else int), f"{row.where}: label {row.label!r}"
                assert task.label_of(self._as_written(row.label)) == row.label, (
                    f"{row.where}: label does not round-trip"
                )
        assert len({row.row for row in rows}) == len(rows), f"{split}: two rows claim one line"

    def perfect(self, rows: Sequence[Example]) -> dict[str, float]:
        right = [row.label for row in rows]
        assert all(label is not None for label in right), "some rows have no label"
        values = score(self.task, right, right)  # type: ignore[arg-type]
        assert tuple(values) == self.task.metrics, f"scores {list(values)} are not the metrics {self.task.metrics}"
        return values

    def check_more(self) -> list[str]:
        several = bool(self.task.columns.label_columns)
        try:
            taken = self.task.label_of(("no such label",) * self.task.num_labels if several else "no such label")
        except DataError:
            return ["an unknown label is refused"]
        raise AssertionError(f"{self.task.name}: takes the label 'no such label' for {taken!r}")

    def _as_written(self, label: int | float | tuple[int, ...]) -> object:
        names = self.task.labels or ()
        if not isinstance(label, tuple):
            return names[int(label)]
        if self.task.columns.label_columns:
            return tuple(int(number in label) for number in range(self.task.num_labels))
        return self.task.columns.label_separator.join(names[number] for number in label)
