"""A task made from a user's own table: CSV, TSV, Excel, JSON, JSON lines or Parquet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from bertkit.config.file_columns import Columns, Quoting
from bertkit.errors import ConfigError, DataError, counted, did_you_mean, shorten
from bertkit.tasks.examples import place_of
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.reading.bad_rows import BadRows, OnError, is_missing, looks_missing, whole_text
from bertkit.tasks.reading.excel import ExcelTable
from bertkit.tasks.reading.hub_datasets import label_names
from bertkit.tasks.reading.splits import kind_of, split_of, splits_of
from bertkit.tasks.reading.tables import DelimitedTable, Table, find_column, names_of, open_table
from bertkit.tasks.reading.text_rows import USUAL, USUAL_PAIRS
from bertkit.tasks.text.label_cleaning import Asked, Cleaning
from bertkit.tasks.text.reading import read_examples
from bertkit.tasks.text.task import TextTask, listed_labels

#: As :data:`bertkit.tasks.reading.text_rows.USUAL`, of the label.
LABEL_NAMES = (
    "label labels sentiment class category target score rating stars gold_label polarity is_duplicate similarity y"
).split()
#: More labels than this, with more than half of the rows each under a label of its own, is a column of something else.
MANY_LABELS = 20
#: Rows from which on a label is frequent.
FREQUENT = 10
#: What to do about a table with one column, by the ending of its file.
_REMEDIES = {
    ".xlsx": "another sheet may have it: --sheet",
    "": "if another character separates the columns, give it with --delimiter",
}
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
Problem = Literal["classification", "regression", "multi_label"]


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
    encoding: str | None = None,
    sheet: str | int | None = None,
    merge_labels: str | Sequence[str] | None = None,
    drop_label: str | Sequence[str] = (),
    min_rows: int | None = None,
    on_error: OnError = "raise",
) -> TextTask:
    """Look at a file and say what can be learned from it.

    Args:
        path: a file, or a folder with a train file (and perhaps dev and test).
        text: column of the text; None looks for common names, and for common pairs of columns as well.
        text_pair: column of the second text; None means none when ``text`` is given.
        label: column of the label; None looks for common names. Several columns are labels that do not exclude each
            other, each with 1 or 0 in a column of its own.
        problem: None means regression when some label is a number with a fraction, else classification, with several
            labels a row where the column holds lists (JSON, Parquet). "multi_label" says that a text has several.
        labels: the labels in their order, for example those of an earlier run; None takes those of the train file,
            numbers by value, other text in natural order ("item 2" before "item 10").
        label_separator: between several labels in one text.
        quoting: see :class:`bertkit.tasks.Columns`.
        delimiter: see :class:`bertkit.tasks.Columns`; None takes a semicolon or a tab in the header of a .csv file.
        encoding: of text files, such as "cp1250"; None means UTF-8, or as the file shows.
        sheet: of an Excel workbook, see :class:`bertkit.tasks.Columns`.
        merge_labels: in what labels may differ that are one label: "case", "space" (white space), "case,space".
        drop_label: labels whose rows are left out, here and in every other file that the task reads.
        min_rows: labels with fewer rows in the training file are left out; None: those of one row in a thousand, or of
            fewer, are an error; 1: they are not.
        on_error: "skip" passes over rows without a usable label here; :func:`bertkit.tasks.load_split` counts them.

    Returns:
        A task named ``csv`` whose ``notes`` say which columns were taken and how the labels were read.

    Raises:
        ConfigError: ``labels`` given for regression, or given twice; an unknown encoding; labels to be cleaned where
            there are none as text.
        DataError: a missing column (with the nearest name), no column with a usual name, rows without a label, one
            label only, labels that are as good as unique in a column that nobody named.
    """
    columns = Columns(
        *((text or "",), (), (label,) if isinstance(label, str) else (), (), quoting, delimiter),
        label_separator=label_separator,
        encoding=encoding,
        sheet=None if sheet is None else str(sheet),
    )
    anything = TextTask("csv", None, ("pearson",), "pearson", columns)
    file = next(iter(splits_of(anything, path).values()))  # of train; of dev or test where there is no train file
    bad = BadRows("skip")
    table = open_table(file, columns, bad)
    flags: tuple[str, ...] = ()
    if label is not None and not isinstance(label, str):
        flags = _flag_columns(file, table, tuple(label), labels, problem)
        label = flags[0]
    chosen, notes = _choose_columns(file, table.columns, text, text_pair, label, flags)
    if isinstance(table, DelimitedTable) and delimiter is None and table.delimiter == ";":
        notes.append("fields are separated by ';', as in the header")
    if isinstance(table, ExcelTable | DelimitedTable) and table.note:
        notes.append(table.note)
    target = chosen["label"]
    second = (chosen["second text"],) if "second text" in chosen else ()
    columns = replace(columns, text=(chosen["text"],), text_pair=second, label=flags or (target,), label_columns=flags)
    asked = Asked.of(merge_labels, drop_label, min_rows)
    given = _Given(labels, problem, asked, guessed=label is None and problem is None)
    found = _find_labels(file, table, columns, given, bad, notes)
    task = _make_task(file, columns, found, notes)
    if (bad.skipped or found.slips) and on_error == "raise":
        read_examples(task, file, split_of(file) or "train")  # names these rows together with those of other faults
    return task


class _Given(NamedTuple):
    """What is said of labels; ``guessed``: nobody has said that it is the column of labels."""

    labels: Sequence[str] | None
    problem: Problem | None
    asked: Asked
    guessed: bool


class _Found(NamedTuple):
    """Labels in order, None for scores; whether a row has several, whether the file holds their numbers, slips."""

    names: tuple[str, ...] | None
    several: bool = False
    numbered: bool = False
    cleaning: Cleaning | None = None
    slips: Sequence[str] = ()


def _find_labels(file: Path, table: Table, columns: Columns, given: _Given, bad: BadRows, notes: list[str]) -> _Found:
    flags, target, asked = columns.label_columns, columns.label[0], given.asked
    named = label_names(file, target) if kind_of(file) == ".parquet" and given.problem != "regression" else None
    several = bool(flags) or given.problem == "multi_label"
    if given.problem is None and not flags:
        several = any(isinstance(value, list) for _, (value,) in islice(table.rows([target]), 1))
    if asked and (flags or (named and given.labels is None)):
        whose = "a column each" if flags else "names in the file's metadata"
        raise ConfigError(f"merge_labels, drop_label and min_rows are for labels as text; these have {whose}")
    if asked.min_rows is not None and given.labels is not None:
        raise ConfigError("min_rows is for labels that are found in the file; these are given. Leave min_rows out")
    known = Cleaning(asked.merge, asked.dropped) if asked and given.labels is not None else None
    counts: Counter[str] = Counter()
    slips: list[str] = []
    if given.labels is None and not named and not flags:
        counts = (
            _listed_labels(file, table, target, columns.label_separator)
            if several
            else _count_labels(file, table, target, bad)
        )
        known = asked.clean(file, counts, notes)
    if several:
        names = flags or tuple(given.labels or named or sorted(counts, key=_natural))
        if len(names) < 2 and given.labels is None:
            count = counted(len(names), "label")
            raise DataError(f"{file}: column {target!r} holds {count}; expected two different ones or more")
        asked.check_rare(file, counts)
        how = "a column each" if flags else "any number of them a row"
        notes.append(f"{counted(len(names), 'label')}, {how}: {shorten(names, limit=12)}")
        return _Found(names, several, named is not None and names == named, known)
    if given.labels is not None:
        if given.problem == "regression":
            raise ConfigError("labels= is for classification; a regression task has none")
        notes.append(f"labels: {shorten(given.labels, limit=12)}, in the order given")
        return _Found(tuple(given.labels), numbered=named == tuple(given.labels), cleaning=known)
    if named is not None:
        notes.append(f"{counted(len(named), 'label')}, named by the file: {shorten(named, limit=12)}")
        return _Found(named, numbered=True)
    if given.problem != "regression" and asked.min_rows is None:
        slips = _take_slips(counts)
    scale = _labels_from(file, table, target, counts, given.problem, notes, bad, guessed=given.guessed)
    if scale is not None:
        asked.check_rare(file, counts)
    elif asked.merge or asked.min_rows is not None:
        raise ConfigError(f"{file}: column {target!r} holds scores; merge_labels and min_rows are for labels")
    return _Found(scale, cleaning=known, slips=slips)


def _flag_columns(
    file: Path, table: Table, given: tuple[str, ...], labels: Sequence[str] | None, problem: Problem | None
) -> tuple[str, ...]:
    if problem not in (None, "multi_label") or tuple(labels or given) != given:
        raise ConfigError(
            f"label={list(given)}: each of several columns is one label, so that problem= is 'multi_label', not "
            f"{problem!r}, and labels= the same names, not {labels}; leave both out, or name one column"
        )
    if len(set(given)) < 2:
        raise ConfigError(f"label={list(given)}: several labels need two columns or more; one is named by a str")
    return tuple(find_column(file, table.columns, [name], "label", "choose one with --label") for name in given)


def _make_task(file: Path, columns: Columns, found: _Found, notes: Sequence[str]) -> TextTask:
    """The task, with the metrics of its kind."""
    names = found.names
    metrics = ("micro_f1", "macro_f1", "exact_match") if found.several else ("accuracy", "macro_f1")
    if names is None:
        metrics = ("spearman", "pearson")
    return TextTask(
        name="csv",
        about=f"from {file.name}",
        labels=names,
        metrics=metrics,
        main_metric=metrics[0],
        columns=columns,
        raw_labels=tuple(map(str, range(len(names or ())))) if found.numbered else (),
        hub_labels=found.numbered and not found.several,
        multi_label=found.several,
        cleaning=found.cleaning,
        notes=tuple(notes),
    )


def _listed_labels(file: Path, table: Table, column: str, separator: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for _, (value,) in table.rows([column]):
        found.update([] if value is None else listed_labels(value, separator))
    return found


def _choose_columns(
    file: Path, columns: Sequence[str], text: str | None, text_pair: str | None, label: str | None, flags: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """The columns by what they are: text, perhaps second text, label; and a note on each, but for ``flags``."""
    known = {name.casefold(): name for name in reversed(columns)}
    guessed: set[str] = set()

    def find(what: str, given: str | None, option: str, usual: Sequence[str] = ()) -> str:
        if given is not None:
            return find_column(file, columns, [given], what, f"choose one with {option}")
        guessed.add(what)
        for name in usual:
            if name in known:
                return known[name]
        if len(columns) == 1:
            raise DataError(
                f"{file}: no column for the {what}: there is one column, {columns[0]!r}. Texts to learn from need a "
                f"column of labels beside them; {_REMEDIES.get(file.suffix.lower(), _REMEDIES[''])}"
            )
        near = next((column for column in columns[:1000] if did_you_mean(column.casefold(), usual)), None)
        hint = "" if near is None else f" (is it {near!r}?)"
        more, it, options = ("", "it", option)
        if what == "label" and text is None and pair is None and known.keys().isdisjoint(USUAL):
            more, it, options = (" and which the text", "them", "--label and --text")
        raise DataError(
            f"{file}: cannot tell which column is the {what}{hint}{more}. The columns are {names_of(columns)}; name "
            f"{it} with {options}"
        )

    pair = next(((a, b) for a, b in USUAL_PAIRS if a in known and b in known), None)
    target = find("label", label, "--label", LABEL_NAMES)
    second = None if text_pair is None else find("second text", text_pair, "--text-pair")
    if text is None and second is None and pair is not None:
        first, second = known[pair[0]], known[pair[1]]
        guessed |= {"text", "second text"}
    else:
        first = find("text", text, "--text", USUAL)
    used = {"text": first, **({"second text": second} if second else {}), "label": target}
    names = [*used.values(), *flags[1:]]
    if len(set(names)) != len(names):
        raise ConfigError(f"{file}: one column cannot be two things: {', '.join(used)} are {shorten(names)}")
    return used, [
        f"{what} column: {name!r}" + (" (inferred from its name)" if what in guessed else "")
        for what, name in used.items()
        if what != "label" or not flags
    ]


def _count_labels(file: Path, table: Table, column: str, bad: BadRows) -> Counter[str]:
    counts: Counter[str] = Counter()
    bad.skipped.clear()  # found while looking for the first good row; found again here
    for row, (value,) in table.rows([column]):
        if is_missing(value):
            bad.report(file, row, "missing label", f"column {column!r} has no label ({value!r})")
        elif isinstance(value, (list, dict)):
            message = f"column {column!r} holds a {type(value).__name__}; expected one label per row"
            bad.report(file, row, "label is no text", message)
        else:
            counts[whole_text(value)] += 1
    bad.finish(file, counts.total(), f"{file} has the columns {names_of(table.columns)} but no row with a label")
    return counts


def _take_slips(counts: Counter[str]) -> list[str]:
    """Remove labels of one row that look like a missing value or a frequent label in another spelling: bad rows."""
    frequent = {plain_text(label) for label, count in counts.items() if count >= FREQUENT}
    once = [label for label, count in counts.items() if count == 1]
    slips = [label for label in once if plain_text(label) in frequent or (frequent and looks_missing(label))]
    for slip in slips:
        del counts[slip]
    return slips


def _labels_from(
    file: Path,
    table: Table,
    column: str,
    counts: Counter[str],
    problem: Problem | None,
    notes: list[str],
    bad: BadRows,
    *,
    guessed: bool,
) -> tuple[str, ...] | None:
    """The labels in order, or None for regression; ``guessed``: nobody has said that it is the column of labels."""
    numbers = [text for text in counts if _FLOAT.fullmatch(text)]
    others = [text for text in counts if not _FLOAT.fullmatch(text)]
    gaps = [text for text in others if looks_missing(text)]
    if numbers and gaps and len(gaps) == len(others):
        raise DataError(
            f"{_first(file, table, column, gaps)}: column {column!r} holds numbers and "
            f"{counted(counts[gaps[0]], 'time')} {gaps[0]!r}, which looks like a missing value. "
            f"Leave those rows out with --drop-label {gaps[0]!r}, or give the labels (labels= in Python) if it is one"
        )
    endless = [text for text in others if text.lstrip("+-").casefold() in ("inf", "infinity")]
    if numbers and problem is None and endless and len(endless) == len(others):
        raise DataError(
            f"{_first(file, table, column, endless)}: column {column!r} holds numbers and "
            f"{counted(counts[endless[0]], 'time')} {endless[0]!r}, which is no score to learn. "
            f"Leave those rows out with --drop-label {endless[0]!r}, or pass problem='classification' to csv_task in "
            "Python if it is a label"
        )
    fractions = any(not text.lstrip("+-").isdigit() for text in numbers)
    if problem == "regression" or (problem is None and fractions and not others):
        if others:
            place, more = _first(file, table, column, others), sum(counts[text] for text in others) - 1
            also = f", and so have {counted(more, 'row')} after it" if more else ""
            raise DataError(
                f"{place}: column {column!r} must hold numbers for regression, but has {others[0]!r}{also}. Correct or "
                "remove it, or name another column with --label"
            )
        _check_spread(file, column, counts, "score", bad)
        low, high = min(map(float, numbers)), max(map(float, numbers))
        notes.append(f"regression: the scores go from {low:g} to {high:g}")
        return None
    if problem is None and len(counts) > MANY_LABELS and all(re.fullmatch(r"[+-]?\d+,\d+", text) for text in counts):
        first = next(iter(counts))
        raise DataError(
            f"{file}: column {column!r} holds numbers with decimal commas, such as {first!r}. Write them with a point, "
            f"{first.replace(',', '.')!r}, or save the sheet as .xlsx, which stores numbers as numbers"
        )
    rows = counts.total()
    _check_spread(file, column, counts, "label", bad)
    if guessed and len(counts) > MANY_LABELS and len(counts) > rows / 2:
        raise DataError(
            f"{file}: column {column!r} has {len(counts):,} different labels in {rows:,} rows, such as "
            f"{shorten(counts, limit=3)}. If these are the labels, say so with --label {column!r}; if not, name "
            "another column there, or, for scores, pass problem='regression' to csv_task in Python"
        )
    ordered = sorted(counts, key=float) if not others else sorted(counts, key=_natural)
    notes.append(f"{counted(len(ordered), 'label')}, in this order: {shorten(ordered, limit=12)}")
    return tuple(ordered)


def _first(file: Path, table: Table, column: str, labels: Sequence[str]) -> str:
    """The place of the first row with the first of these labels."""
    return next(
        place_of(file, row)
        for row, (value,) in table.rows([column])
        if not is_missing(value) and whole_text(value) == labels[0]
    )


def _check_spread(file: Path, column: str, counts: Counter[str], what: str, bad: BadRows) -> None:
    if len(counts) == 1:
        rows = "its only row" if counts.total() == 1 else f"all {counts.total():,} rows"
        if unread := [row for row in bad.skipped if not row.asked]:
            rows += f" that can be used; {len(unread):,} cannot, the first: {unread[0].message}"
        raise DataError(
            f"{file}: column {column!r} holds the one {what} {next(iter(counts))!r} in {rows}; "
            "there is nothing to learn. Choose another column with --label, or add rows of other labels"
        )


def _natural(text: str) -> tuple[list[tuple[int, float, str]], str]:
    """Sort key that takes runs of digits as numbers and looks at case last."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text.casefold())
    return [(0, float(part), "") if part.isascii() and part.isdigit() else (1, 0.0, part) for part in parts], text
