"""From a table of sources and targets to examples."""

from __future__ import annotations

from pathlib import Path

from bertkit.tasks.examples import Examples, Split
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, text_in
from bertkit.tasks.reading.tables import column_of, columns_to_search, find_column, names_of, open_table
from bertkit.tasks.seq2seq.task import Seq2SeqExample, Seq2SeqTask


def read_seq2seq(
    task: Seq2SeqTask, path: Path, split: Split, *, on_error: OnError = "raise"
) -> Examples[Seq2SeqExample]:
    """The examples of one file; targets may be absent from test alone."""
    bad = BadRows(on_error, gather=True)
    table = open_table(path, task.columns, bad)
    names = [find_column(path, table.columns, task.columns.text, "source", "choose one with --source")]
    there = columns_to_search(table, task.columns.label) if split == "test" else table.columns
    if split != "test" or column_of(there, task.columns.label) is not None:
        others = [name for name in there if name != names[0]]
        names.append(find_column(path, others, task.columns.label, "target", "choose one with --target"))
    rows = []
    for line, values in table.rows(names):
        try:
            hidden = split == "test" and values[-1] is None and len(values) == 2
            given = zip(names, values[:1] if hidden else values, strict=False)
            texts = [text_in(f"column {name!r}", value) for name, value in given]
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        rows.append(Seq2SeqExample(texts[0], texts[1] if len(texts) > 1 else None, line, str(path)))
    bad.finish(path, len(rows), f"{path} has the columns {names_of(table.columns)} but no rows")
    if split == "test":
        all_or_none(rows, [row.target is not None for row in rows], "target")
    return Examples(rows, path, split, bad.skipped)
