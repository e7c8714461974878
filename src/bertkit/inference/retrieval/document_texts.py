"""Passages of documents as an index takes them: stable ids, and only what has changed is read again."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from glob import has_magic
from pathlib import Path

from bertkit.errors import ConfigError, DataError, shorten
from bertkit.inference.retrieval.index_files import HEADING, Row
from bertkit.inference.retrieval.passages import Cutter
from bertkit.inference.retrieval.source_texts import SourceText, source_name
from bertkit.inference.retrieval.text_vectors import Facts
from bertkit.system.console import say
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.documents.find_documents import Found, find_documents, how_many, lies_in
from bertkit.tasks.reading.documents.pdf_files import check_pypdf
from bertkit.tasks.reading.documents.read_document import ENDINGS, read_bytes, read_document

#: Documents that are left out and named in a message.
_NAMED = 10


def names_documents(argument: str, known: Collection[str] = ()) -> bool:
    """Whether an argument is a folder, a pattern or a document, or one of an index, which are ``known``.

    A ``.txt`` by its name is lines of text, unless the index has it as a document.
    """
    if not argument:
        raise ConfigError("an argument is empty; name a file, a folder or a pattern (. is the current folder)")
    path = Path(argument)
    if path.is_dir() or source_name(path) in known:
        return True
    if path.exists():
        return path.suffix.lower() in ENDINGS and path.suffix.lower() not in (".txt", ".text")
    return has_magic(argument)


def given_documents(texts: object, known: Collection[str] = ()) -> DocumentTexts | None:
    """The documents that a path, or a list of paths, names; None for texts themselves.

    A text alone is a path, too, if it names documents; a list of texts never is.
    """
    if isinstance(texts, Path):
        return DocumentTexts([str(texts)], known=known)
    if isinstance(texts, str) and names_documents(texts, known):
        return DocumentTexts([texts], known=known)
    if isinstance(texts, Sequence) and texts and all(isinstance(each, Path) for each in texts):
        return DocumentTexts([str(each) for each in texts], known=known)
    return None


class DocumentTexts:
    """The passages of documents that folders, patterns and files name.

    A document in a folder that cannot be read is left out, with its reason in ``left_out``; one that is named itself
    is a DataError. An id is ``FILE#HASH`` of what the passage says, so that it stays as the document around it changes.

    Args:
        arguments: folders, patterns and files, see
            :func:`~bertkit.tasks.reading.documents.find_documents.find_documents`.
        encoding: of text files; None means UTF-8.
        known: the documents of the index that is changed.

    Raises:
        DataError: no documents.
        MissingExtraError: there are PDFs and no ``pypdf``.
    """

    def __init__(self, arguments: Sequence[str], encoding: str | None = None, known: Collection[str] = ()) -> None:
        self.arguments, self.encoding = arguments, encoding
        self.found: Found = find_documents(arguments, known)
        if any(path.suffix.lower() == ".pdf" for path in self.found.files):
            check_pypdf()
        self.left_out: dict[str, str] = {}
        self.unread: dict[str, str] = {}
        #: Hashes of the documents that are in the index as it is, empty while passages are replaced; and of those that
        #: will be in it when it is finished.
        self.documents: dict[str, str] = {}
        self._new: dict[str, str] = {}
        self._adding = False
        self.unchanged: set[str] = set()
        #: Those whose passages are replaced.
        self.touched: set[str] = set()

    def begin(self, cutter: Cutter, documents: Mapping[str, str] | None = None, *, adding: bool = False) -> None:
        """How they are cut, and the documents of the index; those that are gone become ``touched``.

        ``adding`` to it: what has changed is a DataError.
        """
        self._cutter, self._adding = cutter, adding
        self.documents = dict(documents or {})
        there = {source_name(path) for path in self.found.files}
        gone = set() if adding else {name for name in self.documents if name not in there and self._is_gone(name)}
        self.documents.update(dict.fromkeys(gone, ""))
        self.touched |= gone
        if self.documents and not there & {*self.documents}:
            say("none of these documents is in the index yet (one is known by the path that it was indexed under)")

    def _is_gone(self, name: str) -> bool:
        folders = (argument for argument in self.arguments if lies_in(name, argument))
        return any(Path(argument).is_dir() or not Path(name).exists() for argument in folders)

    @property
    def facts(self) -> Facts:
        """What an index remembers."""
        return {"passage_tokens": self._cutter.tokens, "passage_overlap": self._cutter.overlap}

    def to_dict(self) -> dict[str, Json]:
        """What was found, for programs."""
        return {
            "documents": len(self.found.files) - len(self.left_out),
            "left_out": self.left_out,
            "not_read": self.unread,
            "passed_over": dict(self.found.passed),
        }

    def recorded(self, finished: bool) -> dict[str, str]:
        """The documents of which passages are in the index, with their hashes, if they are all there."""
        kept = {name: digest for name, digest in self.documents.items() if digest}
        return {**kept, **self._new} if finished else dict(self.documents)

    def texts(self) -> Iterator[SourceText]:
        """The passages of the documents that are not in the index as they are."""
        named = {source_name(Path(argument)) for argument in self.arguments}
        for path in self.found.files:
            source = source_name(path)
            try:
                yield from self._of(path, source)
            except DataError as error:
                if source in named or (self._adding and self.documents.get(source)):
                    raise
                reason = str(error).removeprefix(f"{path}: ")
                self.left_out[source] = f"line {reason.removeprefix(f'{path}:')}" if f"{path}:" in reason else reason
        self._report()

    def _of(self, path: Path, source: str) -> Iterator[SourceText]:
        try:
            data = read_bytes(path)
            digest = hashlib.sha256(data).hexdigest()
            if self.documents.get(source) == digest:
                self.unchanged.add(source)
                return
            if self._adding and self.documents.get(source):
                raise DataError(f"{path} has changed since it was indexed; 'bertkit search update' replaces it")
        finally:
            if source not in self.unchanged and not (self._adding and self.documents.get(source)):
                self.touched.add(source)
                self.documents[source] = ""  # until all of its passages are in the index
        document = read_document(path, self.encoding, data)
        seen: dict[str, int] = {}
        for number, (start, end, heading, page) in enumerate(self._cutter.passages(document), start=1):
            more: dict[str, str | int] = {HEADING: heading, "start": start, "end": end}
            if page is not None:
                more["page"] = page
            text = document.text[start:end]
            name = hashlib.blake2b(
                Row("", text, "", more).searched.encode("utf-8", "replace"), digest_size=5
            ).hexdigest()
            seen[name] = count = seen.get(name, 0) + 1
            yield SourceText(source, number, f"{source}#{name}" + (f"-{count}" if count > 1 else ""), text, more)
        self._new[source] = digest
        if document.unread:
            self.unread[source] = ", ".join(document.unread)

    def _report(self) -> None:
        say(how_many(self.found))
        for what, names in (("left out", self.left_out), ("not read of", self.unread)):
            for source, why in list(names.items())[:_NAMED]:
                say(f"{what} {source}: {why}")
            if len(names) > _NAMED:
                say(f"{what} {len(names) - _NAMED:,} more (--json names them all): {shorten([*names][_NAMED:])}")
