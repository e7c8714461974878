"""Read a corpus, in any supported file format, as a stream of documents, and split them into sentences."""

from __future__ import annotations

import codecs
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
import pyarrow.parquet as pq

from bertkit.data.corpus.text_files import CorpusReport, OnError, Policy, Source, find_sources, read_chunks, read_lines
from bertkit.errors import DataError, InputError, shorten
from bertkit.system.untrusted_files import Json, half_pair_at

__all__ = ["MAX_DOCUMENT_CHARS", "CorpusReport", "Document", "read_documents"]

#: Maximum characters in a document of a plain text file; longer ones are yielded in parts, to bound memory.
MAX_DOCUMENT_CHARS = 1 << 22
#: The text column unless another is named.
DEFAULT_COLUMN = "text"
#: Rows of a Parquet file held in memory as Python strings.
ROWS_AT_A_TIME = 256

#: Where a document begins and its lines.
Found = tuple[str, list[str]]

#: Widths in characters at which people and mail programs wrap lines.
_WRAP_WIDTHS = range(40, 121)
#: Fewer lines may look wrapped by chance.
_MIN_WRAPPED_LINES = 4

#: Full stops that end a sentence without a following space: CJK, and the danda of Indic scripts.
_FULL_STOP = re.compile(r"(?<=[。！？｡।॥])(?![。！？｡।॥」』”’）\)])")
#: A line without one of these is a single sentence; the splitter is not called.
_MAY_END = re.compile(r"[.!?…。！？｡।॥]\S*\s*\S")


@dataclass(frozen=True, slots=True)
class Document:
    """Consecutive sentences, at least one, none blank; ``source``: where they begin: ``file:line``, ``file:row 7``."""

    sentences: tuple[str, ...]
    source: str


def read_documents(
    paths: Sequence[str | Path] | str | Path,
    *,
    sentences: Literal["split", "line"] = "split",
    text: str | None = None,
    on_error: OnError = "raise",
    report: CorpusReport | None = None,
) -> Iterator[Document]:
    """Read documents lazily, in the order of the files. Memory does not depend on the size of the corpus.

    ``paths`` are files, folders, patterns (``"wiki/*.txt.xz"``), or ``"-"`` for standard input. By suffix: ``.jsonl``
    (``.ndjson``, ``.json``) has one object per line, ``.parquet`` one document per row, ``.xml`` is a MediaWiki dump;
    anything else is plain text in UTF-8 with blank lines between documents. All but Parquet may be compressed.

    With ``"split"`` lines are paragraphs, split into ``sentences`` by ``nupunkt``; text wrapped at a fixed width is
    joined first. ``text`` is the column of JSONL and Parquet files; None: ``"text"``, or the only one with text (of
    JSONL: the column of the first row that has exactly one with text). With ``on_error="skip"`` a skipped line of plain
    text ends its document, so that sentences on either side do not become neighbours; after damage in compressed data
    or XML, the rest of the file is skipped. A DataError names file and line; one is raised also if no document is left.
    """
    if sentences not in ("split", "line"):
        raise InputError(f"sentences must be 'split' or 'line', got {sentences!r}")
    policy = Policy(on_error, CorpusReport() if report is None else report)
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    sources = find_sources(given, policy)
    return _documents(sources, sentences, text, policy, named=shorten(map(str, given)))


def _documents(
    sources: list[Source], sentences: str, column: str | None, policy: Policy, *, named: str
) -> Iterator[Document]:
    report = policy.report
    documents_before = report.documents
    shape = split_lines if sentences == "split" else keep_lines
    for source in sources:
        documents, bytes_read, faults = report.documents, report.bytes_read, report.skipped.total()
        for where, lines in _found_in(source, column, policy):
            shaped = shape(lines)
            if not shaped:
                report.empty_rows += 1
                continue
            report.documents += 1
            report.sentences += len(shaped)
            yield Document(shaped, where)
        report.files += 1
        # If rows were at fault, that has been reported already.
        if report.documents == documents and report.skipped.total() == faults:
            state = "no text in it" if report.bytes_read > bytes_read else "nothing in it (0 bytes of text)"
            policy.bad("empty file", f"{source.name}: there is {state}; remove it from the corpus")
    if report.documents == documents_before:
        raise DataError(f"there is no document in {named}: {report.summary()}; check the content of the files")


