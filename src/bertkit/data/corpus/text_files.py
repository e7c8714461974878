"""Find files by name, folder or pattern, and read them as lines: decompression, decoding, bounded memory, bad input."""

from __future__ import annotations

import bz2
import contextlib
import glob
import gzip
import lzma
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, cast

import pyarrow as pa

from bertkit.data.corpus.store_folders import store_finder
from bertkit.errors import DataError, InputError, counted, did_you_mean
from bertkit.system.console import standard_input
from bertkit.system.paths import looked_in, user_path

#: Bytes read at a time.
CHUNK_BYTES = 1 << 20
#: Maximum bytes of a line (JSONL: row; dump: page). Longer than any book, but short enough that a file without line
#: ends cannot fill the memory.
MAX_LINE_BYTES = 1 << 24

#: File name suffix to kind of file. A file named individually with any other suffix is read as plain text.
KINDS = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".xml": "xml",
}
#: Tables, whose lines hold more than text.
TABLES = (".csv", ".tsv", ".xlsx")
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
_OPENERS: dict[str, Callable[[BinaryIO], gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile | pa.NativeFile]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda raw: pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd"),
}

#: What the decompressors raise on a damaged file.
_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, pa.ArrowException)

OnError = Literal["raise", "skip"]

#: Messages about skipped input that a report keeps; the counts are complete.
KEPT_EXAMPLES = 10


@dataclass(slots=True)
class CorpusReport:
    """What was read and skipped. Filled while documents are read; one report may serve several calls.

    bytes_read: after decompression; of a Parquet file, of its texts. file_bytes_read: on disk. empty_rows: table rows
    and dump pages without text. cut_documents: cuts in documents too long for memory. skipped: faults by kind.
    """

    files: int = 0
    documents: int = 0
    sentences: int = 0
    bytes_read: int = 0
    file_bytes_read: int = 0
    empty_rows: int = 0
    cut_documents: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """One line for people."""
        parts = [
            f"{counted(self.documents, 'document')}, {counted(self.sentences, 'sentence')} in "
            f"{counted(self.files, 'file')} ({self.bytes_read / 1e6:,.1f} MB of text)"
        ]
        if self.empty_rows:
            parts.append(f"{counted(self.empty_rows, 'row')} without text")
        if self.cut_documents:
            parts.append(f"{counted(self.cut_documents, 'cut')} in very long documents")
        if self.skipped:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.skipped.items()))
            parts.append(f"skipped: {kinds}")
        return "; ".join(parts)


class Policy:
    """What happens at each fault in a corpus: ``"raise"`` stops at the first, ``"skip"`` counts it in ``report``."""

    def __init__(self, on_error: OnError, report: CorpusReport) -> None:
        if on_error not in ("raise", "skip"):
            raise InputError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self.on_error = on_error
        self.report = report

    def bad(self, kind: str, message: str) -> None:
        """Raise a DataError, or count a fault under ``kind``; the message lacks only the advice to skip."""
        if self.on_error == "raise":
            raise DataError(f"{message}, or skip it with on_error='skip' (--on-error skip)")
        self.report.skipped[kind] += 1
        if len(self.report.examples) < KEPT_EXAMPLES:
            self.report.examples.append(message)


@dataclass(frozen=True, slots=True)
class Source:
    """One file of a corpus; of standard input (kind ``stdin``) the first byte tells text from JSONL."""

    name: str
    path: Path | None
    kind: str
    compression: str = ""


def find_sources(paths: Sequence[str | Path], policy: Policy) -> list[Source]:
    """The files to read, each once, in the order given; a folder or a pattern gives its files sorted by name.

    Those of token stores, which may lie among the texts, are left out.
    """
    if not paths:
        raise InputError("no corpus was named: give files, folders, patterns, or - for standard input")
    sources: dict[str, Source] = {}
    is_of_store = store_finder()
    for given in paths:
        name = os.fspath(given)
        if not name or "\0" in name:
            raise InputError(f"a corpus is named by a file, a folder, a pattern or -, got {name!r}")
        if name == "-":
            sources["-"] = Source("<stdin>", None, "stdin")
            continue
        found = _files_of(name, policy)
        files = [file for file in found if not is_of_store(file)]
        if found and not files:
            policy.bad(
                "token store",
                f"{name} has nothing but ids of tokens: it is a token store of bertkit or lies in one; name the texts "
                "that the store was made of",
            )
        for path in files:
            suffix, compression = _suffixes(path)
            kind = KINDS.get(suffix, "text")
            if kind == "parquet" and compression:
                policy.bad(
                    "unreadable file", f"{path} cannot be read in pieces: unpack it (Parquet is compressed inside)"
                )
                continue
            if suffix in TABLES:
                policy.bad(
                    "table",
                    f"{path} is a table, whose lines hold more than text; write its texts to a .txt file, one a line, "
                    "or to a .jsonl file",
                )
                continue
            sources.setdefault(os.path.realpath(path), Source(str(path), path, kind, compression))
    return list(sources.values())


