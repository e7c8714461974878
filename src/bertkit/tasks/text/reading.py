"""From a task and a file to examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bertkit.errors import DataError, did_you_mean
from bertkit.tasks.examples import Example, Examples, Split
from bertkit.tasks.reading.splits import split_path
from bertkit.tasks.reading.tables import BadRows, OnError, Table, open_table
from bertkit.tasks.text.task import TextTask, is_missing, looks_missing


def load_split(task: TextTask, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
    """Read one split of a task.

    Args:
        task: from :data:`bertkit.tasks.TASKS` or :func:`bertkit.tasks.csv_task`.
        data: a file, the task's folder, or a folder that contains the task's folder.
        split: train, dev or test. Labels may be absent from test alone; they are then None in every example.
        on_error: "raise" stops at the first bad row; "skip" leaves bad rows out and lists them, each with its reason,
            in ``.skipped`` of the result. A quote left open or a damaged file stops in either case.

    Returns:
        The examples, in the file's order.

    Raises:
        DataError: no such split, a missing column, no rows, or a bad row: named with file, line, what was found, what
            was expected.
    """
    return read_examples(task, split_path(task, data, split), split, on_error=on_error)


def read_examples(task: TextTask, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
    """The examples of one file, whatever its name says; as :func:`load_split`."""
    bad = BadRows(on_error)
    table = open_table(path, task.columns, bad)
    names, has_label = _columns_of(task, path, table, split)
    checks = _TextChecks(path, bad, task.columns.empty_pair)
    rows = []
    source, pair, flags = str(path), task.is_pair, bool(task.columns.label_columns)
    hidden = -1 if task.hub_labels and split == "test" else object()
    for line, values in table.rows(names):
        if not checks.usable(line, names, values[: 2 if pair else 1]):
            continue
        label: int | float | tuple[int, ...] | None = None
        if has_label:
            cell = values[2 if pair else 1 :] if flags else values[-1]
            try:
                label = None if not flags and hidden == cell else task.label_of(cell)
            except DataError as error:
                kind = "missing label" if not flags and looks_missing(str(cell)) else "unknown label"
                bad.report(path, line, kind, str(error) if flags else f"column {names[-1]!r}: {error}")
                continue
            if label is None and split != "test":
                bad.report(path, line, "missing label", f"column {names[-1]!r} has no label ({cell!r})")
                continue
        rows.append(Example(values[0], values[1] if pair else None, label, line, source))
    if not rows:
        raise DataError(_no_rows(path, table, bad))
    if split == "test":
        _all_or_none(rows, names[-1])
    return Examples(rows, path, split, bad.skipped)


def find_column(path: Path, columns: Sequence[str], wanted: Sequence[str], what: str, option: str) -> str:
    """The first of ``wanted`` that the file has.

    Raises:
        DataError: none of them; the message lists the file's columns and the nearest one.
    """
    for name in wanted:
        if name in columns:
            return name
    near = next((hint for hint in (did_you_mean(name, columns) for name in wanted) if hint), "")
    sought = " or ".join(repr(name) for name in wanted[:3])
    raise DataError(
        f"{path}: no {what} column {sought}{near}. The columns are {list(columns)}; choose one with {option}"
    )


def _columns_of(task: TextTask, path: Path, table: Table, split: Split) -> tuple[list[str], bool]:
    """Names of the columns to read, the label last when there is one."""
    layout = task.columns
    names = [find_column(path, table.columns, layout.text, "text", "--text")]
    if layout.text_pair:
        names.append(find_column(path, table.columns, layout.text_pair, "second text", "--text-pair"))
    if layout.label_columns:
        there = [name for name in layout.label_columns if name in table.columns]
        if there or split != "test":
            names += [find_column(path, table.columns, [name], "label", "--label") for name in layout.label_columns]
        return names, bool(there)
    has_label = any(name in table.columns for name in layout.label)
    if has_label or split != "test":
        names.append(find_column(path, table.columns, layout.label, "label", "--label"))
        has_label = True
    return names, has_label


class _TextChecks:
    """What a text must be, whatever the file: a string with something in it."""

    def __init__(self, path: Path, bad: BadRows, empty_pair: bool) -> None:
        self._report: Callable[[int, str, str], None] = lambda row, kind, text: bad.report(path, row, kind, text)
        self._empty_pair = empty_pair

    def usable(self, line: int, names: Sequence[str], texts: Sequence[object]) -> bool:
        """Whether the texts of a row are texts; a bad one is reported, which raises unless bad rows are left out."""
        for number, (name, text) in enumerate(zip(names, texts, strict=False)):
            if not isinstance(text, str) and not is_missing(text):
                self._report(
                    line, "not text", f"column {name!r} holds a {type(text).__name__}, {text!r:.40}, not a text"
                )
                return False
            if is_missing(text) and not (number == 1 and self._empty_pair and text == ""):
                self._report(
                    line,
                    "empty text",
                    f"column {name!r} is empty; remove the row, or leave bad rows out "
                    "(on_error='skip', --on-error skip)",
                )
                return False
        return True


def _no_rows(path: Path, table: Table, bad: BadRows) -> str:
    if bad.skipped:
        return f"{path}: all {len(bad.skipped):,} rows are bad; the first: {bad.skipped[0].message}"
    return f"{path} has the columns {list(table.columns)} but no rows"


def _all_or_none(rows: Sequence[Example], column: str) -> None:
    labelled = sum(row.label is not None for row in rows)
    if 0 < labelled < len(rows):
        first = next(row for row in rows if row.label is None)
        raise DataError(
            f"{first.where}: column {column!r} has no label, but {labelled:,} of {len(rows):,} rows have one. "
            "Label the whole test file, or none of it"
        )
