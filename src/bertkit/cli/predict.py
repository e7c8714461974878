"""``bertkit predict``: label a whole file with a finished run."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.block_options import Blocks, refuse_file, write_folder
from bertkit.cli.common_options import Computing, Source, check_format, read_texts, write_json, write_line
from bertkit.cli.results import ID, Excel, check_excel
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, counted
from bertkit.system.console import one_line, say

Inputs = Annotated[
    str,
    Parameter(
        help="Files, folders or patterns: .txt (one text per line), .csv, .tsv, .xlsx, .json, .jsonl, .parquet; s3:// "
        "and gs:// addresses; or -."
    ),
]


def predict(
    *file: Inputs,
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or folder or Hub name of a classifier.")],
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="Write this .jsonl, .csv, .tsv, .xlsx or .parquet file, or a folder of parts."),
    ] = None,
    excel: Excel = False,
    blocks: Blocks = Blocks(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Label whole files.

    With --out, it can be interrupted; the same command resumes. Rows that cannot be
    read or answered are marked, counted, and listed in a file of errors.
    Without it, prints one line per text: label, probability, text. Texts longer
    than in training are truncated as in training, and flagged.

    Input is cut into blocks, which workers, shards or a Ray cluster share; results
    are the same bytes whoever computes them. 'bertkit predict-status DIR' shows how
    far a folder is, 'bertkit merge DIR FILE' makes one file of it.

    For example:

        bertkit predict --model run reviews.csv --out labelled.csv
        bertkit predict --model run "texts/*.parquet" --out labels --workers 4
        bertkit predict --model run texts --out labels --shard 3/16
        cat lines.txt | bertkit predict --model run --json -
    """
    common.begin()
    from bertkit.inference.row_files import FORMATS, claimed, write_rows
    from bertkit.system.device import check_device

    check_device(common.device)
    check_excel(out, excel=excel)
    if not file:
        raise ConfigError("no file: name the files to label, or - for standard input, one text per line")
    if out is None:
        blocks.refuse("give --out as well")
        if len(file) > 1:
            raise ConfigError(f"rows are printed for one file, and {len(file)} are given: give --out as well")
        taken, rows = _predicted(Path(file[0]), model, columns, common)
        for row in rows:
            _show(row, taken, common)
        return
    refuse_file(out, FORMATS)
    if STANDARD_STREAM in file:
        if len(file) > 1:
            raise ConfigError(f"standard input (-) is read alone, and {len(file)} inputs are given: name files only")
        blocks.refuse("name a file, - is read by this process")
        check_format(out, FORMATS)
        with claimed(out):
            count = write_rows(_predicted(Path(file[0]), model, columns, common)[1], out, excel=excel)
    else:
        from bertkit.bulk.planner import What, compute_file, is_file_name

        device = common.device or "auto"
        what = What(model, "predict", columns.places, device, common.precision, common.threads)
        if not is_file_name(out):
            write_folder(what, file, out, blocks, common)
            return
        check_format(out, FORMATS)
        count = compute_file(what, file, out, blocks.how(), excel=excel).rows
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
