"""What is to be read for a token store: files to documents without duplicates. Picklable, so that it can be done on
another machine. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bertkit.data.corpus.bad_input import OnError
from bertkit.data.corpus.documents import CorpusReport, Document, read_documents
from bertkit.data.corpus.near_duplicates import Dedup, DedupReport, drop_duplicates


@dataclass(frozen=True, slots=True)
class Reading:
    """Which documents a store is made of.

    paths, text, on_error: see :func:`~bertkit.data.corpus.documents.read_documents`.
    dedup: which duplicates are left out; None: none.
    max_documents: see :func:`~bertkit.data.corpus.near_duplicates.drop_duplicates`.
    """

    paths: tuple[str, ...]
    text: str | None
    on_error: OnError
    dedup: Dedup | None
    max_documents: int | None

    def documents(self, report: CorpusReport, duplicates: DedupReport) -> Iterator[Document]:
        """The documents, line by line: to split sentences would take most of the time, and is done elsewhere.

        Args:
            report: filled while documents are read.
            duplicates: the same.

        Raises:
            InputError, DataError: at once, or while documents are read.
            ResourceError: see :func:`~bertkit.data.corpus.near_duplicates.drop_duplicates`.
        """
        documents = read_documents(self.paths, sentences="line", text=self.text, on_error=self.on_error, report=report)
        if self.dedup is None:
            return documents
        near = self.dedup == "near"
        return drop_duplicates(documents, near=near, report=duplicates, max_documents=self.max_documents)
