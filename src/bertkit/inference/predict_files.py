"""Predict for a whole file: bounded memory, and a stopped run goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bertkit.errors import ConfigError, DataError
from bertkit.inference.evaluate import WINDOW, Classifier, Run, open_run, windows
from bertkit.inference.protocol import model_hash
from bertkit.system.atomic_files import disk_guard, sha256_file, sync_file, sync_folder, write_atomically
from bertkit.system.console import Progress, quiet, say
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.tasks.examples import Columns, Examples, Quoting
from bertkit.tasks.prediction_rows import to_jsonl
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import Lines
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import find_column, open_table

#: Questions, sentences and the like that are predicted together, and lost by a stop: each is many tokens.
WINDOW_EXAMPLES = 256

Row = tuple[str, str | None]


def predict_file(
    run: str | Path,
    source: str | Path,
    out: str | Path,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    delimiter: str | None = None,
    quoting: Quoting | None = None,
    encoding: str | None = None,
    device: str | None = None,
) -> int:
    """Write one JSON line for each row of a file (see :func:`bertkit.inference.evaluate.predict_run`).

    Lines go to ``OUT.partial``; when all are there the file gets its name. Called again after a stop, it keeps the
    finished lines and goes on, if model and input are still the same. Texts are read as a stream; the file of a run of
    another kind of task (questions, tokens, choices) is read as a whole and predicted part by part.

    Args:
        run: a run folder, or a checkpoint with a sequence classifier.
        source: ``.txt`` (one text a line), or a table: ``.csv``, ``.tsv``, ``.xlsx``, ``.json``, ``.jsonl`` or
            ``.parquet``; also compressed. Of another kind of task a file as it was trained on.
        out: the JSON-lines file to write.
        text: column of the text; None looks for those of the run's task, then ``text`` and ``sentence``.
        text_pair: column of the second text, for a model of pairs.
        delimiter: between the fields of a line; None takes that of the run's own data, or what the file's name says.
        quoting: see :class:`bertkit.tasks.Columns`; None as for ``delimiter``.
        encoding: of a text file, such as "cp1252"; None means UTF-8.
        device: ``"cpu"`` (default) or ``"cuda"``.

    Returns:
        Rows predicted in all.

    Raises:
        DataError: the input is wrong; names file and line.
        ConfigError: ``out`` exists, or its partial file belongs to another model or input.
        Interrupted: Ctrl-C or SIGTERM; the same call goes on.
        ResourceError: the disk is full; finished lines stay.
    """
    source, out = Path(source), Path(out)
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it or choose another name")
    if not source.is_file():
        raise DataError(f"{source} does not exist")
    loaded = open_run(run, device=device)
    columns = (
        columns_of(loaded, text, text_pair, delimiter, quoting, encoding) if isinstance(loaded, Classifier) else None
    )
    partial = out.with_name(out.name + ".partial")
    identity = {
        "input_sha256": sha256_file(source),
        "model_sha256": model_hash(loaded.path),
        "max_length": loaded.max_length,
        "decision": loaded.decision,
        "columns": columns and [list(columns.text), list(columns.text_pair), columns.delimiter, columns.quoting],
        **({"encoding": encoding} if encoding else {}),
    }
    done = _begin(partial, identity)
    rows: Iterable[Any] = _read_examples(loaded, source) if columns is None else read_texts(source, columns)
    with Interrupts() as signals, Progress(None, label="predicting", unit="rows", done=done) as shown:
        for window in windows(islice(rows, done, None), WINDOW_EXAMPLES if columns is None else WINDOW):
            _append(partial, loaded, window)
            done += len(window)
            shown.advance(len(window))
            try:
                signals.check()
            except Interrupted as stop:
                raise Interrupted(f"{stop} after {done:,} rows; run the same command to go on", stop.signum) from None
    sync_file(partial)
    partial.replace(out)
    sync_folder(out.parent)
    _identity_file(partial).unlink(missing_ok=True)
    return done


def predict_examples(run: Run, source: Path) -> Iterator[dict[str, Any]]:
    """Answers for a file of any kind of task, as its workflow reads and writes them; answers in the file may be absent.

    Raises:
        DataError: the input is wrong; names file and row.
    """
    for window in windows(_read_examples(run, source), WINDOW_EXAMPLES):
        yield from _answers(run, window)


def _read_examples(run: Run, source: Path) -> Examples[Any]:
    return run.workflow.read_unlabelled(source)


def _answers(run: Run, examples: Sequence[Any]) -> list[dict[str, Any]]:
    """A line for each example, none of which depends on the others."""
    workflow = run.workflow
    encoded = workflow.encode(examples, run.tokenizer, run.config, labelled=False)
    with quiet():
        outputs = workflow.outputs(run.model, encoded, label="predicting")
    return workflow.prediction_rows(examples, encoded, outputs, run.decision)


def read_texts(source: Path, columns: Columns) -> Iterator[Row]:
    """The text, or the two texts, of each row of a file, as a stream.

    Raises:
        DataError: a missing column, a row without text.
    """
    if kind_of(source) is None:
        yield from _plain_lines(source, columns.encoding)
        return
    table = open_table(source, columns, BadRows())
    names = [find_column(source, table.columns, columns.text, "text", "--text")]
    if columns.text_pair:
        names.append(find_column(source, table.columns, columns.text_pair, "second text", "--text-pair"))
    for line, values in table.rows(names):
        for name, value in zip(names, values, strict=True):
            if not isinstance(value, str):
                raise DataError(f"{source}:{line}: column {name!r} holds {value!r:.40}, expected a text")
        yield values[0], values[1] if len(values) == 2 else None


def _plain_lines(source: Path, encoding: str | None) -> Iterator[Row]:
    for line in Lines(source, BadRows(), encoding):
        yield line.removesuffix("\n").removesuffix("\r"), None


def columns_of(
    classifier: Classifier,
    text: str | None = None,
    text_pair: str | None = None,
    delimiter: str | None = None,
    quoting: Quoting | None = None,
    encoding: str | None = None,
) -> Columns:
    """Where the texts stand: as was said, else as in the data of the run's task, else in columns of the usual names."""
    known = Columns(text=("text", "sentence")) if classifier.task is None else classifier.task.columns
    first = known.text if text is None else (text,)
    return Columns(
        text=first,
        text_pair=(text_pair,) if text_pair else known.text_pair if text is None else (),
        headerless=known.headerless if text is None else (),
        quoting=quoting or known.quoting,
        delimiter=delimiter or known.delimiter,
        encoding=encoding,  # never that of the training file, by which UTF-8 would be misread without an error
    )


