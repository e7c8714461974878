"""From a task and a file to examples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bertkit.errors import DataError
from bertkit.tasks.examples import Example, Examples, Split
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, looks_missing, text_in
from bertkit.tasks.reading.splits import split_path
from bertkit.tasks.reading.tables import Table, column_of, columns_to_search, find_column, names_of, open_table
from bertkit.tasks.text.task import TextTask


def load_split(task: TextTask, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
    """Read one split of a task.

    Args:
        task: from :data:`bertkit.tasks.TASKS` or :func:`bertkit.tasks.csv_task`.
        data: a file, the task's folder, or a folder that contains the task's folder.
        split: train, dev or test. Labels may be absent from test alone; they are then None in every example.
        on_error: "raise" refuses a file with bad rows and names them; "skip" leaves them out and lists them, each with
            its reason, in ``.skipped`` of the result. A quote left open or a damaged file raises in either case.

    Returns:
        The examples, in the file's order.

    Raises:
        DataError: no such split, a missing column, no rows, or bad rows: each with file, line, what was found, what was
            expected.
    """
    return read_examples(task, split_path(task, data, split), split, on_error=on_error)


def read_examples(task: TextTask, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[Example]:
    """The examples of one file, whatever its name says; as :func:`load_split`."""
    bad = BadRows(on_error, gather=True)
    table = open_table(path, task.columns, bad)
    names, has_label = _columns_of(task, path, table, split)
    num_texts, source = 2 if task.is_pair else 1, str(path)
    rows = []
    for line, values in table.rows(names):
        try:
            empty = num_texts == 2 and task.columns.empty_pair and values[1] == ""
            texts = [
                text_in(f"column {name!r}", value)
                for name, value in zip(names, values[: num_texts - empty], strict=False)
            ]
            if has_label and (dropped := task.dropped(values[num_texts])) is not None:
                bad.leave_out(path, line, dropped)
                continue
            label = _label(task, names[-1], values[num_texts:], split) if has_label else None
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        rows.append(Example(texts[0], "" if empty else texts[1] if task.is_pair else None, label, line, source))
    bad.finish(path, len(rows), f"{path} has the columns {names_of(table.columns)} but no rows")
    if split == "test":
        all_or_none(rows, [row.label is not None for row in rows], f"label in column {names[-1]!r}")
    return Examples(rows, path, split, bad.skipped)


def _columns_of(task: TextTask, path: Path, table: Table, split: Split) -> tuple[list[str], bool]:
    layout = task.columns
    names = [find_column(path, table.columns, layout.text, "text", "choose one with --text")]
    if layout.text_pair:
        names.append(find_column(path, table.columns, layout.text_pair, "second text", "choose one with --text-pair"))
    wanted: Sequence[Sequence[str]] = [[name] for name in layout.label_columns] or [layout.label]
    there = table.columns
    if split == "test" and not layout.label_columns:
        there = columns_to_search(table, layout.label)
    has_label = split != "test" or any(column_of(there, group) is not None for group in wanted)
    if has_label:
        names += [find_column(path, there, group, "label", "choose one with --label") for group in wanted]
    return names, has_label


def _label(task: TextTask, column: str, cells: Sequence[object], split: Split) -> int | float | tuple[int, ...] | None:
    """The label in the cells of a row; None where a test file hides it."""
    flags = bool(task.columns.label_columns)
    cell = cells if flags else cells[0]
    if split == "test" and task.hub_labels and cell == -1:
        return None
    try:
        label = task.label_of(cell)
    except DataError as error:
        kind = "missing label" if not flags and looks_missing(str(cell)) else "unknown label"
        raise RowError(kind, str(error) if flags else f"column {column!r}: {error}") from None
    if label is None and split != "test":
        raise RowError("missing label", f"column {column!r} has no label ({cell!r})")
    return label
