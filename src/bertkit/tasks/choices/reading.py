"""Which columns of a file hold a multiple-choice question, and how its rows become examples.

Any of the usual names is understood, so that the same reader takes SWAG's CSV (official and on the Hub), CODAH's TSV
without a header, ARC with columns A to D or a list of choices, HellaSwag, CommonsenseQA, RACE, and files made alike:

* the context: the first column there is of :data:`CONTEXTS`;
* the start of every choice, optional: of :data:`STARTS`;
* the choices: columns ``ending0 ending1 ...`` (or ``choice``, ``option``; also counted from 1), columns ``A B C ...``,
  or one column with a list (:data:`LISTS`), in JSON-lines and Parquet;
* the label: of :data:`LABELS`: a number counted from 0, or a letter where the choices have letters. A file whose
  numbers are, or may well be, counted from 1 is refused: read as counted from 0, each would name the wrong choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError, counted, shorten
from bertkit.system.untrusted_files import Json
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tasks.examples import Examples, Split, row_name
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError, all_or_none, is_missing, text_in, whole_text
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import (
    JsonTable,
    Table,
    column_of,
    columns_to_search,
    find_column,
    names_of,
    open_table,
)

CONTEXTS = tuple("sent1 ctx_a article passage context question question_propmt prompt premise ctx".split())
STARTS = ("sent2", "ctx_b", "start", "question")
FAMILIES = ("ending", "choice", "option")
LISTS = ("endings", "choices", "options", "candidate_answers")
LABELS = ("label", "answer", "answerKey", "correct_answer_idx", "gold")
#: The columns of CODAH's files, which have no header.
CODAH_COLUMNS = ("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label")


@dataclass(frozen=True, slots=True)
class ChoiceColumns:
    """Where a file holds its questions.

    choices: one column a choice; or, with ``listed``, the one column that holds a list of them.
    lettered: the label is the letter of a choice. one_more: what the column of one choice more would be called.
    """

    context: str
    start: str | None
    choices: tuple[str, ...]
    listed: bool
    lettered: bool
    label: str | None
    one_more: str | None


def read_choices(path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[ChoiceExample]:
    """The questions of one file, all with the same number of choices; labels may be absent from test alone."""
    bad = BadRows(on_error, gather=True)
    table = _open(path, bad)
    searched = columns_to_search(table, LABELS) if split == "test" else table.columns
    columns = find_columns(path, searched, split)
    names = [columns.context, *columns.choices]
    names += [name for name in (columns.start, columns.label) if name is not None]
    reader = _Rows(path, columns, split)
    rows = []
    one_more = columns.one_more if isinstance(table, JsonTable) else None  # the columns are those of the first row
    for line, values in table.rows([*names, *filter(None, [one_more])]):
        try:
            if one_more is not None and values[-1] is not None:
                there = f"there is {one_more!r} beside {', '.join(columns.choices)}, which the first row has"
                raise RowError("number of choices", f"{there}: all rows must have the same number of choices")
            rows.append(reader.example(line, dict(zip(names, values[: len(names)], strict=True))))
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
    reader.check_count_of_labels()
    bad.finish(path, len(rows), f"{path} has the columns {names_of(table.columns)} but no usable row")
    all_or_none(rows, [row.label is not None for row in rows])
    return Examples(rows, path, split, bad.skipped)


def find_columns(path: Path, columns: Sequence[str], split: Split = "train") -> ChoiceColumns:
    """Read off the column names where the questions are; a DataError lists what was looked for and not found."""
    rename = "rename the column that holds it to one of"
    context = find_column(path, columns, CONTEXTS, "context", f"{rename} {', '.join(CONTEXTS)}")
    start = next((name for name in STARTS if name in columns and name != context), None)
    choices, listed, one_more = _choice_columns(path, columns)
    label = None
    if split != "test" or column_of(columns, LABELS) is not None:
        label = find_column(path, columns, LABELS, "label", f"{rename} {', '.join(LABELS)}")
    return ChoiceColumns(context, start, choices, listed, choices[0] == "A", label, one_more)


def _choice_columns(path: Path, columns: Sequence[str]) -> tuple[tuple[str, ...], bool, str | None]:
    """The columns of the choices, whether they are one with a list, and the name for one choice more."""
    families = [[f"{name}{number}" for number in range(first, 27)] for name in FAMILIES for first in (0, 1)]
    for family in (*families, list(ascii_uppercase)):
        there = [name for name in family if name in columns]
        if len(there) > 1 and there == family[: len(there)]:
            return tuple(there), False, next(iter(family[len(there) :]), None)
    for name in LISTS:
        if name in columns:
            return (name,), True, None
    raise DataError(
        f"{path}: no choices: looked for columns ending0, ending1 ... (or choice, option), A, B ..., or a list in "
        f"{', '.join(LISTS)}; the columns are {names_of(columns)}"
    )


def _open(path: Path, bad: BadRows) -> Table:
    """The file's rows. Delimited text whose first row names no context is read as CODAH's is, without a header."""
    layout = Columns(text=CONTEXTS, headerless=CODAH_COLUMNS)
    table = open_table(path, layout, bad)
    if table.columns == CODAH_COLUMNS and kind_of(path) in (".csv", ".tsv"):
        try:
            next(open_table(path, layout, BadRows()).rows(CODAH_COLUMNS), None)
        except DataError as error:
            raise DataError(
                f"{error}. The first row of a file with a header names the context (one of {', '.join(CONTEXTS)}); "
                "a file without a header is read as CODAH's are"
            ) from None
    return table


class _Rows:
    """Rows to examples; a bad one raises RowError."""

    def __init__(self, path: Path, columns: ChoiceColumns, split: Split) -> None:
        self._path, self._columns, self._split = path, columns, split
        self._num_choices: tuple[int, int] | None = None  # of the first row, and its line
        self._numbers: set[int] = set()  # the labels that are numbers
        self._letters = False  # whether labels are names of choices

    def example(self, line: int, values: Mapping[str, Json]) -> ChoiceExample:
        columns = self._columns
        context, start = text_in(f"column {columns.context!r}", values[columns.context]), ""
        if columns.start is not None and not is_missing(values[columns.start]):
            start = text_in(f"column {columns.start!r}", values[columns.start])
        choices, keys = self._choices(values)
        if self._num_choices is None:
            self._num_choices = len(choices), line
        expected, first = self._num_choices
        if len(choices) != expected:
            there = f"{expected} in {row_name(self._path, first)}"
            message = f"{counted(len(choices), 'choice')}, but {there}: all rows must have the same number"
            raise RowError("number of choices", message)
        label = None if columns.label is None else self._label(values[columns.label], keys)
        return ChoiceExample(context, start, choices, label, line, str(self._path))

    def _choices(self, values: Mapping[str, Json]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The choices, and the letter or number that names each."""
        columns = self._columns
        if not columns.listed:
            texts = tuple(text_in(f"column {name!r}", values[name]) for name in columns.choices)
            return texts, columns.choices if columns.lettered else ()
        column = columns.choices[0]
        value, keys = values[column], None
        if isinstance(value, dict):  # ARC and CommonsenseQA on the Hub
            keys = value.get("label")
            value = value.get("text")
        if not isinstance(value, list) or len(value) < 2:
            raise RowError("no choices", f"column {column!r} holds {value!r:.60}, expected a list of two texts or more")
        if keys and not (isinstance(keys, list) and len({*map(str, keys)}) == len(keys) == len(value)):
            raise RowError("no choices", f"column {column!r}: {keys!r:.60} do not name {len(value)} different choices")
        names = keys if isinstance(keys, list) else []
        return tuple(text_in(f"column {column!r}", text) for text in value), tuple(map(str, names))

    def check_count_of_labels(self) -> None:
        """Once all rows are read, a DataError if no label is 0 and the columns of the choices count from 1."""
        columns = self._columns
        if self._numbers and 0 not in self._numbers and not columns.listed and columns.choices[0].endswith("1"):
            first, last = columns.choices[0], columns.choices[-1]
            raise DataError(
                self._from_one(f"the choices are in {first} to {last} and no label is 0")
                + f". If they are counted from 0, call the columns {first[:-1]}0 and so on"
            )

    def _has_zero(self) -> bool:
        """Whether the label 0 occurs anywhere in the file."""
        assert self._columns.label is not None
        table = _open(self._path, BadRows("skip"))
        return any(whole_text(value) == "0" for _, (value,) in table.rows([self._columns.label]) if value is not None)

    def _from_one(self, why: str) -> str:
        return (
            f"{self._path}: column {self._columns.label!r}: labels seem to be counted from 1: {why}. Count "
            "the choices from 0"
        )

    def _label(self, value: Json, keys: tuple[str, ...]) -> int | None:
        assert self._num_choices is not None
        count, text = self._num_choices[0], whole_text(value) if value is not None else ""
        if not text or (text == "-1" and self._split == "test"):
            if self._split == "test":
                return None
            raise RowError("missing label", f"column {self._columns.label!r} has no label ({value!r})")
        numbered = bool(self._numbers) or text.removeprefix("-").isdecimal()
        letters = keys or (() if numbered and not self._letters else tuple(ascii_uppercase[:count]))
        if text in letters:
            self._letters = True
            return letters.index(text)
        if not letters and text.isdecimal() and len(text) < 9:
            number = int(text)
            if number == count and count not in self._numbers and not self._has_zero():
                raise DataError(self._from_one(f"{count} occurs and 0 does not, with {counted(count, 'choice')}"))
            self._numbers.add(number)
            if number < count:
                return number
        expected = shorten(letters or range(count), limit=8)
        raise RowError(
            "unknown label", f"column {self._columns.label!r}: {value!r} is not a choice; expected one of {expected}"
        )
