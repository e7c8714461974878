"""A task made from a user's own CSV, TSV, JSON-lines or Parquet file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from bertkit.errors import ConfigError, DataError, did_you_mean, shorten
from bertkit.tasks.examples import Columns, Quoting
from bertkit.tasks.reading.hub_datasets import label_names
from bertkit.tasks.reading.splits import kind_of, splits_of
from bertkit.tasks.reading.tables import BadRows, OnError, Table, open_table
from bertkit.tasks.text.multi_label import listed_labels
from bertkit.tasks.text.reading import find_column
from bertkit.tasks.text.task import TextTask, is_missing, looks_missing, whole_text

#: Column names taken for the text when none is given, the likeliest first; compared without case.
TEXT_NAMES = (
    "text sentence review tweet content comment body document message utterance question query title description "
    "headline abstract input"
).split()
#: Two columns that together are a pair of texts; looked for before ``TEXT_NAMES``.
PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
    ("text1", "text2"),
    ("sentence_a", "sentence_b"),
    ("query", "passage"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
)
LABEL_NAMES = (
    "label labels sentiment class category target score rating stars gold_label polarity is_duplicate similarity y"
).split()
#: More labels than this, with more than half of the rows each under a label of its own, is a column of something else.
MANY_LABELS = 20
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Problem = Literal["classification", "regression", "multi_label"]


@dataclass(frozen=True, slots=True)
class _Choice:
    """A column, and whether it was guessed."""

    name: str
    guessed: bool


def csv_task(
    path: str | Path,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | Sequence[str] | None = None,
    *,
    problem: Problem | None = None,
    labels: Sequence[str] | None = None,
    label_separator: str = "|",
    quoting: Quoting | None = None,
    delimiter: str | None = None,
    on_error: OnError = "raise",
) -> TextTask:
    """Look at a file and say what can be learned from it.

    Args:
        path: a file, or a folder with a train file (and perhaps dev and test).
        text: column of the text; None guesses among common names, and finds common pairs of columns as well.
        text_pair: column of the second text; None means none when ``text`` is given.
        label: column of the label; None guesses. Several columns are labels that do not exclude each other, each with 1
            or 0 in a column of its own.
        problem: None means regression when some label is a number with a fraction, else classification, of several
            labels a row where the column holds lists (JSON, Parquet). "multi_label" says that a text holds several.
        labels: the labels in their order, for example those of an earlier run; None takes those of the train file,
            numbers by value, other text in natural order ("item 2" before "item 10").
        label_separator: what stands between several labels in one text.
        quoting: see :class:`bertkit.tasks.Columns`.
        delimiter: see :class:`bertkit.tasks.Columns`.
        on_error: "skip" passes over rows without a usable label here; :func:`bertkit.tasks.load_split` counts them.

    Returns:
        A task named ``csv`` whose ``notes`` say which columns were taken and how the labels were read.

    Raises:
        ConfigError: ``labels`` given for regression, or given twice.
        DataError: a missing column (with the nearest name), nothing to guess from, a row without a label, one label
            only, labels that are as good as unique.
    """
    columns = Columns(text=("",), quoting=quoting, delimiter=delimiter, label_separator=label_separator)
    file = _file_to_look_at(path, columns)
    table = open_table(file, columns, BadRows(on_error))
    if label is not None and not isinstance(label, str):
        return _flagged_task(file, table, columns, text, text_pair, label)
    first, second, target = _choose_columns(file, table.columns, text, text_pair, label)
    columns = replace(
        columns,
        text=(first.name,),
        text_pair=(second.name,) if second else (),
        label=(target.name,),
    )
    named = label_names(file, target.name) if kind_of(file) == ".parquet" and problem != "regression" else None
    if problem == "multi_label" or (problem is None and _holds_lists(table, target.name)):
        return _listed_task(file, table, columns, (first, second, target), labels, named)
    notes = [_note("text", first)] + ([_note("second text", second)] if second else []) + [_note("label", target)]
    if labels is not None:
        if problem == "regression":
            raise ConfigError("labels= is for classification; a regression task has none")
        names: tuple[str, ...] | None = tuple(labels)
        notes.append(f"labels: {shorten(labels, limit=12)}, in the order given")
    elif named is not None:
        names = named
        notes.append(f"{len(named)} labels, named by the file: {shorten(named, limit=12)}")
    else:
        counts = _count_labels(file, table, target.name, BadRows(on_error))
        names = _labels_from(file, target.name, counts, problem, notes)
    metrics = ("accuracy", "macro_f1") if names else ("spearman", "pearson")
    return TextTask(
        name="csv",
        about=f"from {file.name}",
        labels=names,
        metrics=metrics,
        main_metric=metrics[0],
        columns=columns,
        raw_labels=tuple(map(str, range(len(named)))) if named is not None and names == named else (),
        hub_labels=named is not None and names == named,
        notes=tuple(notes),
    )


def _flagged_task(
    file: Path, table: Table, columns: Columns, text: str | None, text_pair: str | None, labels: Sequence[str]
) -> TextTask:
    """A task whose labels have a column each."""
    if len(set(labels)) < 2:
        raise ConfigError(f"label={list(labels)}: several labels need two columns or more; one is named by a str")
    first, second, _ = _choose_columns(file, table.columns, text, text_pair, labels[0])
    names = tuple(find_column(file, table.columns, [name], "label", "--label") for name in labels)
    taken = {choice.name for choice in (first, second) if choice} & set(names)
    if taken:
        raise ConfigError(f"{file}: one column cannot be two things: {sorted(taken)} is text and label")
    columns = replace(
        columns, text=(first.name,), text_pair=(second.name,) if second else (), label=names, label_columns=names
    )
    notes = [_note("text", first), *([_note("second text", second)] if second else [])]
    notes.append(f"{len(names)} labels, a column each: {shorten(names, limit=12)}")
    return _several_task(file, columns, names, notes)


def _listed_task(
    file: Path,
    table: Table,
    columns: Columns,
    chosen: tuple[_Choice, _Choice | None, _Choice],
    labels: Sequence[str] | None,
    named: tuple[str, ...] | None,
) -> TextTask:
    """A task whose labels stand together in one column; ``named``: what the file calls its numbers."""
    kinds = zip(("text", "second text", "label"), chosen, strict=True)
    notes = [_note(what, choice) for what, choice in kinds if choice is not None]
    target = chosen[2].name
    names = tuple(labels) if labels is not None else named or ()
    if not names:
        found: Counter[str] = Counter()
        for _, (value,) in table.rows([target]):
            found.update([] if value is None else listed_labels(value, columns.label_separator))
        if len(found) < 2:
            raise DataError(f"{file}: column {target!r} holds {len(found)} different labels; expected two or more")
        names = tuple(sorted(found, key=_natural))
    notes.append(f"{len(names)} labels, any number of them a row: {shorten(names, limit=12)}")
    task = _several_task(file, columns, names, notes)
    return replace(task, raw_labels=tuple(map(str, range(len(names))))) if names == named else task


def _several_task(file: Path, columns: Columns, names: tuple[str, ...], notes: Sequence[str]) -> TextTask:
    metrics = ("micro_f1", "macro_f1", "exact_match")
    return TextTask(
        name="csv",
        about=f"from {file.name}",
        labels=names,
        metrics=metrics,
        main_metric=metrics[0],
        columns=columns,
        multi_label=True,
        notes=tuple(notes),
    )


def _holds_lists(table: Table, column: str) -> bool:
    first = next(table.rows([column]), None)
    return first is not None and isinstance(first[1][0], list)


def _file_to_look_at(path: str | Path, columns: Columns) -> Path:
    """The train file; dev or test where there is no train file."""
    anything = TextTask("csv", None, ("pearson",), "pearson", columns)
    return next(iter(splits_of(anything, path).values()))


def _choose_columns(
    file: Path, columns: Sequence[str], text: str | None, text_pair: str | None, label: str | None
) -> tuple[_Choice, _Choice | None, _Choice]:
    known = {name.casefold(): name for name in reversed(columns)}
    if label is not None:
        target = _Choice(find_column(file, columns, [label], "label", "--label"), False)
    else:
        target = _Choice(_guess(file, columns, known, LABEL_NAMES, "label", "--label"), True)
    second = None
    if text_pair is not None:
        second = _Choice(find_column(file, columns, [text_pair], "second text", "--text-pair"), False)
    if text is not None:
        first = _Choice(find_column(file, columns, [text], "text", "--text"), False)
    else:
        pairs = [(a, b) for a, b in PAIR_NAMES if a in known and b in known]
        if pairs and second is None:
            first, second = _Choice(known[pairs[0][0]], True), _Choice(known[pairs[0][1]], True)
        else:
            first = _Choice(_guess(file, columns, known, TEXT_NAMES, "text", "--text"), True)
    used = [choice.name for choice in (first, second, target) if choice]
    if len(set(used)) != len(used):
        raise ConfigError(f"{file}: one column cannot be two things: text, second text and label are {used}")
    return first, second, target


def _guess(
    file: Path, columns: Sequence[str], known: dict[str, str], names: Sequence[str], what: str, option: str
) -> str:
    for name in names:
        if name in known:
            return known[name]
    near = next((hint for hint in (did_you_mean(column.casefold(), names) for column in columns) if hint), "")
    raise DataError(
        f"{file}: cannot tell which column is the {what}{near}. The columns are {list(columns)}; name it with {option}"
    )


def _note(what: str, choice: _Choice) -> str:
    return f"{what} column: {choice.name!r}" + (" (guessed from its name)" if choice.guessed else "")


def _count_labels(file: Path, table: Table, column: str, bad: BadRows) -> Counter[str]:
    counts: Counter[str] = Counter()
    for row, (value,) in table.rows([column]):
        if is_missing(value):
            bad.report(file, row, "missing label", f"column {column!r} has no label ({value!r})")
        elif isinstance(value, (list, dict)):
            message = f"column {column!r} holds a {type(value).__name__}; expected one label a row"
            bad.report(file, row, "label is no text", message)
        else:
            counts[whole_text(value)] += 1
    if not counts:
        raise DataError(f"{file} has the columns {list(table.columns)} but no row with a label")
    return counts


def _labels_from(
    file: Path, column: str, counts: Counter[str], problem: Problem | None, notes: list[str]
) -> tuple[str, ...] | None:
    """The labels in order, or None for regression."""
    numbers = [text for text in counts if _FLOAT.fullmatch(text)]
    others = [text for text in counts if not _FLOAT.fullmatch(text)]
    gaps = [text for text in others if looks_missing(text)]
    if numbers and gaps and len(gaps) == len(others):
        raise DataError(
            f"{file}: column {column!r} holds numbers and {counts[gaps[0]]:,} times {gaps[0]!r}, which looks like a "
            "missing value. Remove those rows, or give the labels (labels=) if it is one"
        )
    endless = [text for text in others if text.lstrip("+-").casefold() in ("inf", "infinity")]
    if numbers and problem is None and endless and len(endless) == len(others):
        raise DataError(
            f"{file}: column {column!r} holds numbers and {counts[endless[0]]:,} times {endless[0]!r}, which is no "
            "score to learn. Remove those rows, or say problem='classification' if it is a label"
        )
    fractions = any(not text.lstrip("+-").isdigit() for text in numbers)
    if problem == "regression" or (problem is None and fractions and not others):
        if others:
            raise DataError(f"{file}: column {column!r} must hold numbers for regression, but has {others[0]!r}")
        _check_spread(file, column, counts, "score")
        low, high = min(map(float, numbers)), max(map(float, numbers))
        notes.append(f"regression: the scores go from {low:g} to {high:g}")
        return None
    rows = counts.total()
    _check_spread(file, column, counts, "label")
    if len(counts) > MANY_LABELS and len(counts) > rows / 2:
        raise DataError(
            f"{file}: column {column!r} has {len(counts):,} different labels in {rows:,} rows, such as "
            f"{shorten(counts, limit=3)}. Is it the label? Choose another with --label, or say problem='regression'"
        )
    ordered = sorted(counts, key=float) if not others else sorted(counts, key=_natural)
    notes.append(f"{len(ordered)} labels, in this order: {shorten(ordered, limit=12)}")
    return tuple(ordered)


def _check_spread(file: Path, column: str, counts: Counter[str], what: str) -> None:
    if len(counts) == 1:
        raise DataError(
            f"{file}: column {column!r} holds the one {what} {next(iter(counts))!r} in all {counts.total():,} rows; "
            "there is nothing to learn. Choose another column with --label, or add rows of other labels"
        )


def _natural(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that takes runs of digits as numbers and looks at case last."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text.casefold())
    return [(0, int(part), "") if part.isascii() and part.isdigit() else (1, 0, part) for part in parts], text
