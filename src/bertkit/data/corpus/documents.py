"""Read a corpus, in any supported file format, as a stream of documents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertkit.data.corpus.bad_input import CorpusReport, OnError, Policy
from bertkit.data.corpus.records import Found, read_jsonl, read_parquet
from bertkit.data.corpus.sentences import keep_lines, split_lines
from bertkit.data.corpus.text_files import Source, find_sources, read_chunks, read_lines
from bertkit.errors import DataError, InputError, shorten

__all__ = ["MAX_DOCUMENT_CHARS", "CorpusReport", "Document", "read_documents"]

#: Maximum characters in a document of a plain text file; longer ones are yielded in parts, to bound memory.
MAX_DOCUMENT_CHARS = 1 << 22


@dataclass(frozen=True, slots=True)
class Document:
    """Consecutive sentences.

    sentences: at least one, none blank. source: where the document begins, ``file:line`` or ``file:row 7``.
    """

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

    Args:
        paths: files, folders, patterns (``"wiki/*.txt.xz"``), or ``"-"`` for standard input. By suffix: ``.jsonl``
            (``.ndjson``, ``.json``) has one object per line, ``.parquet`` one document per row, ``.xml`` is a MediaWiki
            dump; anything else is plain text in UTF-8 with blank lines between documents. All but Parquet may be
            compressed: ``.gz``, ``.bz2``, ``.xz``, ``.zst``. A file given twice is read once. Standard input is plain
            text, or JSONL if it begins with ``{``.
        sentences: ``"split"``: lines are paragraphs, split into sentences by ``nupunkt``; text wrapped at a fixed width
            is joined first. ``"line"``: each line is a sentence.
        text: text column of JSONL and Parquet files; None means ``"text"``, or the only column with text.
        on_error: ``"raise"``, or ``"skip"`` to count bad input in ``report`` and continue. A skipped line of plain text
            ends its document, so that sentences on either side do not become neighbours. After damage in compressed
            data or XML, the rest of the file is skipped.
        report: filled while documents are read.

    Raises:
        InputError: a wrong argument.
        DataError: with file and line: a file that is missing, empty, unreadable or damaged, bytes that are not UTF-8, a
            NUL, a line longer than :data:`~bertkit.data.corpus.text_files.MAX_LINE_BYTES`, a row without the text
            column. Also if everything was skipped and no document is left.
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
        return read_parquet(source, column, policy)
    chunks = read_chunks(source, policy)
    if kind == "stdin":
        first = next(chunks, b"")
        chunks = itertools.chain([first], chunks)
        kind = "jsonl" if first.lstrip()[:1] == b"{" else "text"
    if kind == "jsonl":
        return read_jsonl(chunks, source.name, column, policy)
    if kind == "xml":
        from bertkit.data.corpus.mediawiki import read_mediawiki  # imports a parser that other corpora do not need

        return read_mediawiki(chunks, source.name, policy)
    return _read_text(chunks, source.name, policy)


def _read_text(chunks: Iterator[bytes], name: str, policy: Policy) -> Iterator[Found]:
    """Documents of a plain text file: each ends at a blank or skipped line."""
    lines: list[str] = []
    first = size = 0
    for number, line in read_lines(chunks, name, policy):
        if line is None or not line or line.isspace():
            if lines:
                yield f"{name}:{first}", lines
            lines, size = [], 0
            continue
        if size and size + len(line) > MAX_DOCUMENT_CHARS:
            policy.report.cut_documents += 1
            yield f"{name}:{first}", lines
            lines, size = [], 0
        if not lines:
            first = number
        lines.append(line)
        size += len(line)
    if lines:
        yield f"{name}:{first}", lines
