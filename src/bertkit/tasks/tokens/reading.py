"""Tagged sentences: which files hold them, and how their rows become examples.

A file is CoNLL's (:mod:`bertkit.tasks.tokens.conll`), or has a list of words and a list of tags in each row, as data
sets on the Hugging Face Hub have it: ``{"tokens": ["Ann", "spoke"], "ner_tags": ["B-PER", "O"]}``. There tags are often
numbers, whose names are in the metadata of the Parquet file. Or it has running texts with entities marked by
characters, in a form of :mod:`bertkit.tasks.tokens.span_files`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError, counted, did_you_mean, shorten
from bertkit.metrics.tags import OUTSIDE, Entity, Spelling, read_entities, spelling_of
from bertkit.system.console import say_once
from bertkit.tasks.examples import Examples, Halves, Split, place_of, row_name
from bertkit.tasks.hold_out import check_share, group_rows, part, plain_text, shuffled, take_groups
from bertkit.tasks.reading.bad_rows import BadRows, OnError, RowError
from bertkit.tasks.reading.hub_datasets import label_names
from bertkit.tasks.reading.splits import FileRules, kind_of, splits_of
from bertkit.tasks.reading.tables import column_of, columns_to_search, find_column, open_table
from bertkit.tasks.tokens.conll import RUNNING_TEXT, ConllColumns, Sentence, read_conll
from bertkit.tasks.tokens.marked_texts import sentence_of
from bertkit.tasks.tokens.span_files import DOCBIN, TITLES, has_marks, is_brat, read_marked
from bertkit.tasks.tokens.task import TaggedExample, TaggedExamples, TokenTask

#: More types than this in a user's file are a sign that the tag column is another one.
MANY_TYPES = 200
#: Names of the two columns of a table, the first one present is taken.
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "ner")
RENAME = "rename the column that holds them"
#: Kinds of file that hold rows and not lines of words.
TABLES = (".jsonl", ".ndjson", ".parquet", ".json")
RULES = FileRules(
    suffixes=(
        *(".conll", ".conll2002", ".conll2003", ".bio", ".iob", ".iob2", ".bioes", ".ner", ".txt", ".tsv"),
        *(".annotated", DOCBIN, *TABLES),
    ),
    loose=True,
    is_folder=is_brat,
    unit="sentences",
)


class _Ner(NamedTuple):
    name: str = "ner"
    folders: tuple[str, ...] = ()


#: Under which a folder of tagged files is looked for, whatever its task is called.
NER = _Ner()


def tagged_files(data: str | Path) -> dict[Split, Path]:
    """The files of a dataset by split: those of a folder with it in their names (``eng.testb``), or one file."""
    return splits_of(NER, data, RULES)


def ner_task(
    data: str | Path,
    *,
    name: str = "ner",
    types: Sequence[str] | None = None,
    word_column: int = 1,
    tag_column: int = -1,
    delimiter: str | None = None,
    joiner: str = " ",
    encoding: str | None = None,
    on_error: OnError = "raise",
) -> TokenTask:
    """The task of finding what the entities in CoNLL files are.

    Args:
        data: a folder with train, dev and test files, or one file; see :func:`tagged_files`.
        name: of the task.
        types: names of the entity types, when a model fixes them; None takes those of the train and dev files, sorted.
        word_column: the column of the words, counted from 1.
        tag_column: the column of the tags, counted from 1, or from the end with -1.
        delimiter: None means a tab where the first line of data has one, else runs of blanks.
        joiner: placed between two words, see :class:`bertkit.tasks.tokens.task.TaggedExample`.
        encoding: of the files; None means UTF-8, or as a file shows.
        on_error: "skip" passes over bad lines while looking for types.

    Raises:
        DataError: files that cannot be read, or hold no entity.
    """
    columns = ConllColumns(word_column, tag_column, delimiter, encoding)
    about = "entities in CoNLL files"
    if types is not None:
        return TokenTask(name, tuple(types), columns, joiner, about=about)
    found: set[str] = set()
    notes = []
    files = tagged_files(data)
    for split, path in ({split: path for split, path in files.items() if split != "test"} or files).items():
        sentences = read_sentences(path, columns, BadRows(on_error, gather=True))
        spelling = spelling_of([sentence.tags for sentence in sentences])
        types, num_words = spelling.types, sum(len(sentence.words) for sentence in sentences)
        if len(types) > MANY_TYPES or (len(types) > 20 and len(types) > num_words / 10):
            raise DataError(
                f"{path}: {len(types):,} different entity types in {num_words:,} words, such as "
                f"{shorten(types, limit=4)}. Is this the column of the tags? Choose it with --tag-column (tag_column=)"
            )
        if sentences.form:
            notes.append(f"{split} has running texts with character spans, in {sentences.form}")
        else:
            notes.append(f"{split} is tagged in {_described(spelling)}")
        found |= spelling.entities.keys()
    if not found:
        raise DataError(f"{data}: every word is tagged {OUTSIDE}, so there is no entity to learn from")
    return TokenTask(name, tuple(sorted(found)), columns, joiner, about=about, notes=tuple(notes))


def read_tagged(task: TokenTask, path: Path, split: Split, *, on_error: OnError = "raise") -> TaggedExamples:
    """The sentences of one file. Tags of any scheme become entities by the one rule of :mod:`bertkit.metrics.tags`."""
    bad = BadRows(on_error, gather=True)
    sentences = read_sentences(path, task.columns, bad, tagged=None if split == "test" else True)
    spelling = spelling_of([sentence.tags for sentence in sentences]) if sentences[0].tags else None
    rows = []
    for sentence in sentences:
        entities = sentence.entities
        if entities is None and spelling is not None:
            entities = tuple(read_entities(sentence.tags, spelling.notation))
        unknown = next((entity for entity in entities or () if entity.type not in task.types), None)
        if unknown is not None:
            message = (
                f"{_tag(sentence, unknown)} is of no known type{did_you_mean(unknown.type, task.types)}; "
                f"the types are {shorten(task.types, limit=12)}"
            )
            advice = RUNNING_TEXT if split == "test" else ""
            bad.report(path, sentence.lines[unknown.start], "unknown type", message, advice)
            continue
        place = sentence.lines[0], str(sentence.source or path), sentence.document
        rows.append(TaggedExample(tuple(sentence.words), entities, *place, task.joiner, sentence.spacing))
    bad.finish(path, len(rows), f"{path} has no sentence")
    skipped = sorted(bad.skipped, key=lambda skipped: skipped.row)  # types were checked last
    examples = TaggedExamples(rows, path, split, skipped)
    examples.spelling, examples.form, examples.moved = spelling, sentences.form, sentences.moved
    return examples


def _tag(sentence: Sentence, entity: Entity) -> str:
    if sentence.entities is None:
        return f"tag {sentence.tags[entity.start]!r}"
    return f"type {entity.type!r} of the entity {sentence.words[entity.start]!r}"


class Sentences(list[Sentence]):
    """The sentences of a file; ``form`` and ``moved`` as in :class:`TaggedExamples`."""

    form: str = ""
    moved: int = 0


def read_sentences(path: Path, columns: ConllColumns, bad: BadRows, *, tagged: bool | None = True) -> Sentences:
    """The whole sentences of a file of any form, at least one; ``tagged`` as in :func:`read_conll`."""
    if path.is_dir() or kind_of(path, (DOCBIN,)) == DOCBIN or _is_marked(path, columns):
        found = _read_texts(path, columns, bad, tagged=tagged)
        nothing = f"{path} has no text"
    elif kind_of(path) in TABLES:
        found = Sentences(_read_rows(path, columns, bad, tagged=tagged))
        nothing = f"{path} has no sentence in column {' or '.join(WORDS)}"
    else:
        found = Sentences(read_conll(path, columns, bad, tagged=tagged))
        nothing = f"{path} is empty: expected one word and its tag a line, and a blank line after each sentence"
    bad.finish(path, len(found), nothing)
    return found


def _is_marked(path: Path, columns: ConllColumns) -> bool:
    """Whether a file is a table of running texts, not of lists of words."""
    if kind_of(path) not in TABLES:
        return False
    names = open_table(path, Columns(text=WORDS, encoding=columns.encoding), BadRows("skip")).columns
    words, tags = column_of(names, WORDS), column_of(names, TAGS)
    return (has_marks(names) and not (words and tags)) or ("text" in names and not (words or tags))


def _read_texts(path: Path, columns: ConllColumns, bad: BadRows, *, tagged: bool | None) -> Sentences:
    form, texts = read_marked(path, bad, columns.encoding, tagged=tagged)
    found, moved = Sentences(), list[str]()
    for marked in texts:
        try:
            sentence, changes = sentence_of(marked)
        except RowError as fault:
            bad.report(marked.source, marked.row, fault.kind, str(fault))
            continue
        _check_alike(found, sentence, marked.source)
        moved += [f"{place_of(marked.source, marked.row)}: {change}" for change in changes]
        found.append(sentence)
    found.form, found.moved = TITLES[form], len(moved)
    if moved:
        ends = "1 entity begins or ends" if len(moved) == 1 else f"{len(moved):,} entities begin or end"
        say_once(f"{path}: {ends} inside a word and count with the whole word; the first at {moved[0]}")
    return found


def _check_alike(before: Sequence[Sentence], sentence: Sentence, path: Path) -> None:
    """DataError for a marked text after one that is not, or the reverse."""
    if before and bool(before[0].tags) != bool(sentence.tags):
        marked, other = (before[0], sentence) if before[0].tags else (sentence, before[0])
        where = place_of(other.source or path, other.lines[0])
        raise DataError(
            f"{where}: the text has no list of its entities, but {place_of(marked.source or path, marked.lines[0])} "
            "has one. Mark the whole file, or none of it"
        )


def _read_rows(path: Path, columns: ConllColumns, bad: BadRows, *, tagged: bool | None) -> Iterator[Sentence]:
    table = open_table(path, Columns(text=WORDS, encoding=columns.encoding), bad)
    words = find_column(path, table.columns, WORDS, "words", RENAME)
    there = columns_to_search(table, TAGS) if tagged is None else table.columns
    has_tags = tagged is True or column_of(there, TAGS) is not None
    names = [words, find_column(path, there, TAGS, "tags", RENAME)] if has_tags else [words]
    known = label_names(path, names[1]) if has_tags and kind_of(path) == ".parquet" else None
    first: dict[bool, int] = {}  # the line of the first sentence without tags, and with them
    for line, values in table.rows(names):
        if tagged is None and has_tags and values[1] is None:
            values = values[:1]
        try:
            _check_row(names, values, known)
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
            continue
        if not values[0]:
            continue  # an empty sentence, as two blank lines are
        tags = [] if len(values) == 1 else list(values[1]) if known is None else [known[number] for number in values[1]]
        first.setdefault(len(values) > 1, line)
        if len(first) > 1:
            raise DataError(
                f"{place_of(path, first[False])}: no {names[1]!r}, but {row_name(path, first[True])} has them. Tag the "
                "whole file, or none of it"
            )
        yield Sentence(list(values[0]), tags, [line] * len(values[0]), 0)


def _check_row(names: Sequence[str], values: Sequence[Any], known: Sequence[str] | None) -> None:
    """Raises RowError for a row that is not words, or words and as many tags."""
    words = values[0]
    if not _is_list_of(words, str):
        raise RowError("no words", f"column {names[0]!r} holds {words!r:.60}, expected a list of words")
    if len(values) == 1:
        return
    tags = values[1]
    if not isinstance(tags, list) or len(tags) != len(words):
        found = counted(len(tags), "tag") if isinstance(tags, list) else f"{tags!r:.60}"
        raise RowError("tags do not fit", f"column {names[1]!r} holds {found} for {counted(len(words), 'word')}")
    if known is None and not _is_list_of(tags, str):
        raise RowError(
            "tags without names",
            f"column {names[1]!r} holds {tags!r:.60}: numbers, and the file does not name them. Write the tags as "
            'text, such as "B-PER"',
        )
    if known is not None and not all(isinstance(tag, int) and 0 <= tag < len(known) for tag in tags):
        expected = f"expected numbers from 0 to {len(known) - 1}"
        raise RowError("unknown tag", f"column {names[1]!r} holds {tags!r:.60}, {expected}")


def _is_list_of(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _described(spelling: Spelling) -> str:
    words = {
        "bare": "types without B- and I-, where neighbours of one type are one entity",
        "IO": "IO, where neighbours of one type are one entity",
    }.get(spelling.scheme, spelling.scheme)
    if spelling.notation.suffix:
        words += ", the letter after the type (PER-B)"
    if not spelling.repaired:
        return words
    tags = "1 tag does" if spelling.repaired == 1 else f"{spelling.repaired:,} tags do"
    return f"{words}; {tags} not fit it, read by the repair rule (bertkit.metrics.tags)"


#: Fewest documents in a file for whole ones to be held out; with fewer, sentences are.
MIN_DOCUMENTS = 20


def hold_out_sentences(train: Examples[TaggedExample], share: float, seed: int) -> Halves[TaggedExample]:
    """Hold out a part of the sentences, for a data set that has no dev file.

    Whole documents where the file has 20 or more, because the names of one return all over it; else sentences, and
    equal ones stay on one side. Both parts keep the order of the file; the part held out has an entity where two groups
    or more have one. A pure function of its arguments.
    """
    check_share(share)
    if any(example.entities is None for example in train):
        raise DataError("sentences without tags cannot be held out for evaluation")
    if len({example.document for example in train}) >= MIN_DOCUMENTS:
        groups = group_rows(example.document for example in train)
    else:
        groups = group_rows(plain_text(" ".join(example.words)) for example in train)
    if len(groups) < 2:
        raise DataError(f"{len(train)} sentences are too few to hold any out: they are one group or one text")
    held = take_groups(shuffled(groups, seed), share, or_smallest=False)
    if any(train[row].entities for row in held):
        return part(train, held)
    # A dev part without an entity could not be scored, so the smallest group that has one is added.
    with_entities = [rows for rows in groups if any(train[row].entities for row in rows)]
    choices = with_entities if len(with_entities) > 1 else [] if held else groups
    more: list[int] = min(choices, key=len, default=[])
    return part(train, held.union(more))