def _files_of(name: str, policy: Policy) -> list[Path]:
    path = user_path(name)
    if path.is_dir():
        files = (file for file in path.rglob("*") if _suffixes(file)[0] in KINDS and file.is_file())
        found = sorted(f for f in files if not any(part.startswith(".") for part in f.relative_to(path).parts))
        if not found:
            policy.bad(
                "empty folder",
                f"folder {name} has no file that ends in {', '.join(KINDS)} (or these compressed); name its files one "
                "by one: files with other endings are then read as plain text",
            )
        return found
    if os.path.lexists(path):
        return [path]
    if glob.has_magic(name):
        matches = (Path(match) for match in glob.glob(str(path), recursive=True))
        found = sorted(match for match in matches if not match.is_dir())
        if not found:
            policy.bad("missing file", f"no file matches {name!r}{looked_in(path)}; check the pattern")
        return found
    try:
        near = did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir()))
    except OSError:
        near = ""
    policy.bad("missing file", f"there is no file {name!r}{looked_in(path)}{near}; check the name")
    return []


def _suffixes(path: Path) -> tuple[str, str]:
    """The suffixes of the kind of file and of the compression, both in lower case."""
    compression = path.suffix.lower()
    if compression not in COMPRESSIONS:
        return compression, ""
    return Path(path.stem).suffix.lower(), compression


def read_chunks(source: Source, policy: Policy) -> Iterator[bytes]:
    """The decompressed bytes of a file, at most :data:`CHUNK_BYTES` at a time; the rest of a damaged one is skipped."""
    done = position = 0
    try:
        with contextlib.ExitStack() as stack:
            file, raw = _opened(source, stack)
            while chunk := file.read(CHUNK_BYTES):
                done += len(chunk)
                policy.report.bytes_read += len(chunk)
                if raw is not None:
                    policy.report.file_bytes_read += raw.tell() - position
                    position = raw.tell()
                yield chunk
    except _DAMAGED as error:
        damage = str(error) or type(error).__name__
    except OSError as error:
        if error.strerror is not None and error.errno is not None and not done:
            policy.bad("unreadable file", f"cannot read {source.name}: {error.strerror}; check the file")
            return
        damage = str(error)
    else:
        return
    policy.bad(
        "damaged file",
        f"{source.name} is damaged or truncated after {done:,} bytes of text ({damage}); download or compress it again",
    )


def _opened(source: Source, stack: contextlib.ExitStack) -> tuple[BinaryIO, BinaryIO | None]:
    """The decompressed file, and the file on disk, whose position is the progress; None for pipes, which have none."""
    if source.path is None:
        return standard_input(), None
    raw = stack.enter_context(source.path.open("rb", buffering=0))
    opener = _OPENERS.get(source.compression)
    text = raw if opener is None else cast(BinaryIO, stack.enter_context(opener(raw)))
    return text, raw if raw.seekable() else None


def read_lines(chunks: Iterator[bytes], name: str, policy: Policy) -> Iterator[tuple[int, str | None]]:
    r"""Lines without their ends, numbered from 1; None for one that the policy skips: too long, not UTF-8, with a NUL.

    Only ``\n`` ends a line; a byte order mark at the start is dropped. Memory: one chunk and one line.
    """
    number = 1
    for block in _whole_lines(chunks):
        if block is None:
            policy.bad(
                "line too long",
                f"{name}:{number}: longer than {MAX_LINE_BYTES >> 20} MiB, expected a paragraph or sentence per line; "
                "add line ends to the file",
            )
            yield number, None
            number += 1
            continue
        if number == 1 and block.startswith(b"\xef\xbb\xbf"):
            block = block[3:]
        for line in _decoded(block, number, name, policy):
            yield number, line
            number += 1


def _whole_lines(chunks: Iterator[bytes]) -> Iterator[bytes | None]:
    """The same bytes split after line ends; None in place of each line that is too long."""
    pending = bytearray()
    dropping = False
    for chunk in chunks:
        end_of_first = chunk.find(b"\n")
        if dropping or len(pending) + (end_of_first if end_of_first >= 0 else len(chunk)) > MAX_LINE_BYTES:
            if not dropping:
                yield None
                pending.clear()
            dropping = end_of_first < 0
            if dropping:
                continue
            chunk = chunk[end_of_first + 1 :]
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield bytes(pending) + chunk[:cut]
            pending.clear()
        pending += chunk[cut:]
    if pending:
        yield bytes(pending)


def _decoded(block: bytes, first: int, name: str, policy: Policy) -> Iterator[str | None]:
    try:
        text = block.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        lines = text.split("\n")
        yield from lines if lines[-1] else lines[:-1]
        return
    # Something is wrong in the block: decode line by line to find out where.
    for number, raw in enumerate(block.removesuffix(b"\n").split(b"\n"), first):
        line: str | None = None
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            utf16 = b"\0" in raw or raw[:2] in (b"\xff\xfe", b"\xfe\xff")
            looks = " (it looks like UTF-16)" if utf16 else ""
            policy.bad(
                "bad UTF-8",
                f"{name}:{number}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8{looks}; "
                "convert the file (iconv -t UTF-8)",
            )
        if line is not None and "\0" in line:
            place = line.index("\0") + 1
            policy.bad("NUL", f"{name}:{number}: character {place} of the line is a NUL; remove it")
            line = None
        yield line
