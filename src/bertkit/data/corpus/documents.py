"""Read a corpus, in any supported file format, as a stream of documents, and split them into sentences."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

from bertkit.data.corpus.records import Found, read_jsonl, read_parquet
from bertkit.data.corpus.text_files import CorpusReport, OnError, Policy, Source, find_sources, read_chunks, read_lines
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


#: Widths in characters at which people and mail programs wrap lines.
_WRAP_WIDTHS = range(40, 121)
#: Fewer lines may look wrapped by chance.
_MIN_WRAPPED_LINES = 4

#: Full stops that end a sentence without a following space: CJK, and the danda of Indic scripts.
_FULL_STOP = re.compile(r"(?<=[。！？｡।॥])(?![。！？｡।॥」』”’）\)])")
#: A line without one of these is a single sentence; the splitter is not called.
_MAY_END = re.compile(r"[.!?…。！？｡।॥]\S*\s*\S")


def keep_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Each line as a sentence, stripped; blank lines are dropped."""
    return tuple(stripped for line in lines if (stripped := line.strip()))


def split_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Split the lines of one document into sentences with ``nupunkt``: a pure function of ``lines``.

    A line is a paragraph, and sentences never cross its end, since headings and list items often lack a full stop.
    Lines wrapped at a fixed width (:func:`is_hard_wrapped`) are joined first. Sentences are stripped, none is blank.
    """
    paragraphs = keep_lines(lines)
    if is_hard_wrapped(paragraphs):
        paragraphs = (" ".join(paragraphs),)
    return tuple(sentence for paragraph in paragraphs for sentence in _split(paragraph))


def forget_words() -> None:
    """Clear the splitter's caches of words and contexts, if it has been used.

    Each grows to 65,536 entries, 40 MB together. One has no public way to clear it; if another version of ``nupunkt``
    keeps it elsewhere, it simply stays.
    """
    nupunkt = sys.modules.get("nupunkt")
    if nupunkt is None:
        return
    nupunkt.load("default").clear_decision_cache()
    remembered = getattr(sys.modules.get("nupunkt.core.tokens"), "_derived_cache", None)
    if isinstance(remembered, dict):
        remembered.clear()


def is_hard_wrapped(lines: Sequence[str]) -> bool:
    """Whether the lines are one paragraph wrapped at a fixed width.

    By the definition of wrapping: at no line end would the first word of the next line have fitted within the longest
    line. Independent sentences or paragraphs practically never pass.
    """
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
