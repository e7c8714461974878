"""The rows of a file with what a run says of them; every column is kept. Files are written by :mod:`bertkit.bulk`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date, time
from itertools import repeat
from pathlib import Path
from typing import Any

from bertkit.config.file_columns import Columns
from bertkit.errors import counted
from bertkit.inference.row_cells import Row, own_name
from bertkit.inference.row_files import Done
from bertkit.inference.run_files import text_places
from bertkit.inference.runs import Run
from bertkit.system.console import say
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Example
from bertkit.tasks.reading.excel import CellText
from bertkit.tasks.reading.file_rows import FileRow, Samples
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.text_rows import read_texts
from bertkit.tasks.tokens.span_files import is_brat

#: Columns of which none is named.
UNNAMED = Columns(text=())


def _check(source: Path) -> None:
    """DataError for what is neither a file nor a folder that is read as one."""
    if not is_brat(source):
        check_file(source)


def predicted_rows(run: Run, source: Path, columns: Columns) -> tuple[Samples, Iterator[Row]]:
    """The column names that are taken, and the rows with what is said of them, one by one."""
    _check(source)
    taken, parts = _predicted(run, source, columns)
    return taken, (row for part in parts for row in part)


def _predicted(run: Run, source: Path, given: Columns) -> tuple[Samples, Iterator[list[Row]]]:
    """The column names that are taken, and the rows window by window."""
    columns = columns_of(run, given)
    if columns is None:
        examples = run.workflow.read_file(source, "test")
        parts = run.answered(examples)
        if source.is_dir():  # of whose files each is a text
            return {}, (
                [{"file": Path(each.source).name, **answer} for each, answer in zip(window, answers, strict=True)]
                for window, answers in parts
            )
        return {}, (answers for _, answers in parts)
    taken, texts = read_texts(source, columns, inferred=not given.text, may_lack=True)
    answered = run.answered(texts, lambda row: Example(row.text, row.pair))
    return taken, (list(map(joined, window, answers, repeat(taken))) for window, answers in answered)


def joined(row: FileRow, answer: Mapping[str, Any], taken: Collection[str]) -> Row:
    """All columns of a row, and what is answered."""
    own = {own_name(field, taken): value for field, value in answer.items()}
    return {**{name: _plain(value) for name, value in row.columns.items()}, **own}


def _plain(value: Any) -> Json:
    """A value of a table as JSON has it: None for NaN and infinity, text for dates and the like, bytes in hex."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return CellText.of(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def columns_of(run: Run, given: Columns) -> Columns | None:
    """Where the texts are, see :func:`bertkit.inference.run_files.text_places`; None for a kind that reads others."""
    if not run.workflow.reads_texts:
        return None
    return text_places(run.task, given)


def report_marked(rows: Iterable[Row], max_length: int, taken: Collection[str]) -> Iterator[Row]:
    """The rows unchanged; at their end :func:`tell_marked`."""
    done = Done()
    for row in rows:
        done.count([row], taken)
        yield row
    tell_marked(done, max_length)


def tell_marked(done: Done, max_length: int) -> None:
    """Say on stderr how many texts were truncated, and how many have no text."""
    if done.truncated:
        were = "was" if done.truncated == 1 else "were"
        say(
            f"WARNING: {done.truncated:,} of {done.rows:,} inputs {were} longer than {max_length:,} tokens and {were} "
            "truncated as in training; their rows say truncated"
        )
    tell_empty(done.empty, done.rows)


def tell_empty(empty: int, total: int) -> None:
    """Say on stderr how many of the rows have no text."""
    if empty:
        verb, whose = ("has", "its row says") if empty == 1 else ("have", "their rows say")
        say(f"WARNING: {empty:,} of {counted(total, 'row')} {verb} no text and no label; {whose} empty")