def _identity_file(partial: Path) -> Path:
    return partial.with_name(partial.name + ".json")


def _begin(partial: Path, identity: dict[str, Any]) -> int:
    """Rows that are finished already; a last line that was cut off is removed."""
    note = _identity_file(partial)
    if not partial.exists():
        write_atomically(note, json.dumps(identity, indent=2) + "\n")
        partial.touch()
        return 0
    if not note.exists() or json.loads(note.read_text(encoding="utf-8")) != identity:
        raise ConfigError(
            f"{partial} was begun with another model or another input; remove it, or choose another name for the output"
        )
    done = end = 0
    with partial.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                done += 1
                end += len(line)
    os.truncate(partial, end)
    if done:
        say(f"going on after {done:,} finished rows in {partial}")
    return done


def _append(partial: Path, run: Run, window: Sequence[Any]) -> None:
    if isinstance(run, Classifier):
        pairs = None if window[0][1] is None else [row[1] or "" for row in window]
        rows = run.predict([row[0] for row in window], pairs)
    else:
        rows = _answers(run, window)
    lines = to_jsonl(rows).encode("utf-8")
    advice = "Make room and run the same command to go on"
    with (
        disk_guard(partial.parent, len(lines), what=partial.name, advice=advice),
        partial.open("ab") as file,
    ):
        file.write(lines)
