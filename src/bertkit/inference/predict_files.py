"""Predict for a whole file: keeps every column, needs bounded memory, resumes after a stop, and writes tables."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.config.file_columns import Columns
from bertkit.engine.backend import Precision
from bertkit.engine.rows import QUESTIONS, TEXTS, draw_windows
from bertkit.errors import ConfigError, DataError, needs_bertkit
from bertkit.inference.analysis import open_any_run
from bertkit.inference.protocol import model_hash
from bertkit.inference.runs import Classifier, Run
from bertkit.system.atomic_files import (
    disk_guard,
    held_lock,
    make_folder,
    new_file,
    sha256_file,
    sync_file,
    sync_folder,
    write_atomically,
)
from bertkit.system.console import Progress, quiet, say
from bertkit.system.device import Device
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.json_files import read_json
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.text_rows import USUAL, FileRow, read_texts
from bertkit.tasks.run_rows import to_jsonl

TABLES = (".csv", ".tsv", ".parquet")
FORMATS = (".jsonl", *TABLES)
ROW_GROUP = 4096

OWN = "bertkit_"  # before the name of a field of ours where the input has a column of that name

Row = dict[str, Json]

NO_ROWS = "the input has no rows, so there is nothing to predict"

#: Columns of which none is named.
UNNAMED = Columns(text=())


def own_name(field: str, taken: Collection[str]) -> str:
    """What a field of ours is called in rows that have the columns ``taken`` as well."""
    while field in taken:
        field = OWN + field
    return field


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    columns: Columns = UNNAMED,
    *,
    device: Device = None,
    precision: Precision = "auto",
    threads: int | None = None,
) -> int:
    """Write one row for each row of a file, with all of its columns and what :func:`predict_run` says.

    Rows are collected as JSON lines in ``OUT.partial``; when all are there, ``OUT`` is written. Called again after a
    stop, it keeps the finished rows and resumes, if model and input are still the same. Texts are read as a stream; the
    file of a run of another kind of task (questions, tokens, choices) is read as a whole and predicted part by part.

    Args:
        run: a run folder, or a checkpoint with a sequence classifier.
        source: ``.txt`` (one text a line), ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or another table, also
            compressed; of another kind of task a file as it was trained on.
        out: the file to write: ``.csv``, ``.tsv``, ``.parquet`` (see :func:`write_rows`); others get JSON lines.
        columns: where the texts are. What it leaves open is as in the run's own data: ``text`` and ``text_pair`` (for
            a model of pairs), then the usual names; delimiter and quoting; but not the encoding, which is then UTF-8.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        precision: as for :func:`bertkit.pipeline`; also ``threads``.
        threads: of the processor; None: one per core.

    Returns:
        Number of rows in ``out``. Truncated and empty texts are counted on stderr and marked in their rows.

    Raises:
        DataError: the input is wrong; names file and line.
        ConfigError: ``out`` exists, another process is writing it, or its partial file belongs to another model or
            input.
        Interrupted: Ctrl-C or SIGTERM; the same call resumes.
        ResourceError: the disk is full; finished rows stay.
    """
    source, out = Path(source), Path(out)
    check_file(source)
    make_folder(out.parent)
    partial, note = out.with_name(out.name + ".partial"), out.with_name(out.name + ".partial.json")
    with claimed(out):
        loaded = open_any_run(run, device=device, precision=precision, threads=threads)
        places = columns_of(loaded, columns)
        identity = {
            "input_sha256": sha256_file(source),
            "model_sha256": model_hash(loaded.path),
            "max_length": loaded.max_length,
            "decision": loaded.decision,
            "columns": places and [list(places.text), list(places.text_pair), places.delimiter, places.quoting],
            **{name: value for name, value in (("encoding", columns.encoding), ("precision", precision)) if value},
        }
        done = _begin(partial, note, identity)
        taken, parts = _predicted(loaded, source, places, done)
        with Interrupts() as signals, Progress(None, label="predicting", unit="rows", done=done) as shown:
            for part in parts:
                _append(partial, part)
                done += len(part)
                shown.advance(len(part))
                try:
                    signals.check()
                except Interrupted as stop:
                    message = f"{stop} after {done:,} rows; run the same command to resume"
                    raise Interrupted(message, stop.signum) from None
        if not done and out.suffix in TABLES:
            raise DataError(NO_ROWS)
        _finish(partial, out, loaded.max_length, taken)
        note.unlink(missing_ok=True)
    return done


def predicted_rows(run: Run, source: Path, columns: Columns) -> tuple[Collection[str], Iterator[Row]]:
    """The column names that are taken, and the rows that :func:`predict_file` writes, one by one."""
    check_file(source)
    taken, parts = _predicted(run, source, columns_of(run, columns), 0)
    return taken, (row for part in parts for row in part)


def _predicted(
    run: Run, source: Path, columns: Columns | None, done: int
) -> tuple[Collection[str], Iterator[list[Row]]]:
    """The column names that are taken, and the rows window by window, without the first ``done``."""
    if columns is None:
        return (), _answered(run, islice(run.workflow.read_file(source, "test"), done, None))
    assert isinstance(run, Classifier)
    taken, texts = read_texts(source, columns)
    return taken, _labelled(run, islice(texts, done, None), taken)


def _answered(run: Run, examples: Iterable[Any]) -> Iterator[list[Row]]:
    texts_of = run.workflow.texts_of
    for window in draw_windows(examples, QUESTIONS, weight=lambda example: sum(map(len, texts_of(example)))):
        with quiet():
            rows = run.answers(window)
        yield rows


def _labelled(run: Classifier, texts: Iterable[FileRow], taken: Collection[str]) -> Iterator[list[Row]]:
    for window in draw_windows(texts, TEXTS, weight=lambda row: len(row.text) + len(row.pair or "")):
        pairs = None if window[0].pair is None else [row.pair or "" for row in window]
        rows = []
        for row, answer in zip(window, run.predict([row.text for row in window], pairs), strict=True):
            ours = {own_name(field, taken): value for field, value in answer.items()}
            rows.append({**{name: _plain(value) for name, value in row.columns.items()}, **ours})
        yield rows


def _plain(value: Any) -> Json:
    """A value of a table as JSON has it: None for NaN and infinity, text for dates and the like."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def columns_of(run: Run, given: Columns) -> Columns | None:
    """Where the texts are: as given, else as in the data of the run's task, else in columns of the usual names.

    None for a run of another kind of task, whose files say it themselves.
    """
    if not isinstance(run, Classifier):
        return None
    known = Columns(text=USUAL) if run.task is None else run.task.columns
    return Columns(
        text=given.text or known.text,
        text_pair=given.text_pair or (() if given.text else known.text_pair),
        headerless=() if given.text else known.headerless,
        quoting=given.quoting or known.quoting,
        delimiter=given.delimiter or known.delimiter,
        encoding=given.encoding,  # never that of the training file, by which UTF-8 would be misread without an error
    )


