"""A battery that every task has to pass, in the manner of scikit-learn's ``check_estimator``."""

from __future__ import annotations

import json
import lzma
import tempfile
from pathlib import Path

from bertkit.errors import DataError
from bertkit.tasks.examples import Example, Split
from bertkit.tasks.reading.lines import open_binary
from bertkit.tasks.reading.splits import kind_of, splits_of
from bertkit.tasks.registry import Task, task_from_dict, task_to_dict
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.task import TextTask, score


def check_task(task: Task, folder: str | Path) -> list[str]:
    """Run the battery on a task and its real data.

    Args:
        task: the task, of any kind.
        folder: where its files are.

    Returns:
        One line for each check that passed.

    Raises:
        AssertionError: a check failed; the task is wrong.
        DataError: the data cannot be read at all.
    """
    if not isinstance(task, TextTask):
        from bertkit.tasks.check_kinds import check_other  # it reads files of other kinds, which few need

        return check_other(task, folder)
    passed = []
    splits = splits_of(task, folder)
    for split, path in splits.items():
        rows = load_split(task, folder, split)
        passed.append(_check_rows(task, split, rows))
        if split != "test" or rows[0].label is not None:
            passed.append(_check_perfect(task, split, rows))
        passed += _check_files(task, split, path, rows[0])
    passed += [_check_unknown_label(task), _check_plain_data(task)]
    return passed


def _check_rows(task: TextTask, split: Split, rows: list[Example]) -> str:
    seen = set()
    for row in rows:
        assert row.text.strip(), f"{row.where}: empty text"
        assert (row.text_pair is not None) == task.is_pair, f"{row.where}: a pair where none is due, or none where due"
        if row.label is None:
            assert split == "test", f"{row.where}: no label in {split}"
        elif task.labels is None:
            low, high = task.score_range or (-float("inf"), float("inf"))
            assert isinstance(row.label, float), f"{row.where}: score {row.label!r}"
            assert low <= row.label <= high, f"{row.where}: score {row.label!r}"
        elif task.multi_label:
            assert isinstance(row.label, tuple), f"{row.where}: label {row.label!r}"
            assert task.label_of(_as_written(task, row.label)) == row.label, f"{row.where}: labels do not round-trip"
        else:
            assert isinstance(row.label, int), f"{row.where}: label {row.label!r}"
            assert task.label_of(task.labels[row.label]) == row.label, f"{row.where}: label does not round-trip"
        seen.add(row.row)
    assert len(seen) == len(rows), f"{split}: two rows claim one line"
    return f"{split}: {len(rows):,} rows; labels round-trip through their names"


def _as_written(task: TextTask, numbers: tuple[int, ...]) -> object:
    """Several labels as a file of the task holds them."""
    if task.columns.label_columns:
        return tuple(int(number in numbers) for number in range(task.num_labels))
    return task.columns.label_separator.join((task.labels or ())[number] for number in numbers)


def _check_perfect(task: TextTask, split: Split, rows: list[Example]) -> str:
    right = [row.label for row in rows if row.label is not None]
    assert len(right) == len(rows), f"{split}: some rows have no label"
    values = score(task, right, right)
    assert tuple(values) == task.metrics, f"{task.name}: scores {list(values)} are not the metrics {task.metrics}"
    for name, value in values.items():
        assert abs(value - 1.0) < 1e-9, f"{task.name}: {name} of perfect predictions is {value}"
    return f"{split}: perfect predictions score 1.0"


def _check_files(task: TextTask, split: Split, path: Path, first: Example) -> list[str]:
    """Copies of the head of the real file, spoilt in known ways, must be refused by name and line."""
    kind = kind_of(path)
    if kind == ".parquet":
        return []
    assert kind is not None
    with open_binary(path) as stream:
        head = [stream.readline() for _ in range(first.row + 3)]
    passed = []
    with tempfile.TemporaryDirectory() as folder:
        spoilt = Path(folder) / f"{split}{kind}"
        spoilt.write_bytes(b"")
        _refused(task, spoilt, split, f"{spoilt} is empty")
        packed = Path(folder) / f"{split}{kind}.xz"
        packed.write_bytes(lzma.compress(b"".join(head))[:-20])
        _refused(task, packed, split, f"{packed}: damaged or cut short")
        bad_row = (
            b"{\n" if kind == ".jsonl" else head[first.row].rstrip(b"\r\n") + (b"\tx\n" if kind == ".tsv" else b",x\n")
        )
        for spoil in (bad_row, b"caf\xe9" + head[first.row], b"\0" + head[first.row]):
            spoilt.write_bytes(b"".join([*head[: first.row], spoil, *head[first.row + 1 :]]))
            _refused(task, spoilt, split, f"{spoilt}:{first.row + 1}: ")
        passed.append(f"{split}: empty and damaged files, and one bad row by file and line, are refused")
    return passed


def _refused(task: TextTask, path: Path, split: Split, said: str) -> None:
    try:
        load_split(task, path, split)
    except DataError as error:
        told = str(error)
    else:
        told = "no error"
    assert said in told, f"{task.name}: a spoilt file gave {told!r}, expected an error that says {said!r}"


def _check_unknown_label(task: TextTask) -> str:
    none = ("no such label",) * task.num_labels if task.columns.label_columns else "no such label"
    try:
        taken = task.label_of(none)
    except DataError:
        return "a label that is none is refused"
    raise AssertionError(f"{task.name}: takes the label 'no such label' for {taken!r}")


def _check_plain_data(task: TextTask) -> str:
    again = task_from_dict(json.loads(json.dumps(task_to_dict(task))))
    assert again == task, f"{task.name}: differs after a round trip through JSON"
    return "the task survives a round trip through JSON"
