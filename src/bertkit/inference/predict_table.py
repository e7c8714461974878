"""Columns in, columns out: predictions for the rows of a table that is in memory, for any kind of run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.config.file_columns import Columns
from bertkit.errors import InputError
from bertkit.inference.analysis import open_any_run
from bertkit.inference.predict_files import UNNAMED, columns_of
from bertkit.inference.row_cells import own_name, table_of
from bertkit.inference.runs import Run
from bertkit.tasks.reading.tables import find_column, names_of

Values = Sequence[Any] | npt.NDArray[Any]
#: What answers say of a row of a file, and a row of a table has already.
_OF_FILES = ("row", "id", "gold")


def predict_table(run: str | Path | Run, columns: Mapping[str, Values], places: Columns = UNNAMED) -> dict[str, Values]:
    """The columns of a table with those of the predictions behind them; rows keep their order.

    Of texts with labels these are ``predicted``, ``probability`` (of that label), ``p_LABEL`` of each label,
    ``truncated`` and ``empty``; of other kinds what their answers hold. Numbers are numpy arrays, anything else lists.
    Where the table has a column of such a name, in whatever case, ours is called ``bertkit_NAME``. A table without rows
    gets no further columns.

    run: a run folder, a checkpoint with a sequence classifier, or what :func:`open_any_run` returned, which is loaded
        once for many tables.
    columns: values by name, as many in each. Of texts and pairs those that ``places`` names, else those that the run
        was trained on, else the usual ones; of other kinds ``tokens`` (lists of words), ``question`` and ``context``,
        ``context``, ``choices`` and perhaps ``start``, ``query`` and ``documents``, ``text`` (to write a text for),
        ``text`` and ``text_pair`` (to compare).
    """
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"the columns of a table have as many values each, got {sizes}")
    if not any(sizes.values()):
        return dict(columns)
    loaded = run if isinstance(run, Run) else open_any_run(run)
    fields = fields_of(loaded, list(columns), columns_of(loaded, places))
    named = enumerate(zip(*(columns[column] for column in fields.values()), strict=True))
    examples = (
        loaded.workflow.example_of(dict(zip(fields, values, strict=True)), f"row {number} (counted from 0)")
        for number, values in named
    )
    left_out = {*_OF_FILES, *loaded.workflow.fields}
    answers = [
        {own_name(field, columns): value for field, value in answer.items() if field not in left_out}
        for _, part in loaded.answered(examples)
        for answer in part
    ]
    return {**columns, **{name: _compact(cells) for name, cells in table_of(answers, columns).items()}}


def fields_of(run: Run, names: Sequence[str], places: Columns | None) -> dict[str, str]:
    """The column of each field that a run reads; DataError or InputError where it is not there."""
    if places is None:
        own = {field: field for field in run.workflow.fields if field in names}
        if not own:
            needed = " and ".join(run.workflow.fields) or "no columns: give a file as it was trained on to predict_file"
            raise InputError(
                f"task {run.workflow.task.name} is predicted from {needed}; the columns are {names_of(names)}"
            )
        return own
    found = {"text": find_column(Path("the table"), names, places.text, "text", "name it in Columns(text=...)")}
    if places.text_pair:
        advice = "name it in Columns(text_pair=...)"
        found["text_pair"] = find_column(Path("the table"), names, places.text_pair, "second text", advice)
    return found


def _compact(cells: list[Any]) -> Values:
    """Numbers, all of one type, as an array, in which NaN stands for none."""
    kinds = {type(cell) for cell in cells}
    if kinds == {float, type(None)}:
        return np.array(cells, dtype=np.float64)
    return np.array(cells) if len(kinds) == 1 and kinds <= {bool, int, float} else cells
