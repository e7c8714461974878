"""``bertkit label``: label texts by hand, the most useful ones first."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.cluster import Encoding, TextFile, text_rows
from bertkit.cli.common_options import Computing
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, counted
from bertkit.system.console import escape_controls, say

if TYPE_CHECKING:
    from bertkit.ragged import Floats

#: Labels up to this many are chosen by one key; of more, a number may have two digits, so that Enter ends it.
MOST_KEYS = 9
#: Width of the vectors of words, where no model is given.
WORD_WIDTH = 100


def label(
    file: TextFile,
    /,
    *,
    labels: Annotated[str, Parameter(help="The labels, separated by commas: 'praise, complaint, question'.")],
    out: Annotated[Path, Parameter(alias="-o", help="File for the labels, .jsonl; an existing one is continued.")],
    model: Annotated[
        str | None, Parameter(alias="-m", help="Model whose vectors say which texts are similar; default: TF-IDF.")
    ] = None,
    order: Annotated[
        Literal["both", "uncertainty", "diversity", "file"],
        Parameter(help="Which texts come first: uncertain ones, ones unlike those labelled, both; or in file order."),
    ] = "both",
    every: Annotated[int, Parameter(help="Update the learning curve after this many labels; 0: no curve.")] = 10,
    encoding: Encoding = Encoding(truncate=True),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    r"""Label texts by hand, the most informative ones first.

    Press the number of a label, u to undo the last one, s to skip a text for now,
    q to quit. Every label is written to disk at once. The same command continues.
    Answers may also come from standard input, one per line.

    From time to time, a learning curve shows how many of the labels so far a linear
    model predicts from the others. Once it stops rising, more labels help little.

    For example:

        bertkit label mails.txt --labels "praise, complaint, question" \
            --out labels.jsonl --model MINILM
        bertkit finetune csv --data labels.jsonl --model MINILM --out run --few-shot
    """
    from bertkit.inference.labelling.label_file import LabelFile
    from bertkit.inference.labelling.label_session import LabelSession
    from bertkit.system.atomic_files import held_lock, make_folder

    common.begin()
    names = _names(labels)
    if str(file) == STANDARD_STREAM:
        raise ConfigError("answers are read from standard input, so the texts must be in a file")
    if out.suffix != ".jsonl":
        raise ConfigError(f"--out {out}: labels are written as .jsonl")
    rows = text_rows(file, columns, model)
    places = dict(zip(reversed(rows.texts), reversed(rows.places), strict=True))  # of equal texts the first
    texts = list(dict.fromkeys(rows.texts))
    with contextlib.suppress(FileNotFoundError):
        out.stat()  # an OSError for links in a circle
    make_folder(Path(os.path.realpath(out)).parent)
    busy = f"another process is labelling into {out}; end it, or choose another --out"
    with held_lock(out.with_name(f".{out.name}.lock"), busy):
        known = LabelFile(out, names)
        if model is None:
            vectors = _of_words(texts)
        else:
            vectors = encoding.vectors(encoding.encoder(model, common), texts, [places[text] for text in texts])
        same = len(rows.texts) - len(texts)
        equal = f" ({same:,} more are equal to one of them)" if same else ""
        say(f"{counted(len(texts), 'text')}{equal}, {counted(len(known.given), 'label')} in {out}")
        session = LabelSession(texts, vectors, known, _show, order, every)
        result = session.run(_answers(one_key=len(names) <= MOST_KEYS))
    common.report(result, out=str(out))


def _names(labels: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, labels.split(","))))
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"--labels {labels!r}: expected two or more different labels, separated by commas")
    if wrong := [name for name in names if name in ("u", "s", "q") or name.isdecimal()]:
        raise ConfigError(f"--labels: {wrong[0]!r} would be read as a key; give the label another name")
    return names


def _show(text: str) -> None:
    """To the terminal, where the person is; standard output has the result alone."""
    sys.stderr.write(escape_controls(text) + "\n")
    sys.stderr.flush()


def _answers(*, one_key: bool) -> Iterator[str]:
    """Keys of a terminal, as they are pressed; lines of anything else. Bytes that are no text are no answer."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="backslashreplace")
    if one_key and sys.stdin.isatty():
        with contextlib.suppress(ImportError):  # Windows has no termios: lines there
            import termios

            yield from _keys(termios.tcgetattr(sys.stdin))
            return
    yield from sys.stdin


def _keys(saved: list[object]) -> Iterator[str]:
    import termios
    import tty

    try:
        tty.setcbreak(sys.stdin, termios.TCSADRAIN)  # what was typed before counts
        while key := sys.stdin.read(1):
            if key == "\x04":  # Ctrl-D
                return
            yield key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, saved)  # type: ignore[arg-type]


def _of_words(texts: list[str]) -> Floats:
    """Vectors by the words of the texts: TF-IDF, in fewer dimensions where there are many."""
    import numpy as np
    from sklearn.decomposition import TruncatedSVD

    from bertkit.tasks.text.baseline import tfidf_vectorizer

    weights = tfidf_vectorizer().fit_transform(texts)
    if min(weights.shape) <= WORD_WIDTH:
        return np.asarray(weights.toarray(), np.float32)
    return np.asarray(TruncatedSVD(WORD_WIDTH, random_state=0).fit_transform(weights), np.float32)
