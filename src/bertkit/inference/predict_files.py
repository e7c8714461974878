"""Predict for a whole file: keeps every column, needs bounded memory, resumes after a stop, and writes tables."""

from __future__ import annotations

import csv
import json
import math
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.engine.rows import QUESTIONS, TEXTS, draw_windows
from bertkit.errors import ConfigError, DataError
from bertkit.inference.protocol import model_hash
from bertkit.inference.runs import Classifier, Run, open_run
from bertkit.system.atomic_files import (
    disk_guard,
    held_lock,
    make_folder,
    sha256_file,
    sync_file,
    sync_folder,
    write_atomically,
)
from bertkit.system.console import Progress, quiet, say
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Columns
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import Lines
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import find_column, open_table, records
from bertkit.tasks.run_rows import to_jsonl

FORMATS = (".jsonl", ".csv", ".tsv", ".parquet")
ROW_GROUP = 4096

#: What a field of ours is called where the input has a column of its name.
OWN = "bertkit_"
_AT_THE_END = ("probabilities", "truncated", "empty")

Row = dict[str, Json]

#: Columns of which none is named.
UNNAMED = Columns(text=())


class TextRow(NamedTuple):
    """A row of a file.

    columns: all of its values. same: names of our fields that are columns of the file as well, with the same content.
    """

    text: str
    pair: str | None
    columns: dict[str, Any]
    same: tuple[str, ...] = ()


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    columns: Columns = UNNAMED,
    *,
    device: str | None = None,
) -> int:
    """Write one row for each row of a file, with all of its columns and what :func:`predict_run` says.

    Rows are collected as JSON lines in ``OUT.partial``; when all are there, ``OUT`` is written. Called again after a
    stop, it keeps the finished rows and resumes, if model and input are still the same. Texts are read as a stream; the
    file of a run of another kind of task (questions, tokens, choices) is read as a whole and predicted part by part.

    Args:
        run: a run folder, or a checkpoint with a sequence classifier.
        source: ``.txt`` (one text a line), ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or another table, also
            compressed; of another kind of task a file as it was trained on.
        out: the file to write: ``.csv``, ``.tsv`` or ``.parquet``, see
            :func:`write_table`; any other name gets JSON lines.
        columns: where the texts are. What it leaves open is as in the run's own data: ``text`` and ``text_pair`` (for
            a model of pairs), then the usual names; delimiter and quoting; but not the encoding, which is then UTF-8.
        device: ``"cpu"`` (default) or ``"cuda"``.

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
    if not source.is_file():
        raise DataError(f"{source} does not exist")
    make_folder(out.parent)
    partial, note = out.with_name(out.name + ".partial"), out.with_name(out.name + ".partial.json")
    with claimed(out):
        loaded = open_run(run, device=device)
        places = columns_of(loaded, columns)
        identity = {
            "input_sha256": sha256_file(source),
            "model_sha256": model_hash(loaded.path),
            "max_length": loaded.max_length,
            "decision": loaded.decision,
            "columns": places and [list(places.text), list(places.text_pair), places.delimiter, places.quoting],
            **({"encoding": columns.encoding} if columns.encoding else {}),
        }
        done = _begin(partial, note, identity)
        with Interrupts() as signals, Progress(None, label="predicting", unit="rows", done=done) as shown:
            for part in _predicted(loaded, source, places, done):
                _append(partial, part)
                done += len(part)
                shown.advance(len(part))
                try:
                    signals.check()
                except Interrupted as stop:
                    message = f"{stop} after {done:,} rows; run the same command to resume"
                    raise Interrupted(message, stop.signum) from None
        _finish(partial, out, loaded.max_length)
        note.unlink(missing_ok=True)
    return done


def predicted_rows(run: Run, source: Path, columns: Columns) -> Iterator[Row]:
    """The rows that :func:`predict_file` writes, one by one."""
    for rows in _predicted(run, source, columns_of(run, columns), 0):
        yield from rows


def _predicted(run: Run, source: Path, columns: Columns | None, done: int) -> Iterator[list[Row]]:
    """The rows window by window, without the first ``done``."""
    if columns is None:
        for examples in draw_windows(islice(run.workflow.read_file(source, "test"), done, None), QUESTIONS):
            with quiet():
                rows = run.answers(examples)
            yield rows
        return
    assert isinstance(run, Classifier)
    texts = islice(read_texts(source, columns), done, None)
    for window in draw_windows(texts, TEXTS, weight=lambda row: len(row.text) + len(row.pair or "")):
        pairs = None if window[0].pair is None else [row.pair or "" for row in window]
        answers = run.predict([row.text for row in window], pairs)
        yield [_beside(row, answer) for row, answer in zip(window, answers, strict=True)]


def _beside(row: TextRow, answer: Row) -> Row:
    """A row's own columns, then our fields; one whose name is taken by another content is called ``bertkit_...``."""
    taken = row.columns.keys() - set(row.same)
    ours = {OWN + name if name in taken else name: value for name, value in answer.items()}
    return {**{name: _plain(value) for name, value in row.columns.items()}, **ours}


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


