"""From files of questions to examples: SQuAD's own JSON, and one question a row in JSONL, Parquet, CSV or Excel.

SQuAD's JSON is ``{"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers":
[{"text", "answer_start"}], "is_impossible"}]}]}]}``. A row of the others is what the Hugging Face Hub has: ``id``,
``context``, ``question``, ``answers`` as ``{"text": [...], "answer_start": [...]}`` (or as a list of objects, as in the
JSON), and where there is one ``title``. In a CSV or Excel file a cell of ``answers``, or ``answer``, is the text of one
answer, or that JSON; an empty one is no answer. An answer without ``answer_start`` is located in the context, if it
occurs there exactly once. Rows without an ``id`` have their number as one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bertkit.config.file_columns import Columns
from bertkit.errors import DataError, shorten
from bertkit.system.untrusted_files import Json, half_pair_at
from bertkit.tasks.examples import Examples, Halves, Split
from bertkit.tasks.hold_out import check_share, group_rows, part, shuffled, take_groups
from bertkit.tasks.reading.bad_rows import (
    HALF_PAIR,
    REMOVE,
    BadRows,
    OnError,
    RowError,
    all_or_none,
    is_missing,
    text_in,
    whole_text,
)
from bertkit.tasks.reading.splits import FileRules, kind_of, must_be_readable
from bertkit.tasks.reading.tables import JsonTable, find_column, open_table, read_json
from bertkit.tasks.spans.task import QUESTION, Answer, SpanExample, SpanTask

#: Kinds of file that can be read.
SUFFIXES = (".json", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".xlsx")
VERSIONS = ("1.1", "2.0")
#: Columns of a table of questions that it may do without.
OPTIONAL = ("id", "answers", "answer", "answer_start", "is_impossible", "title")


class Raw(NamedTuple):
    """A question as its file has it: row, place in the file for people, and unchecked values."""

    row: int
    place: str
    title: Json
    context: Json
    fields: Mapping[str, Json]


def read_questions(
    task: SpanTask, path: Path, split: Split, *, on_error: OnError = "raise", labelled: bool = True
) -> Examples[SpanExample]:
    """The questions of one file, in its order; answers may be absent from test, and are ignored unless ``labelled``."""
    must_be_readable(path, question_rules(task))
    bad = BadRows(on_error, gather=True, unit=QUESTION)
    raws = _json_questions(path, bad) if kind_of(path, SUFFIXES) == ".json" else _row_questions(path, bad)
    rows: list[SpanExample] = []
    places: dict[str, str] = {}
    for raw in raws:
        try:
            example = _read(task, raw, str(path), split, labelled=labelled)
            if example.id in places:
                raise RowError("repeated id", f"the id {example.id!r} was that of {places[example.id]} already")
        except RowError as error:
            named = f" (id {raw.fields['id']})" if isinstance(raw.fields.get("id"), str) else ""
            bad.report(path, raw.row, error.kind, f"{raw.place}{named}: {error}")
            continue
        places[example.id] = raw.place
        rows.append(example)
    bad.finish(path, len(rows), f"{path} has no question: it is empty")
    all_or_none(rows, [row.answers is not None for row in rows], "'answers'")
    return Examples(rows, path, split, bad.skipped)


def question_rules(task: SpanTask) -> FileRules:
    """Which files of a folder are the task's: not those whose names say another version of SQuAD."""
    others = tuple(version for version in VERSIONS if version != task.version)
    return FileRules(SUFFIXES, last=(), version=task.version, other_versions=others, unit="articles")


def _json_questions(path: Path, bad: BadRows) -> Iterator[Raw]:
    content = read_json(path)
    articles = content.get("data") if isinstance(content, dict) else None
    if not isinstance(articles, list):
        got = f"an object with {shorten(content)}" if isinstance(content, dict) else f"a {type(content).__name__}"
        raise DataError(f'{path}: expected SQuAD\'s format {{"data": [{{"paragraphs": ...}}]}}, got {got}')
    row = 0
    for a, article in enumerate(articles):
        title, paragraphs = _list_of(article, "paragraphs", f"data[{a}]", path, "title")
        for p, paragraph in enumerate(paragraphs):
            place = f"data[{a}].paragraphs[{p}]"
            context, questions = _list_of(paragraph, "qas", place, path, "context")
            for q, question in enumerate(questions):
                row += 1
                if isinstance(question, dict):
                    yield Raw(row, f"{place}.qas[{q}]", title, context, question)
                else:
                    what = f"{place}.qas[{q}]: expected an object, got a {type(question).__name__}"
                    bad.report(path, row, "not an object", what)


