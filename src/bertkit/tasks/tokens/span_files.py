"""Files of texts with entities marked by characters, in the forms that annotation tools read and write.

========== =================================================================================================
form       a text in it
========== =================================================================================================
spans      ``{"text": ..., "entities": [{"start": 0, "end": 3, "type": "PER"}]}``, a line each; also with
           ``entity_group`` or ``label`` for the type, as ``bertkit tag --json`` and ``predict`` write, and
           ``[0, 3, "PER"]`` for an entity, as spaCy's training data has it
doccano    ``{"text": ..., "label": [[0, 3, "PER"]]}``, a line each; also ``labels``, and ``entities`` with
           ``start_offset`` and ``end_offset``
prodigy    ``{"text": ..., "spans": [{"start": 0, "end": 3, "label": "PER"}]}``, a line each; rows whose
           ``answer`` is not ``accept`` are left out
label-     an array of ``{"data": {"text": ...}, "annotations": [{"result": [{"value": {"start": 0, "end": 3,
studio     "labels": ["PER"]}}]}]}``; also the short form with a list ``label``
brat       a folder with ``NAME.txt`` and ``NAME.ann`` for each text: ``T1``, tab, ``PER 0 3``, tab, the words
spacy      spaCy's ``DocBin``, a file that ends in ``.spacy``; needs the extra ``spacy``
========== =================================================================================================

Which form a file has shows in its first row. Positions count characters of Unicode; where a tool that counts in UTF-16
also gives the marked words, these decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, counted, require, shorten
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say, say_once
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.bad_rows import BadRows, RowError, text_in
from bertkit.tasks.reading.encodings import has_mark
from bertkit.tasks.reading.lines import read_text
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import open_table, records
from bertkit.tasks.tokens.marked_texts import Mark, MarkedText

if TYPE_CHECKING:
    from types import ModuleType

Form = Literal["spans", "doccano", "prodigy", "label-studio", "brat", "spacy"]
FORMS: tuple[Form, ...] = get_args(Form)
#: What the forms are called in messages and reports.
TITLES: Mapping[Form, str] = {
    "spans": "bertkit's own form",
    "doccano": "doccano's form",
    "prodigy": "Prodigy's form",
    "label-studio": "Label Studio's form",
    "brat": "brat's form",
    "spacy": "spaCy's DocBin",
}
#: Forms of a JSON object a line, and what each of the others is.
LINES = ("spans", "doccano", "prodigy")
LARGE: Mapping[Form, str] = {"label-studio": "a .json file", "brat": "a folder", "spacy": "a .spacy file"}
#: Names of a row's list of marks, the likeliest first.
MARKS = ("entities", "spans", "annotations", "label", "labels")
#: Files of documents, and of the marks in each, in a folder of brat.
DOCUMENT, STANDOFF = ".txt", ".ann"
DOCBIN = ".spacy"
_STARTS, _ENDS = ("start", "start_offset"), ("end", "end_offset")
_TYPES = ("type", "label", "labels", "entity_group", "entity_type", "tag", "entity")
_STANDOFF_LINE = re.compile(r"T\S*\t(?P<type>\S+) (?P<start>\d+) (?P<end>\d+)(?P<more>;[\d; ]+)?(?:\t(?P<words>.*))?")
#: Ids that files of brat may have as names on every system.
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?<!\.)")
_ONE_LINE = '{"text": "Ann flew", "entities": [{"start": 0, "end": 3, "type": "PER"}]}'


class Tagged(NamedTuple):
    """A text to write, with its marks and what it is called."""

    text: str
    marks: Sequence[Mark]
    id: str | None = None


def is_brat(path: Path) -> bool:
    """Whether a folder holds documents with the marks in each beside it."""
    return path.is_dir() and any(path.glob(f"*{STANDOFF}"))


def has_marks(columns: Sequence[str]) -> bool:
    """Whether a table with these columns is one of marked texts."""
    return ("text" in columns and any(name in columns for name in MARKS)) or {"data", "annotations"} <= {*columns}


def read_marked(
    path: Path, bad: BadRows, encoding: str | None, *, tagged: bool | None
) -> tuple[Form, list[MarkedText]]:
    """The texts of a file or folder of any form; ``tagged``: whether marks are required (None: of all or of none)."""
    if path.is_dir():
        return "brat", list(_of_folder(path, bad, encoding, tagged))
    if kind_of(path, (DOCBIN,)) == DOCBIN:
        return "spacy", list(_of_docbin(path))
    table = open_table(path, Columns(text=("text",), encoding=encoding), bad)
    found, refused, form = [], 0, None
    for line, record in records(table):
        form = form or _form_of(record)
        if record.get("answer", "accept") != "accept":
            refused += 1
            continue
        try:
            found.append(_of_record(record, path, line, tagged))
        except RowError as fault:
            bad.report(path, line, fault.kind, str(fault))
    if refused:
        say_once(f"{path}: {counted(refused, 'row')} whose 'answer' is not 'accept' left out")
    return form or "spans", found


def _form_of(record: Mapping[str, Json]) -> Form:
    marks = next((record[name] for name in MARKS if name in record), None)
    first = marks[0] if isinstance(marks, list) and marks else None
    if "annotations" in record or (isinstance(first, dict) and "labels" in first):
        return "label-studio"
    if "spans" in record and "entities" not in record:
        return "prodigy"
    if "entities" not in record and ("label" in record or "labels" in record):
        return "doccano"
    return "doccano" if isinstance(first, dict) and "start_offset" in first else "spans"


def _of_record(record: Mapping[str, Json], path: Path, line: int, tagged: bool | None) -> MarkedText:
    if isinstance(record.get("data"), dict) and "annotations" in record:
        text, marks = _of_label_studio(record)
    else:
        text = text_in("'text'", record.get("text"))
        name = next((name for name in MARKS if record.get(name)), None)
        name = name or next((name for name in MARKS if record.get(name) is not None), None)
        others = [each for each in MARKS if name is not None and each != name and record.get(each)]
        if name is not None and any(record[each] != record[name] for each in others):
            raise RowError("two lists of marks", f"{name!r} and {others[0]!r} differ; keep one of them")
        # Prodigy leaves the list out of an accepted text without entities.
        marks = [] if name is None and "answer" in record else None if name is None else _listed(record[name], name)
    if marks is None and tagged:
        raise RowError("no marks", f"the text has no list of its entities; expected a row such as {_ONE_LINE}")
    return MarkedText(text, None if marks is None else tuple(_mark_of(item, text) for item in marks), path, line)


def _listed(marks: Json, name: str) -> list[Json]:
    if not isinstance(marks, list):
        raise RowError("no list of marks", f"{name!r} holds {marks!r:.60}, expected a list such as that of {_ONE_LINE}")
    return marks


def _of_label_studio(record: Mapping[str, Json]) -> tuple[str, list[Json] | None]:
    data = record["data"]
    assert isinstance(data, dict)
    texts = [name for name, value in data.items() if isinstance(value, str)]
    name = "text" if "text" in texts else texts[0] if len(texts) == 1 else None
    if name is None:
        raise RowError("no text", f"'data' has no 'text', but {shorten(data)}; name the field of the text so")
    text = text_in(f"'data': {name!r}", data[name])
    given = _listed(record["annotations"], "annotations")
    made = [each for each in given if isinstance(each, dict) and not each.get("was_cancelled")]
    lists = [
        [part["value"] for part in _listed(each.get("result"), "result") if _marks_text(part)]  # type: ignore[index,call-overload]
        for each in made
    ]
    if any(sorted(map(str, marks)) != sorted(map(str, lists[0])) for marks in lists[1:]):
        raise RowError(
            "several annotations", f"{len(lists)} annotations that differ; delete all but one in Label Studio"
        )
    return text, lists[0] if lists else None


def _marks_text(part: Json) -> bool:
    """Whether a result of Label Studio marks characters; others choose a class or relate two marks."""
    value = part.get("value") if isinstance(part, dict) else None
    kinds = [name for name in value if name.endswith("labels")] if isinstance(value, dict) and "start" in value else []
    if kinds and "labels" not in kinds:
        raise RowError("marks of another kind", f"an entity is marked by {kinds[0]!r}; export texts marked by 'labels'")
    return isinstance(value, dict) and "labels" in value and "start" in value


def _mark_of(item: Json, text: str) -> Mark:
    words: Json = None
    if isinstance(item, list) and len(item) >= 3:
        start, end, kind = item[:3]
    elif isinstance(item, dict):
        start, end, kind = (next((item[k] for k in names if k in item), None) for names in (_STARTS, _ENDS, _TYPES))
        words = item.get("text")
    else:
        start = end = kind = None
    if isinstance(kind, list) and len(kind) == 1:
        kind = kind[0]
    if isinstance(item, dict) and "entity" in item and "index" in item:
        raise RowError("word pieces", "an entity is a word piece; tag the texts again without --strategy none")
    if type(start) is not int or type(end) is not int or not isinstance(kind, str) or not kind.strip():
        raise RowError("no mark", f"an entity is {item!r:.80}, expected [start, end, type], or these as fields")
    return _fitted(Mark(start, end, kind.strip()), text, words if isinstance(words, str) else None)


def _fitted(mark: Mark, text: str, words: str | None) -> Mark:
    """The mark, with positions in characters where they are found to be counted in UTF-16; RowError if neither fits."""
    if words is None or text[mark.start : mark.end].split() == words.split():
        return mark
    wide = text.encode("utf-16-le", "surrogatepass")
    start, end = (len(wide[: 2 * place].decode("utf-16-le", "replace")) for place in mark[:2])
    if text[start:end].split() != words.split():
        raise RowError(
            "other words",
            f"the entity at {mark.start}:{mark.end} ({mark.type}) is said to be {words!r:.60}, but the text has "
            f"{text[mark.start : mark.end]!r:.60} there",
        )
    return Mark(start, end, mark.type)


def _of_folder(folder: Path, bad: BadRows, encoding: str | None, tagged: bool | None) -> Iterator[MarkedText]:
    marked = sorted(path for path in folder.iterdir() if path.suffix == STANDOFF)
    lost = next((path for path in marked if not path.with_suffix(DOCUMENT).is_file()), None)
    if lost is not None:
        raise DataError(f"{lost}: there is no {lost.with_suffix(DOCUMENT).name} beside it, whose marks these are")
    for path in sorted(path for path in folder.iterdir() if path.suffix == DOCUMENT):
        text, marks = read_text(path, encoding), []
        beside = path.with_suffix(STANDOFF)
        if not beside.is_file():
            if tagged:
                bad.report(path, 1, "no marks", f"there is no {beside.name} beside the text")
            else:
                yield MarkedText(text, None, path, 1)
            continue
        before = int(has_mark(path))
        for number, line in enumerate(read_text(beside, encoding).split("\n"), start=1):
            if not line.startswith("T"):
                continue  # relations, events, attributes and notes are about marks
            try:
                marks.append(_of_standoff(line.rstrip("\r"), text, before))
            except RowError as fault:
                bad.report(beside, number, fault.kind, str(fault))
                break
        else:
            yield MarkedText(text, tuple(marks), path, 1)


def _of_standoff(line: str, text: str, before: int) -> Mark:
    """The mark of a line; ``before``: characters that the file has before the text, which may be counted or not."""
    found = _STANDOFF_LINE.fullmatch(line)
    if found is None:
        raise RowError("no mark", f"expected T1, a tab, 'PER 0 3', a tab and the words, got {line!r:.80}")
    if found["more"]:
        raise RowError("mark in pieces", f"the entity {found['words']!r} is of several pieces; mark them one by one")
    start, end, words = int(found["start"]), int(found["end"]), found["words"]
    if before and words is not None and text[start - before : end - before].split() == words.split():
        start, end = start - before, end - before
    return _fitted(Mark(start, end, found["type"]), text, words)


def _of_docbin(path: Path) -> Iterator[MarkedText]:
    spacy = _spacy(f"a {DOCBIN} file")
    try:
        documents = list(spacy.tokens.DocBin().from_bytes(path.read_bytes()).get_docs(spacy.blank("xx").vocab))
    except Exception as error:  # of zlib, msgpack or spaCy, as the file is damaged
        raise DataError(f"{path}: not a readable DocBin of spaCy: {error}") from None
    for number, document in enumerate(documents, start=1):
        marks = tuple(Mark(entity.start_char, entity.end_char, entity.label_) for entity in document.ents)
        yield MarkedText(document.text, marks, path, number)


def _spacy(what: str) -> ModuleType:
    found = require("spacy", extra="spacy", needed_for=what)
    require("spacy.tokens", extra="spacy", needed_for=what)
    return found


def check_out(out: Path, form: Form) -> None:
    """ConfigError for a name that files of a form do not have: brat's is a folder, new or empty."""
    if form == "brat":
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"--out {out}: {TITLES[form]} is a folder of texts; name a new one, or an empty one")
        return
    suffixes = {"spacy": (DOCBIN,), "label-studio": (".json",)}.get(form, (".jsonl", ".ndjson"))
    if out.suffix.casefold() not in suffixes:
        raise ConfigError(f"--out {out}: the name of a file in {TITLES[form]} must end in {' or '.join(suffixes)}")