def _begin(partial: Path, note: Path, identity: dict[str, Any]) -> int:
    """Number of rows that are finished already; a last line that was cut off is removed."""
    if not partial.exists():
        write_atomically(note, json.dumps(identity, indent=2) + "\n")
        partial.touch()
        return 0
    if not note.exists() or read_json(note, dict) != identity:
        raise ConfigError(
            f"{partial} was started with another model or another input; remove it, or choose another --out"
        )
    done = end = 0
    with partial.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                done += 1
                end += len(line)
    os.truncate(partial, end)
    if done:
        say(f"resuming after {done:,} finished rows in {partial}")
    return done


def _finish(partial: Path, out: Path, max_length: int, taken: Collection[str]) -> None:
    """Make the whole file of the finished rows."""
    sync_file(partial)
    try:
        _publish(partial, report_marked(read_table_lines(partial), max_length, taken), out, taken)
    except DataError as error:
        raise DataError(f"{error}. The predicted rows are in {partial}, as JSON lines") from None
    sync_folder(out.parent)


def _append(partial: Path, rows: Sequence[Row]) -> None:
    lines = to_jsonl(rows).encode("utf-8")
    advice = "Make room and run the same command to resume"
    with disk_guard(partial.parent, len(lines), what=partial.name, advice=advice), partial.open("ab") as file:
        file.write(lines)