def _list_of(parent: Json, key: str, place: str, path: Path, beside: str) -> tuple[Json, list[Json]]:
    """What an object has under ``beside``, and its list under ``key``."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(parent, dict) or not isinstance(found, list):
        got = f"{key!r} is a {type(found).__name__}" if isinstance(parent, dict) else f"a {type(parent).__name__}"
        raise DataError(f"{path}: {place}: expected an object with a list {key!r}, got {got}")
    return parent.get(beside), found


def _row_questions(path: Path, bad: BadRows) -> Iterator[Raw]:
    table = open_table(path, Columns(text=("question",)), bad)
    advice = "rename the column that holds it"
    names = [find_column(path, table.columns, [name], name, advice) for name in ("question", "context")]
    there = OPTIONAL if isinstance(table, JsonTable) else table.columns  # JSON's columns are those of the first row
    names += [name for name in OPTIONAL if name in there]
    for row, values in table.rows(names):
        fields = dict(zip(names, values, strict=True))
        if is_missing(fields.get("id")):
            fields["id"] = row
        if is_missing(fields.get("answers")) and fields.get("answer") is not None:
            fields["answers"] = fields["answer"]
        if isinstance(given := fields.get("answers"), str):
            fields["answers"] = _of_cell(given, fields.get("answer_start"))
        yield Raw(row, "the question", fields.get("title"), fields["context"], fields)


def _read(task: SpanTask, raw: Raw, source: str, split: Split, *, labelled: bool) -> SpanExample:
    identity = raw.fields.get("id")
    identity = str(identity) if isinstance(identity, int) else identity
    texts = {}
    for name, value in (("id", identity), ("question", raw.fields.get("question")), ("context", raw.context)):
        texts[name] = text_in(repr(name), value)
        if half_pair_at(texts[name]) is not None:
            raise RowError("half a character", f"{name!r}: {HALF_PAIR}. {REMOVE}")
    return SpanExample(
        id=texts["id"],
        question=texts["question"],
        context=texts["context"],
        answers=_read_answers(task, raw.fields, texts["context"], split) if labelled else None,
        row=raw.row,
        source=source,
        title=raw.title if isinstance(raw.title, str) else "",
    )


def _read_answers(task: SpanTask, fields: Mapping[str, Json], context: str, split: Split) -> tuple[Answer, ...] | None:
    given = fields.get("answers")
    impossible = fields.get("is_impossible") not in (None, False, 0, "", "0", "False", "false", "FALSE")
    if given is None and not impossible:
        if split == "test":
            return None
        raise RowError("missing label", "no 'answers'; only a test file may be without")
    found = tuple(_read_answer(answer, context) for answer in _answers_in(given or []))
    if impossible and found:
        raise RowError("contradiction", f"'is_impossible' is true, but there is the answer {found[0].text!r:.60}")
    if not found and not impossible and split == "test" and not task.no_answers:
        return None  # hidden: each question of the task has an answer
    if not found and not task.no_answers:
        raise RowError(
            "no answer",
            f"the question has no answer, but task {task.name} requires one; for questions without answers use task "
            "squad2",
        )
    return found


def _of_cell(cell: str, start: Json) -> Json:
    """The answers of a cell of CSV or Excel: the text of one, or JSON."""
    if not cell.strip():
        return []
    if cell.lstrip().startswith(("[", "{")):
        try:
            found: Json = json.loads(cell)
        except ValueError:
            return cell  # and refused with what is expected
        return found
    said = "" if is_missing(start) else whole_text(start)  # 12.0, as pandas writes it beside empty cells
    at: Json = int(said) if said.isdecimal() else said or None
    return [{"text": cell, "answer_start": at}]


def _answers_in(given: Json) -> Sequence[Mapping[str, Json]]:
    """One object an answer, from the JSON's list of objects or the Hub's object of lists."""
    if isinstance(given, dict):
        texts, starts = given.get("text"), given.get("answer_start")
        if isinstance(texts, list) and starts is None:
            starts = [None] * len(texts)
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    elif isinstance(given, list):
        answers = [answer for answer in given if isinstance(answer, dict)]
        if len(answers) == len(given):
            return answers
    raise RowError(
        "wrong answers",
        f'\'answers\' is {given!r:.60}; expected [{{"text": ..., "answer_start": ...}}] or '
        '{"text": [...], "answer_start": [...]}',
    )


def _read_answer(answer: Mapping[str, Json], context: str) -> Answer:
    text, start = answer.get("text"), answer.get("answer_start")
    if not isinstance(text, str) or not text.strip():
        raise RowError("empty answer", f"the answer {text!r:.60} is no text; leave 'answers' empty for no answer")
    if start is None:
        count = context.count(text)
        if count != 1:
            raise RowError(
                "no answer_start",
                f"the answer {text!r:.60} has no 'answer_start' and occurs {count} times in the context; add it",
            )
        return Answer(text, context.index(text))
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise RowError("wrong answer_start", f"'answer_start' is {start!r:.40}; expected a character from 0")
    if context[start : start + len(text)] != text:
        near = context.find(text)
        there = "it is nowhere in the context" if near < 0 else f"its text begins at {near}"
        raise RowError(
            "wrong answer_start",
            f"the answer {text!r:.60} is not at character {start}, where the context has "
            f"{context[start : start + len(text)]!r:.60}; {there}. Offsets count characters, not bytes",
        )
    return Answer(text, start)


def hold_out(examples: Examples[SpanExample], share: float, seed: int) -> Halves[SpanExample]:
    """Hold out whole articles, or whole contexts where there are fewer than three articles.

    So no context has questions on both sides: articles that share one stay together. A context without a title is an
    article by itself. A pure function of its arguments; both parts keep the order of the questions.
    """
    check_share(share)
    if any(example.answers is None for example in examples):
        raise DataError("questions without 'answers' cannot be held out for evaluation")
    titles = {example.title or example.context for example in examples}
    groups = _groups(examples, by_title=len(titles) >= 3)
    if len(groups) < 2:  # shared contexts join all articles
        groups = _groups(examples, by_title=False)
    if len(groups) < 2:
        raise DataError(f"{len(examples):,} questions about one context: none can be held out for evaluation")
    return part(examples, take_groups(shuffled(groups, seed), share))


def _groups(examples: Sequence[SpanExample], *, by_title: bool) -> list[list[int]]:
    """Rows that share a context, or with ``by_title`` a title, also by way of others; groups in the file's order."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def top(key: tuple[str, str]) -> tuple[str, str]:
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    for example in examples:
        context = top(("context", example.context))
        if by_title and example.title:
            above[context] = top(("title", example.title))
    return group_rows(top(("context", example.context)) for example in examples)
