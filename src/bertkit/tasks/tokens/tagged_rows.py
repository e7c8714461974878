"""Tagged sentences as rows of JSON lines and Parquet: a list of words and a list of tags in each.

``{"tokens": ["Ann", "spoke"], "ner_tags": ["B-PER", "O"]}``, as data sets on the Hugging Face Hub have it. There tags
are often numbers, whose names stand in the notes of the Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertkit.errors import DataError, shorten
from bertkit.tasks.examples import Columns
from bertkit.tasks.reading.hub_datasets import label_names
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import BadRows, JsonTable, open_table
from bertkit.tasks.tokens.conll import ConllColumns, Sentence, read_conll

#: Names of the two columns, the first one present is taken.
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "ner")
#: Kinds of file that hold rows and not lines of words.
TABLES = (".jsonl", ".ndjson", ".parquet")


def read_sentences(
    path: Path, columns: ConllColumns, bad: BadRows, *, tagged: bool | None = True
) -> Iterator[Sentence]:
    """The sentences of a file of either form; takes what :func:`bertkit.tasks.tokens.conll.read_conll` takes."""
    if kind_of(path) in TABLES:
        return _read_rows(path, bad, tagged=tagged)
    return read_conll(path, columns, bad, tagged=tagged)


def _read_rows(path: Path, bad: BadRows, *, tagged: bool | None) -> Iterator[Sentence]:
    table = open_table(path, Columns(text=WORDS), bad)
    words = _find(path, table.columns, WORDS, "words")
    # The columns of JSON lines are those of the first; a later one may still have tags.
    listed = (*table.columns, TAGS[0]) if tagged is None and isinstance(table, JsonTable) else table.columns
    has_tags = tagged is True or any(name in listed for name in TAGS)
    names = [words, _find(path, listed, TAGS, "tags")] if has_tags else [words]
    known = label_names(path, names[1]) if has_tags and path.name.casefold().endswith(".parquet") else None
    num_sentences = 0
    first: dict[bool, int] = {}  # the line of the first sentence without tags, and with them
    for line, values in table.rows(names):
        if tagged is None and has_tags and values[1] is None:
            values = values[:1]
        fault = _fault(names, values, known)
        if fault is not None:
            bad.report(path, line, *fault)
            continue
        if not values[0]:
            continue  # an empty sentence, as two blank lines are
        tags = [] if len(values) == 1 else list(values[1]) if known is None else [known[number] for number in values[1]]
        first.setdefault(len(values) > 1, line)
        if len(first) > 1:
            raise DataError(
                f"{path}:{first[False]}: no {names[1]!r}, but line {first[True]} has them. Tag the whole file, or "
                "none of it"
            )
        num_sentences += 1
        yield Sentence(list(values[0]), tags, [line] * len(values[0]), 0)
    if not num_sentences:
        if bad.skipped:
            raise DataError(f"{path}: every row is bad; the first: {bad.skipped[0].message}")
        raise DataError(f"{path} has the columns {list(table.columns)} but no sentence")


def _fault(names: Sequence[str], values: Sequence[Any], known: Sequence[str] | None) -> tuple[str, str] | None:
    """Kind of fault and what is wrong with a row, or None."""
    words = values[0]
    if not _is_list_of(words, str):
        return "no words", f"column {names[0]!r} holds {words!r:.60}, expected a list of words"
    if len(values) == 1:
        return None
    tags = values[1]
    if not isinstance(tags, list) or len(tags) != len(words):
        found = f"{len(tags)} tags" if isinstance(tags, list) else f"{tags!r:.60}"
        return "tags do not fit", f"column {names[1]!r} holds {found} for {len(words)} words"
    if known is None and not _is_list_of(tags, str):
        return (
            "tags without names",
            f"column {names[1]!r} holds {tags!r:.60}: numbers whose names the file does not tell. Write the tags as "
            'text, such as "B-PER"',
        )
    if known is not None and not all(isinstance(tag, int) and 0 <= tag < len(known) for tag in tags):
        return "unknown tag", f"column {names[1]!r} holds {tags!r:.60}, expected numbers from 0 to {len(known) - 1}"
    return None


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _find(path: Path, columns: Sequence[str], wanted: Sequence[str], what: str) -> str:
    for name in wanted:
        if name in columns:
            return name
    raise DataError(f"{path}: no column of {what}: looked for {shorten(wanted)}; the columns are {list(columns)}")