def report_marked(rows: Iterable[Row], max_length: int, taken: Collection[str]) -> Iterator[Row]:
    """The rows unchanged, and at their end on stderr how many texts were truncated, and how many have no text."""
    cut, blank = own_name("truncated", taken), own_name("empty", taken)
    count = truncated = empty = 0
    for row in rows:
        count += 1
        truncated += row.get(cut) is True
        empty += row.get(blank) is True
        yield row
    if truncated:
        were = "was" if truncated == 1 else "were"
        say(
            f"WARNING: {truncated:,} of {count:,} inputs {were} longer than {max_length:,} tokens and {were} truncated "
            "as in training; their rows say truncated"
        )
    if empty:
        say(
            f"WARNING: {empty:,} of {count:,} texts {'is' if empty == 1 else 'are'} empty; their rows say empty, and "
            "what is predicted for them means nothing"
        )


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Held while a new file is made; ConfigError if it exists, or another process is making it."""
    busy = f"another process is writing {out}; wait for it, or choose another name for the output"
    with held_lock(out.with_name(f".{out.name}.lock"), busy):
        if out.exists():
            raise ConfigError(f"{out} exists already; remove it or choose another name")
        yield


def write_rows(rows: Iterable[Row], out: Path) -> int:
    """Write rows, of predictions or of anything; the file appears when it is complete. Returns their number."""
    lines, count = out.with_name(f".{out.name}.rows"), 0
    try:
        with disk_guard(out.parent, 0, what=out.name), lines.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                count += 1
        if not count:
            raise DataError(NO_ROWS)
        _publish(lines, read_table_lines(lines), out, ())
    finally:
        lines.unlink(missing_ok=True)
    return count


def _publish(lines: Path, seen: Iterable[Row], out: Path, taken: Collection[str]) -> None:
    """Turn ``lines``, whose rows ``seen`` yields, into ``out``: unchanged, or as the table that its ending names.

    Columns of a table: those of the input, ``text``, ``text_pair`` (of pairs), ``predicted``, ``probability`` (of that
    label), then one column ``p_LABEL`` for each label, ``truncated`` and ``empty``; last what the first row lacks.
    """
    if out.suffix not in TABLES:
        deque(seen, maxlen=0)
        lines.replace(out)
        return
    columns: dict[str, dict[type, Json]] = {}  # of all rows, because those of JSON lines may have different keys
    for row in seen:
        for name, value in flat(row, taken).items():
            columns.setdefault(name, {})[type(value)] = value
    rows = (flat(row, taken) for row in read_table_lines(lines))
    with new_file(out) as draft:
        if out.suffix == ".parquet":
            _write_parquet(rows, draft, columns)
        else:
            with draft.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(columns), delimiter="\t" if out.suffix == ".tsv" else ",")
                writer.writeheader()
                writer.writerows(rows)
    lines.unlink()


def read_table_lines(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines that this program wrote."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def flat(row: dict[str, Any], taken: Collection[str] = ()) -> Row:
    """One prediction as the cells of a table row."""
    last = shared, cut, blank = [own_name(field, taken) for field in ("probabilities", "truncated", "empty")]
    cells = {key: _cell(value) for key, value in row.items() if key not in last}
    shares = row.get(shared)
    if shares is not None:
        predicted = row[own_name("predicted", taken)]
        several = isinstance(predicted, list)
        shown = "|".join(f"{shares[label]:.4f}" for label in predicted) if several else shares[predicted]
        cells[own_name("probability", taken)] = shown
        cells |= {own_name(f"p_{label}", taken): share for label, share in shares.items()}
    if cut in row:
        cells[cut] = row[cut]
    return {**cells, blank: bool(row.get(blank, False))} if own_name("predicted", taken) in row else cells


def _cell(value: Json) -> Json:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "|".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_parquet(rows: Iterator[Row], path: Path, columns: dict[str, dict[type, Json]]) -> None:
    """``columns`` has of each column a value of each type that it holds."""
    with needs_bertkit("a .parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    name, types = "", {}
    try:
        for name, values in columns.items():
            types[name] = pa.infer_type(list(values.values()))
        with path.open("wb") as file, pq.ParquetWriter(file, pa.schema(types)) as writer:  # Arrow's paths are UTF-8
            while part := list(islice(rows, ROW_GROUP)):
                table = {}
                for name, kind in types.items():
                    table[name] = pa.array([row.get(name) for row in part], kind)
                writer.write_table(pa.table(table))
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(
            f"column {name!r} does not fit into a .parquet file ({error}); choose a name that ends in .jsonl"
        ) from None
