"""Bad input in a corpus: stop with an error, or skip and count it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from bertkit.errors import DataError, InputError

OnError = Literal["raise", "skip"]

#: Messages about skipped input that a report keeps; the counts are complete.
KEPT_EXAMPLES = 10


@dataclass(slots=True)
class CorpusReport:
    """What was read and skipped. Filled while documents are read; one report may serve several calls.

    files: files read to their end. documents, sentences: yielded. bytes_read: after decompression; for a Parquet file,
    bytes of its texts. file_bytes_read: on disk. empty_rows: table rows and dump pages without text. cut_documents:
    cuts made in documents too long for memory. skipped: number of faults of each kind; examples: the first messages.
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
            f"{self.documents:,} documents, {self.sentences:,} sentences in {self.files:,} files "
            f"({self.bytes_read / 1e6:,.1f} MB of text)"
        ]
        if self.empty_rows:
            parts.append(f"{self.empty_rows:,} rows without text")
        if self.cut_documents:
            parts.append(f"{self.cut_documents:,} cuts in very long documents")
        if self.skipped:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.skipped.items()))
            parts.append(f"skipped: {kinds}")
        return "; ".join(parts)


class Policy:
    """What happens at each fault in a corpus.

    Args:
        on_error: ``"raise"`` stops at the first fault, ``"skip"`` counts it.
        report: where faults are counted.

    Raises:
        InputError: ``on_error`` is neither.
    """

    def __init__(self, on_error: OnError, report: CorpusReport) -> None:
        if on_error not in ("raise", "skip"):
            raise InputError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
        self.on_error = on_error
        self.report = report

    def bad(self, kind: str, message: str) -> None:
        """Report a fault.

        Args:
            kind: a few words under which it is counted, e.g. ``"bad UTF-8"``.
            message: where it is, what was found and what to do, without the advice to skip.

        Raises:
            DataError: ``on_error`` is ``"raise"``.
        """
        if self.on_error == "raise":
            raise DataError(f"{message}, or skip it with on_error='skip' (--on-error skip)")
        self.report.skipped[kind] += 1
        if len(self.report.examples) < KEPT_EXAMPLES:
            self.report.examples.append(message)