def read_texts(source: Path, columns: Columns) -> Iterator[TextRow]:
    """The text, or the two texts, of each row of a file, as a stream."""
    if kind_of(source) is None:
        for text in Lines(source, BadRows(), columns.encoding):
            yield TextRow(text.removesuffix("\n").removesuffix("\r"), None, {})
        return
    table = open_table(source, columns, BadRows())
    names = [find_column(source, table.columns, columns.text, "text", "choose one with --text")]
    if columns.text_pair:
        names.append(
            find_column(source, table.columns, columns.text_pair, "second text", "choose one with --text-pair")
        )
    fields = ("text", "text_pair")
    same = tuple(field for column, field in zip(names, fields, strict=False) if column == field)
    for line, record in records(table):
        texts = [record.get(name) for name in names]
        for column, value in zip(names, texts, strict=True):
            if not isinstance(value, str):
                raise DataError(f"{source}:{line}: column {column!r} holds {value!r:.40}, expected a text")
        yield TextRow(str(texts[0]), str(texts[1]) if len(texts) == 2 else None, record, same)


def columns_of(run: Run, given: Columns) -> Columns | None:
    """Where the texts are: as given, else as in the data of the run's task, else in columns of the usual names.

    None for a run of another kind of task, whose files say it themselves.
    """
    if not isinstance(run, Classifier):
        return None
    known = Columns(text=("text", "sentence")) if run.task is None else run.task.columns
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
    if not note.exists() or json.loads(note.read_text(encoding="utf-8")) != identity:
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


def _finish(partial: Path, out: Path, max_length: int) -> None:
    """Make the whole file of the finished rows."""
    sync_file(partial)
    rows = tell_marked(read_table_lines(partial), max_length)
    if out.suffix in (".csv", ".tsv", ".parquet"):
        write_table(rows, out)
        partial.unlink()
    else:
        deque(rows, maxlen=0)
        partial.replace(out)
    sync_folder(out.parent)


def _append(partial: Path, rows: Sequence[Row]) -> None:
    lines = to_jsonl(rows).encode("utf-8")
    advice = "Make room and run the same command to resume"
    with disk_guard(partial.parent, len(lines), what=partial.name, advice=advice), partial.open("ab") as file:
        file.write(lines)


def tell_marked(rows: Iterable[Row], max_length: int) -> Iterator[Row]:
    """The rows unchanged, and at their end on stderr how many texts were truncated, and how many have no text."""
    count = truncated = empty = 0
    for row in rows:
        count += 1
        truncated += row.get(OWN + "truncated", row.get("truncated")) is True
        empty += row.get(OWN + "empty", row.get("empty")) is True
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


def check_format(out: Path) -> None:
    """Raises ConfigError for a name whose ending is none of :data:`FORMATS`, or whose folder does not exist."""
    if out.suffix not in FORMATS:
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Held while a new file is made; ConfigError if it exists, or another process is making it."""
    busy = f"another process is writing {out}; wait for it, or choose another name for the output"
    with held_lock(out.with_name(f".{out.name}.lock"), busy):
        if out.exists():
            raise ConfigError(f"{out} exists already; remove it or choose another name")
        yield


def write_table(rows: Iterable[Row], out: Path) -> int:
    """Write predictions; the file appears when it is complete. Returns the number of rows.

    Columns: those of the input, ``text``, ``text_pair`` (of pairs), ``predicted``, ``probability`` (of that label),
    then one column ``p_LABEL`` for each label, ``truncated`` and ``empty``. JSON lines keep the rows as they are.
    """
    source = iter(rows)
    first = next(source, None)
    if first is None:
        raise DataError("the input has no rows, so there is nothing to predict")
    every = chain([first], source)
    partial = out.with_name(f".{out.name}.table")
    try:
        if out.suffix == ".jsonl":
            count = _write_jsonl(every, partial)
        elif out.suffix == ".parquet":
            count = _write_parquet(map(flat, every), partial)
        else:
            count = _write_delimited(map(flat, every), partial, "\t" if out.suffix == ".tsv" else ",")
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return count


def read_table_lines(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines that this program wrote."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def flat(row: dict[str, Any]) -> Row:
    """One prediction as the cells of a table row."""
    ours = {name: key for key in row for name in (key.removeprefix(OWN),)}  # ours come last, under either name
    cells = {key: _cell(value) for key, value in row.items() if key not in (ours.get(name) for name in _AT_THE_END)}
    shares = row.get(ours.get("probabilities", ""))
    if shares is not None:
        predicted = row[ours["predicted"]]
        several = isinstance(predicted, list)
        cells["probability"] = "|".join(f"{shares[label]:.4f}" for label in predicted) if several else shares[predicted]
        cells |= {f"p_{label}": share for label, share in shares.items()}
    if "truncated" in ours:
        cells[ours["truncated"]] = row[ours["truncated"]]
    return {**cells, ours.get("empty", "empty"): bool(row.get(ours.get("empty", ""), False))}


def _cell(value: Json) -> Json:
    if isinstance(value, list):
        texts = [part for part in value if isinstance(part, str)]
        if len(texts) == len(value):
            return "|".join(texts)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_jsonl(rows: Iterator[Row], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def _write_delimited(rows: Iterator[Row], path: Path, delimiter: str) -> int:
    first = next(rows)
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(first), delimiter=delimiter, extrasaction="ignore")
        writer.writeheader()
        for row in chain([first], rows):
            writer.writerow(row)
            count += 1
    return count


def _write_parquet(rows: Iterator[Row], path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = list(islice(rows, ROW_GROUP))
    schema = pa.Table.from_pylist(part).schema
    count = 0
    with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:  # Arrow takes paths in UTF-8 only
        while part:
            writer.write_table(pa.Table.from_pylist(part, schema=schema))
            count += len(part)
            part = list(islice(rows, ROW_GROUP))
    return count