def _found_in(source: Source, column: str | None, policy: Policy) -> Iterator[Found]:
    kind = source.kind
    if kind == "parquet":
        return _read_parquet(source, column, policy)
    chunks = read_chunks(source, policy)
    if kind == "stdin":
        first = next(chunks, b"")
        chunks = itertools.chain([first], chunks)
        kind = "jsonl" if first.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{" else "text"
    if kind == "jsonl":
        return _read_jsonl(chunks, source.name, column, policy)
    if kind == "xml":
        from bertkit.data.corpus.mediawiki import read_mediawiki  # imports a parser that other corpora do not need

        return read_mediawiki(chunks, source.name, policy)
    return _read_text(chunks, source.name, policy)


def _read_text(chunks: Iterator[bytes], name: str, policy: Policy) -> Iterator[Found]:
    """Documents of a plain text file: each ends at a blank or skipped line."""
    lines: list[str] = []
    first = size = 0
    for number, line in read_lines(chunks, name, policy):
        is_end = line is None or not line or line.isspace()
        is_full = line is not None and size > 0 and size + len(line) > MAX_DOCUMENT_CHARS
        if lines and (is_end or is_full):
            policy.report.cut_documents += not is_end
            yield f"{name}:{first}", lines
            lines, size = [], 0
        if line is None or is_end:
            continue
        if not lines:
            first = number
        lines.append(line)
        size += len(line)
    if lines:
        yield f"{name}:{first}", lines


def _read_jsonl(chunks: Iterator[bytes], name: str, column: str | None, policy: Policy) -> Iterator[Found]:
    """One JSON object per line; its text is a string (of one paragraph per line) or a list of strings."""
    key = column or None
    nulls: list[str] = []
    for number, line in read_lines(chunks, name, policy):
        if line is None or not line.strip():
            continue
        where = f"{name}:{number}"
        try:
            row: Json = json.loads(line)
        except (ValueError, RecursionError) as error:
            policy.bad("bad JSON", f"{where}: not a JSON object: {error}; expected one object per line; correct it")
            continue
        if not isinstance(row, dict):
            policy.bad(
                "bad JSON",
                f"{where}: expected a JSON object with the text, got {_kind_of(row)}; write one object per line",
            )
            continue
        if key is None:
            texts = [name for name, value in row.items() if isinstance(value, str | list)]
            texts = [DEFAULT_COLUMN] if DEFAULT_COLUMN in row else texts
            key = texts[0] if len(texts) == 1 else DEFAULT_COLUMN if texts else None
            nulls = [] if DEFAULT_COLUMN in row else [name for name, value in row.items() if value is None]
            if not texts and None in row.values():  # a row without text; the next one may tell its column
                yield where, []
                continue
        elif any(isinstance(row.get(name), str | list) for name in nulls):  # the row that told had no text there
            policy.bad("no text column", f"{where}: {_no_column(None, list(row))}")
            continue
        if key is None or key not in row:
            policy.bad("no text column", f"{where}: {_no_column(key, list(row))}")
            continue
        lines = _lines_of(row[key], where, key, policy)
        if lines is not None:
            yield where, lines


def _read_parquet(source: Source, column: str | None, policy: Policy) -> Iterator[Found]:
    """One document per row of a Parquet file; rows count from 1. Memory: one row group of the text column."""
    assert source.path is not None, "Parquet is never read from standard input"
    number = num_rows = position = 0
    try:
        size = source.path.stat().st_size
        with source.path.open("rb") as stream, pq.ParquetFile(stream) as file:  # Arrow takes paths in UTF-8 only
            key = _parquet_column(file.schema_arrow, column, source.name, policy)
            if key is None:
                return
            for batch in file.iter_batches(batch_size=ROWS_AT_A_TIME, columns=[key], use_threads=False):
                num_rows += len(batch)
                policy.report.file_bytes_read += size * num_rows // file.metadata.num_rows - position
                position = size * num_rows // file.metadata.num_rows
                for value in batch.column(0):  # by position: a nested column may get another name
                    number += 1
                    where = f"{source.name}:row {number}"
                    try:
                        text = value.as_py()
                    except UnicodeDecodeError as error:
                        fault = f"{where}: byte {error.start + 1} of the text is not UTF-8; write the file again"
                        policy.bad("bad UTF-8", fault)
                        continue
                    lines = _lines_of(text, where, key, policy)
                    if lines is not None:
                        policy.report.bytes_read += sum(len(line.encode()) for line in lines)
                        yield where, lines
    except (pa.ArrowException, OSError) as error:
        policy.bad(
            "damaged file", f"{source.name} cannot be read as Parquet after row {number}: {error}; write it again"
        )


def _parquet_column(schema: pa.Schema, column: str | None, name: str, policy: Policy) -> str | None:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_dictionary)
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    kinds = {
        field.name: field.type.value_type if any(is_list(field.type) for is_list in lists) else field.type
        for field in schema
    }
    texts = [name for name, kind in kinds.items() if any(is_string(kind) for is_string in strings)]
    key = column or (DEFAULT_COLUMN if DEFAULT_COLUMN in texts or len(texts) != 1 else texts[0])
    if key in texts:
        return key
    if key in schema.names:
        found = schema.field(key).type
        policy.bad("no text column", f"{name}: column {key!r} holds {found}, expected strings; name another (--text)")
    else:
        policy.bad("no text column", f"{name}: {_no_column(column, schema.names)}")
    return None