def write_marked(out: Path, form: Form, texts: Iterable[Tagged]) -> int:
    """Write marked texts in a form, with their ids; returns their number."""
    check_out(out, form)
    if form == "brat":
        return _write_folder(out, texts)
    listed = list(texts)
    if form == "spacy":
        write_atomically(out, _docbin(listed))
    elif form == "label-studio":
        content = json.dumps([row_of(form, each) for each in listed], ensure_ascii=False, indent=1)
        write_atomically(out, content + "\n")
    else:
        write_atomically(out, "".join(json.dumps(row_of(form, each), ensure_ascii=False) + "\n" for each in listed))
    return len(listed)


def row_of(form: Form, tagged: Tagged) -> dict[str, Json]:
    """A marked text as an object of a form that is JSON."""
    text, marks, name = tagged
    named: dict[str, Json] = {} if name is None else {"id": name}
    if form == "doccano":
        return {**named, "text": text, "label": [list(mark) for mark in marks]}
    if form == "prodigy":
        spans: list[Json] = [{"start": m.start, "end": m.end, "label": m.type} for m in marks]
        return {"text": text, "spans": spans, **({"meta": named} if named else {})}
    if form == "label-studio":
        result: list[Json] = [
            {
                **{"from_name": "label", "to_name": "text", "type": "labels"},
                "value": {"start": m.start, "end": m.end, "text": text[m.start : m.end], "labels": [m.type]},
            }
            for m in marks
        ]
        return {"data": {**named, "text": text}, "annotations": [{"result": result}]}
    return {**named, "text": text, "entities": [{"start": m.start, "end": m.end, "type": m.type} for m in marks]}


