"""``bertkit predict``: label a whole file with a finished run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Common, Source, read_texts, write_json, write_line
from bertkit.cli.task_options import TEXT_COLUMNS, TextColumns
from bertkit.errors import ConfigError, DataError
from bertkit.system.console import say


def predict(
    file: Annotated[
        Path,
        Parameter(help="One text per line (.txt), or a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file; or -."),
    ],
    /,
    *,
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or folder or Hub name of a classifier.")],
    out: Annotated[Path | None, Parameter(alias="-o", help="Write this .jsonl, .csv, .tsv or .parquet file.")] = None,
    columns: TextColumns = TextColumns(),
    common: Common = Common(),
) -> None:
    """Label a whole file.

    With --out the work can be stopped at any time; the same command resumes.
    Without it, prints one line per text: label, probability, text. Texts longer
    than in training are truncated as in training, and flagged.

    For example:

        bertkit predict --model run reviews.csv --out labelled.csv
        cat lines.txt | bertkit predict --model run --json -
    """
    common.begin()
    from bertkit.inference.predict_files import check_format, claimed, predict_file, write_table
    from bertkit.system.device import find_device

    device = str(find_device(common.device))
    if out is None:
        for row in _predicted(file, model, columns, device):
            _show(row, common)
        return
    check_format(out)
    if str(file) == STANDARD_STREAM:
        with claimed(out):
            count = write_table(_predicted(file, model, columns, device), out)
    else:
        count = predict_file(model, file, out, columns.places, device=device)
    say(f"wrote {count:,} rows to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count})


def _predicted(file: Path, model: str, columns: TextColumns, device: str) -> Iterator[dict[str, Any]]:
    """The rows, and at the end what is marked in them."""
    from bertkit.inference.predict_files import predicted_rows, tell_marked
    from bertkit.inference.runs import Classifier, open_run, predict_run

    run = open_run(model, device=device)
    if str(file) == STANDARD_STREAM:
        if not isinstance(run, Classifier):
            raise ConfigError(f"standard input holds one text per line; task {run.workflow.task.name} needs a file")
        if replace(columns, encoding=None) != TEXT_COLUMNS:
            raise ConfigError("standard input holds one text per line and has no columns")
        rows = predict_run(run, read_texts((STANDARD_STREAM,), Source(encoding=columns.encoding)))
    elif not file.is_file():
        raise DataError(f"{file} does not exist")
    else:
        rows = predicted_rows(run, file, columns.places)
    yield from tell_marked(rows, run.max_length)


def _show(row: dict[str, Any], common: Common) -> None:
    if common.json:
        write_json(row)
        return
    if "truncated" not in row or "text" not in row:  # not a text with a label
        write_line(json.dumps(row, ensure_ascii=False))
        return
    shown, shares = row["predicted"], row.get("probabilities")
    if isinstance(shown, list) and shares is not None:
        shown = "|".join(shown) + "\t" + "|".join(f"{shares[label]:.4f}" for label in shown)
    elif shares is not None:
        shown = f"{shown}\t{shares[shown]:.4f}"
    texts = "\t".join(row[key] for key in ("text", "text_pair") if key in row)
    notes = [note for note, key in (("(cut)", "truncated"), ("(empty)", "empty")) if row.get(key) is True]
    write_line("\t".join([str(shown), texts, *notes]))