def _no_column(column: str | None, names: list[str]) -> str:
    return f"no column {column or DEFAULT_COLUMN!r}, there is {shorten(names) or 'none'}; name the text column (--text)"


def _lines_of(value: Json, where: str, key: str, policy: Policy) -> list[str] | None:
    """The lines of one row's text, or None if the policy skips it. A null is a row without text."""
    if value is None:
        return []
    listed = [value] if isinstance(value, str) else value
    texts = [text for text in listed if isinstance(text, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(texts) != len(listed):
        policy.bad(
            "not text",
            f"{where}: {key!r} must be a string or a list of strings, got {_kind_of(value)}; correct the row",
        )
        return None
    for text in texts:
        if "\0" in text:
            place = text.index("\0") + 1
            policy.bad("NUL", f"{where}: {key!r} has a NUL at character {place}; correct the row")
            return None
        if (half := half_pair_at(text)) is not None:
            fault = f"has half of a surrogate pair at character {half + 1}"
            policy.bad("bad UTF-8", f"{where}: {key!r} {fault}; correct the row")
            return None
    return [line for text in texts for line in text.split("\n")]


def _kind_of(value: Json) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), f"{value!r:.40}")


def keep_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Each line as a sentence, stripped; blank lines are dropped."""
    return tuple(stripped for line in lines if (stripped := line.strip()))


def split_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Sentences of a document's lines by ``nupunkt``; none crosses a line's end, as headings often lack a full stop."""
    paragraphs = keep_lines(lines)
    if is_hard_wrapped(paragraphs):
        paragraphs = (" ".join(paragraphs),)
    return tuple(sentence for paragraph in paragraphs for sentence in _split(paragraph))


def forget_words() -> None:
    """Clear the splitter's caches, 40 MB together. One has no public way; where another version keeps it, it stays."""
    nupunkt = sys.modules.get("nupunkt")
    if nupunkt is None:
        return
    nupunkt.load("default").clear_decision_cache()
    remembered = getattr(sys.modules.get("nupunkt.core.tokens"), "_derived_cache", None)
    if isinstance(remembered, dict):
        remembered.clear()


def is_hard_wrapped(lines: Sequence[str]) -> bool:
    """Whether no first word of a next line would have fitted within the longest line, as in a wrapped paragraph."""
    if len(lines) < _MIN_WRAPPED_LINES:
        return False
    width = max(len(line) for line in lines)
    if width not in _WRAP_WIDTHS:
        return False
    return all(
        len(line) + 1 + len(following.split(None, 1)[0]) > width for line, following in itertools.pairwise(lines)
    )


def _split(paragraph: str) -> list[str]:
    if not _MAY_END.search(paragraph):
        return [paragraph]
    splitter = _splitter()
    parts = _FULL_STOP.split(paragraph)
    sentences = (sentence.strip() for part in parts if part.strip() for sentence in splitter(part))
    return [sentence for sentence in sentences if sentence]


@cache
def _splitter() -> Callable[[str], list[str]]:
    # Imported on first use, because it loads a model that corpora with one sentence per line do not need.
    import nupunkt

    return cast(Callable[[str], list[str]], nupunkt.sent_tokenize)