def _write_folder(out: Path, texts: Iterable[Tagged]) -> int:
    listed = list(texts)
    wrong = next((mark.type for each in listed for mark in each.marks if re.search(r"\s", mark.type)), None)
    if wrong is not None:
        raise DataError(f"brat's form has no type with a blank, such as {wrong!r}; choose another form")
    names = [each.id or "" for each in listed]
    if len({name.casefold() for name in names}) < len(names) or not all(map(_FILE_NAME.fullmatch, names)):
        if any(names):
            say("the ids are not all different and valid as file names: files are numbered in the order of the texts")
        names = [f"{count:06}" for count in range(1, len(listed) + 1)]
    for name, (text, marks, _) in zip(names, listed, strict=True):
        lines = (
            f"T{number}\t{mark.type} {mark.start} {mark.end}\t{' '.join(text[mark.start : mark.end].split())}\n"
            for number, mark in enumerate(marks, start=1)
        )
        write_atomically(out / f"{name}{STANDOFF}", "".join(lines))
        write_atomically(out / f"{name}{DOCUMENT}", text)
    return len(listed)


def _docbin(texts: Iterable[Tagged]) -> bytes:
    spacy = _spacy(f"writing a {DOCBIN} file")
    blank, found = spacy.blank("xx"), spacy.tokens.DocBin(store_user_data=True)
    for text, marks, name in texts:
        document = blank.make_doc(text)
        document.user_data |= {} if name is None else {"id": name}
        spans = [document.char_span(m.start, m.end, label=m.type, alignment_mode="expand") for m in marks]
        document.set_ents(spans)
        found.add(document)
    content: bytes = found.to_bytes()
    return content
