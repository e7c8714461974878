"""Predict for a whole file: keeps every column, needs bounded memory, resumes after a stop, and writes tables."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, time
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from bertkit.config.file_columns import Columns
from bertkit.engine.backend import Precision
from bertkit.errors import CheckpointError, ConfigError, counted
from bertkit.inference.analysis import open_any_run
from bertkit.inference.protocol import model_hash
from bertkit.inference.row_cells import Row, own_name
from bertkit.inference.row_files import Done, RowFile, claimed, row_file
from bertkit.inference.run_files import text_places
from bertkit.inference.runs import Run
from bertkit.system.atomic_files import make_folder, sha256_file, write_atomically
from bertkit.system.console import Progress, say
from bertkit.system.device import Device
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.json_files import read_json
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Example
from bertkit.tasks.reading.excel import CellText
from bertkit.tasks.reading.lines import check_file
from bertkit.tasks.reading.text_rows import FileRow, Samples, read_texts
from bertkit.tasks.tokens.span_files import is_brat

#: Columns of which none is named.
UNNAMED = Columns(text=())


@dataclass(frozen=True, slots=True)
class Note:
    """What lies beside an unfinished file: of which model and input it is, and how far it is."""

    identity: dict[str, Any]
    done: Done = field(default_factory=Done)


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    columns: Columns = UNNAMED,
    *,
    device: Device = None,
    precision: Precision = "auto",
    threads: int | None = None,
    excel: bool = False,
) -> int:
    """Write a row for each row of a file, its columns and what :func:`predict_run` says; returns their number.

    Rows are collected in ``OUT.partial``, in the format of ``OUT``; when all are there, ``OUT`` is written. Called
    again after a stop, it keeps the finished rows and resumes, if model and input are still the same. Texts are read as
    a stream; the file of a run of another kind of task (questions, tokens, choices) is read as a whole and predicted
    part by part. Truncated and empty texts are counted on stderr and marked in their rows.

    source: ``.txt`` (one text per line), ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or another table, also
        compressed; of another kind of task a file as it was trained on, or a folder of brat.
    out: ``.csv``, ``.tsv``, ``.parquet``, ``.xlsx``; others get JSON lines. See :mod:`bertkit.inference.row_files`.
    columns: where the texts are. What it leaves open is as in the run's own data: ``text`` and ``text_pair`` (for a
        model of pairs), then the usual names; delimiter and quoting; but not the encoding, which is then UTF-8.
    excel: a ``.csv`` file for an Excel whose decimals have a comma.
    """
    source, out = Path(source), Path(out)
    _check(source)
    make_folder(out.parent)
    partial, note = out.with_name(out.name + ".partial"), out.with_name(out.name + ".partial.json")
    with claimed(out):
        loaded = open_any_run(run, device=device, precision=precision, threads=threads)
        places = columns_of(loaded, columns)
        given = {"encoding": columns.encoding, "sheet": columns.sheet, "precision": precision, "excel": excel}
        identity = {
            "input_sha256": _hash_of(source),
            "model_sha256": model_hash(loaded.path),
            "max_length": loaded.max_length,
            "decision": loaded.decision,
            "columns": places and [list(places.text), list(places.text_pair), places.delimiter, places.quoting],
            **{name: value for name, value in given.items() if value},
        }
        with _unfinished(partial, note, identity) as done:
            taken, parts = _predicted(loaded, source, columns, done.rows)
            file = row_file(out, partial, taken, done, excel=excel)
            with Interrupts() as signals, Progress(None, label="predicting", unit="rows", done=done.rows) as shown:
                for part in parts:
                    _append(file, part, note, identity)
                    shown.advance(len(part))
                    try:
                        signals.check()
                    except Interrupted as stop:
                        message = f"{stop} after {counted(done.rows, 'row')}; run the same command to resume"
                        raise Interrupted(message, stop.signum) from None
            file.finish()
            note.unlink()
        tell_marked(done, loaded.max_length)
    return done.rows


def _check(source: Path) -> None:
    """DataError for what is neither a file nor a folder that is read as one."""
    if not is_brat(source):
        check_file(source)


def _hash_of(source: Path) -> str:
    if source.is_file():
        return sha256_file(source)
    parts = (f"{path.name} {sha256_file(path)}\n" for path in sorted(source.iterdir()) if path.is_file())
    return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def predicted_rows(run: Run, source: Path, columns: Columns) -> tuple[Samples, Iterator[Row]]:
    """The column names that are taken, and the rows that :func:`predict_file` writes, one by one."""
    _check(source)
    taken, parts = _predicted(run, source, columns, 0)
    return taken, (row for part in parts for row in part)


def _predicted(run: Run, source: Path, given: Columns, done: int) -> tuple[Samples, Iterator[list[Row]]]:
    """The column names that are taken, and the rows window by window, without the first ``done``."""
    columns = columns_of(run, given)
    if columns is None:
        examples = run.workflow.read_file(source, "test")
        parts = run.answered(islice(examples, done, None))
        if source.is_dir():  # of whose files each is a text
            return {}, (
                [{"file": Path(each.source).name, **answer} for each, answer in zip(window, answers, strict=True)]
                for window, answers in parts
            )
        return {}, (answers for _, answers in parts)
    taken, texts = read_texts(source, columns, inferred=not given.text, may_lack=True)
    answered = run.answered(islice(texts, done, None), lambda row: Example(row.text, row.pair))
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


@contextmanager
def _unfinished(partial: Path, note: Path, identity: dict[str, Any]) -> Iterator[Done]:
    """How much is finished already; what lies behind it is removed. A file in which nothing is, is not kept."""
    try:
        found = read_json(note, Note) if note.exists() else None
    except CheckpointError:  # of an earlier version
        found = None
    size = partial.stat().st_size if partial.exists() else 0
    if not size or (found is not None and not found.done.rows):
        found = Note(identity)
        write_atomically(note, json.dumps(asdict(found), indent=2) + "\n")
        partial.write_bytes(b"")
    elif found is None or found.identity != identity or size < found.done.size:
        raise ConfigError(
            f"{partial} was started with another model or another input; remove it, or choose another --out"
        )
    else:
        os.truncate(partial, found.done.size)
        say(f"resuming after {found.done.rows:,} finished rows in {partial}")
    try:
        yield found.done
    finally:
        if not found.done.rows:
            partial.unlink(missing_ok=True)
            note.unlink(missing_ok=True)


def _append(file: RowFile, rows: Sequence[Row], note: Path, identity: dict[str, Any]) -> None:
    file.append(rows, advice="Make room and run the same command to resume")
    write_atomically(note, json.dumps(asdict(Note(identity, file.done)), indent=2) + "\n")


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
