"""``bertkit predict``: label a whole file with a finished run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.cluster import TextFile
from bertkit.cli.common_options import Computing, Source, check_format, read_texts, write_json, write_line
from bertkit.cli.results import ID, Excel, check_excel
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, counted
from bertkit.system.console import one_line, say


def predict(
    file: TextFile,
    /,
    *,
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or folder or Hub name of a classifier.")],
    out: Annotated[
        Path | None, Parameter(alias="-o", help="Write this .jsonl, .csv, .tsv, .xlsx or .parquet file.")
    ] = None,
    excel: Excel = False,
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Label a whole file.

    With --out, it can be interrupted; the same command resumes.
    Without it, prints one line per text: label, probability, text. Texts longer
    than in training are truncated as in training, and flagged.

    For example:

        bertkit predict --model run reviews.csv --out labelled.csv
        cat lines.txt | bertkit predict --model run --json -
    """
    common.begin()
    from bertkit.inference.predict_files import predict_file
    from bertkit.inference.row_files import FORMATS, claimed, write_rows
    from bertkit.system.device import check_device

    check_device(common.device)
    check_excel(out, excel=excel)
    if out is None:
        taken, rows = _predicted(file, model, columns, common)
        for row in rows:
            _show(row, taken, common)
        return
    check_format(out, FORMATS)
    if str(file) == STANDARD_STREAM:
        with claimed(out):
            count = write_rows(_predicted(file, model, columns, common)[1], out, excel=excel)
    else:
        device = common.device or "auto"
        count = predict_file(model, file, out, columns.places, device=device, excel=excel, **common.engine)
    say(f"wrote {counted(count, 'row')} to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count})


def _predicted(
    file: Path, model: str, columns: TextColumns, common: Computing
) -> tuple[Collection[str], Iterator[dict[str, Any]]]:
    """The column names that are taken, and the rows; the number of marked rows goes to stderr at the end."""
    from bertkit.inference.analysis import open_any_run
    from bertkit.inference.predict_files import predicted_rows, report_marked
    from bertkit.inference.runs import predict_run

    run = open_any_run(model, device=common.device or "auto", **common.engine)
    if str(file) == STANDARD_STREAM:
        if not run.workflow.reads_texts:
            raise ConfigError(f"standard input holds one text per line; task {run.workflow.task.name} needs a file")
        taken: Collection[str] = ()
        rows = predict_run(run, read_texts((STANDARD_STREAM,), Source(columns=columns)))
    else:
        taken, rows = predicted_rows(run, file, columns.places)
    return taken, report_marked(rows, run.max_length, taken)


def _show(row: dict[str, Any], taken: Collection[str], common: Computing) -> None:
    from bertkit.inference.row_cells import own_name

    if common.json:
        write_json(row)
        return
    fields = ("text", "text_pair", "predicted", "probabilities", "truncated", "empty")
    text, pair, shown, shares, truncated, empty = (row.get(own_name(field, taken)) for field in fields)
    if truncated is None or text is None:  # not a text with a label
        write_line(json.dumps(row, ensure_ascii=False))
        return
    if shown is None:
        shown = "(none)"
    elif isinstance(shown, list) and shares is not None:
        shown = "|".join(shown) + "\t" + "|".join(f"{shares[label]:.4f}" if label in shares else "" for label in shown)
    elif shares is not None:
        shown = f"{shown}\t{shares[shown]:.4f}"
    notes = [note for note, marked in (("(cut)", truncated), ("(empty)", empty)) if marked is True]
    name = [] if row.get(ID) in (None, "") else [one_line(str(row[ID]))]
    write_line("\t".join([str(shown), *name, one_line(text), *([] if pair is None else [one_line(pair)]), *notes]))
