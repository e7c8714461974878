"""Build a search index and change it: killed at any moment it goes on, and the answers are the same."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from sys import intern
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from bertkit.errors import ConfigError, DataError, InputError, counted, did_you_mean
from bertkit.inference.retrieval.document_texts import DocumentTexts
from bertkit.inference.retrieval.index_files import (
    DRAFTS,
    MANIFEST,
    Block,
    Manifest,
    NumberType,
    Row,
    Stored,
    check_number_type,
    read_manifest,
    read_rows,
    read_vectors,
    stored,
    unnamed_files,
    write_block,
    write_manifest,
)
from bertkit.inference.retrieval.source_texts import SourceText
from bertkit.inference.retrieval.text_vectors import TextEncoder, refuse_truncated
from bertkit.metrics.fusion import SHARE
from bertkit.system.atomic_files import LOCK, claimed_folder
from bertkit.system.console import Progress, say
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.paths import user_path

#: A block is written when it has so many texts, or so many characters: what a kill can cost, and what is read at once.
BLOCK_TEXTS = 8192
#: Texts whose vectors are computed at once; when it is stopped, those before are kept.
TEXTS_AT_ONCE = 512
BLOCK_CHARACTERS = 64 << 20


class Located(NamedTuple):
    """A text to index, and where it is, for messages."""

    row: Row
    where: str


class Place(NamedTuple):
    """Where a text of the index is, and the hashes of what is searched, and of what else is kept."""

    block: int
    row: int
    digest: bytes
    source: str
    more: bytes = b""


@dataclass(slots=True)
class Changes:
    """What a command did to an index: numbers of texts. reused: were in it under another id, so keep their vector."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    reused: int = 0
    total: int = 0


@dataclass(slots=True)
class _Pending:
    """Texts of the next block, with the vectors of those that have one; ``gone`` rows are removed with its commit."""

    rows: list[Located] = field(default_factory=list)
    vectors: list[Stored | None] = field(default_factory=list)
    characters: int = 0
    gone: dict[int, set[int]] = field(default_factory=dict)
    replaces: bool = False

    def add(self, row: Located, vector: Stored | None) -> None:
        self.rows.append(row)
        self.vectors.append(vector)
        self.characters += len(row.row.searched)

    def begun(self) -> _Pending:
        """Those whose vectors are computed."""
        found = _Pending(gone=self.gone)
        for row, vector in zip(self.rows, self.vectors, strict=True):
            if vector is not None:
                found.add(row, vector)
        return found

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= BLOCK_TEXTS or self.characters >= BLOCK_CHARACTERS


class IndexWriter:
    """Use it in a ``with`` block; one process at a time writes an index.

    encoder: of the index, see :func:`~bertkit.inference.retrieval.index_encoder.open_encoder`; None to remove texts.
    truncate: read only the beginning of texts that are too long; otherwise they are an InputError.
    documents: those whose passages are among the texts; what is recorded of them follows each commit.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: TextEncoder | None,
        *,
        truncate: bool = False,
        documents: DocumentTexts | None = None,
    ) -> None:
        self.path = user_path(folder)
        self.encoder, self.truncate, self.documents = encoder, truncate, documents
        self.changes = Changes()
        self._pending = _Pending()
        self._vectors: dict[int, Stored] = {}
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._held.enter_context(claimed_folder(self.path, f"another process is changing {self.path}; wait for it"))
        self._signals = self._held.enter_context(Interrupts())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if (manifest := getattr(self, "manifest", None)) and not manifest.finished and not manifest.blocks:
            (self.path / MANIFEST).unlink(missing_ok=True)  # nothing to go on with
        self._held.close()

    def build(self, texts: Iterable[Located], model: str, number_type: NumberType = "float32") -> Changes:
        """A new index of texts with different ids; called again after a kill, it keeps what is finished and right."""
        check_number_type(number_type)
        assert self.encoder is not None
        if number_type == "int8" and self.encoder.measure == "dot":
            raise ConfigError("int8 keeps no lengths, and this model compares vectors by dot products; use float16")
        facts = {**self.encoder.facts, **(self.documents.facts if self.documents else {})}
        share = SHARE if self.documents else None
        new = Manifest(model=model, facts=facts, width=self.encoder.width, number_type=number_type, vectors_share=share)
        if (self.path / MANIFEST).exists():
            old = read_manifest(self.path)
            if old.finished:
                raise ConfigError(f"{self.path} is a finished index; add to it or update it, or give another folder")
            differing = [name for name in ("facts", "width", "number_type") if getattr(old, name) != getattr(new, name)]
            if differing and old.blocks:
                raise ConfigError(
                    f"{self.path} was started with another {' and '.join(differing).replace('facts', 'model')}; give "
                    "the same again, or another folder"
                )
            if old.blocks:
                say(f"resuming after {old.num_texts:,} finished texts in {self.path}")
            else:
                write_manifest(self.path, new)
        elif others := sorted({*self.path.iterdir()} - {self.path / LOCK, *self.path.glob(DRAFTS)}):
            raise ConfigError(f"{self.path} is not empty (it has {others[0].name!r}); give another folder")
        else:
            write_manifest(self.path, new)
        self._open()
        self._put_all(texts, may_change=True)
        if not self.manifest.num_texts and not self._pending.rows:
            raise DataError("there is no text to index")
        return self._finish(keep=self._seen)

    def add(self, texts: Iterable[Located]) -> Changes:
        """Add texts. One with an id of the index is left alone if it says the same, and a DataError otherwise."""
        self._open(finished=True)
        self._put_all(texts, may_change=False)
        self._count_unread()
        return self._finish(keep=self._seen, sources=self.documents.touched if self.documents else set())

    def update(self, texts: Iterable[Located], sources: Iterable[str] = ()) -> Changes:
        """Make the index what the files of these texts say now; ``sources`` names them, also those without a text left.

        New texts are added, those whose hash differs are embedded again, and texts of the same sources that are no
        longer there are removed. A text that was in the index under another id keeps its vector.
        """
        self._open(finished=True)
        self._by_digest.update((place.digest, place) for place in self._known.values())
        known = {place.source for place in self._known.values()}
        self._put_all(texts, may_change=True)
        self._sources.update(sources)
        self._count_unread()
        read = self.documents.touched if self.documents else set()
        if known and (new := sorted(self._sources - known - read)):
            say(f"new to the index: {', '.join(new)} (a file is known by the path that it was indexed under)")
        return self._finish(keep=self._seen, sources=self._sources)

    def delete(self, ids: Iterable[str]) -> Changes:
        """Remove texts; an id that is not in the index is an InputError, and nothing is removed."""
        self._open(finished=True)
        for name in dict.fromkeys(ids):
            if name not in self._known:
                near = did_you_mean(name, islice(self._known, 1000))
                raise InputError(f"no text with the id {name!r} in {self.path}{near}")
            self._remove(name)
        return self._finish()

    def _open(self, *, finished: bool = False) -> None:
        """Read the manifest and the ids; delete what a killed process left."""
        self.manifest = read_manifest(self.path)
        if finished and not self.manifest.finished:
            raise ConfigError(f"{self.path} is an unfinished index; run the same 'bertkit search build' to complete it")
        for path in unnamed_files(self.path, self.manifest.blocks):
            path.unlink()
        self._known: dict[str, Place] = {}
        self._by_digest: dict[bytes, Place] = {}
        self._seen: set[str] = set()
        self._sources: set[str] = set()
        for block in self.manifest.blocks:
            for number, row in read_rows(self.path, block).items():
                hashes = digest_of(row.searched), more_digest(row)
                self._known[row.id] = Place(block.number, number, hashes[0], intern(row.source), hashes[1])

    def _put_all(self, texts: Iterable[Located], *, may_change: bool) -> None:
        for each in texts:
            row, old = each.row, self._known.get(each.row.id)
            digest, more = digest_of(row.searched), more_digest(row)
            if row.id in self._seen:
                raise DataError(f"{each.where}: the id {row.id!r} occurs twice; every text needs its own id")
            self._seen.add(row.id)
            self._sources.add(row.source)
            same = old is not None and (old.digest, old.more) == (digest, more)
            mine = may_change or (self.documents is not None and row.source in self.documents.touched)
            if old is not None and same and (old.source == row.source or not mine):
                self.changes.unchanged += 1
                continue
            if old is not None and not mine:
                raise DataError(
                    f"{each.where}: the index has another text with the id {row.id!r}; 'bertkit search update' "
                    "replaces it"
                )
            vector = self._vector_of(self._by_digest.get(digest))
            self.changes.reused += vector is not None
            if old is None:
                self.changes.added += 1
            else:
                self.changes.changed += 1
                self._remove(row.id, counted=False)
                self._pending.replaces = True
            self._pending.add(each, vector)
            if self._pending.is_full:
                self._commit()

    def _count_unread(self) -> None:
        """Passages of documents that were not read again are unchanged."""
        unchanged = self.documents.unchanged if self.documents else set()
        self.changes.unchanged += sum(place.source in unchanged for place in self._known.values())

    def _vector_of(self, place: Place | None) -> Stored | None:
        block = None if place is None else self._block(place.block)
        if place is None or block is None:
            return None
        if place.block not in self._vectors:
            self._vectors[place.block] = read_vectors(self.path, block, self.manifest)
        return np.array(self._vectors[place.block][place.row])

    def _remove(self, name: str, *, counted: bool = True) -> None:
        place = self._known.pop(name)
        self._pending.gone.setdefault(place.block, set()).add(place.row)
        self.changes.removed += counted

    def _move(self, block: Block) -> None:
        """Let the next block have the texts of this one."""
        gone = self._pending.gone.setdefault(block.number, set())
        for number, row in read_rows(self.path, block).items():
            if number in gone:
                continue
            self._pending.add(Located(row, row.id), self._vector_of(Place(block.number, number, b"", row.source)))
            gone.add(number)

    def _block(self, number: int) -> Block | None:
        """None for one of which nothing was left."""
        return next((block for block in self.manifest.blocks if block.number == number), None)

    def _rest(self, block: Block) -> int:
        """Texts of a block that will count after the next commit."""
        return block.rows - len({*block.removed, *self._pending.gone.get(block.number, ())})

    def _finish(self, keep: set[str] | None = None, sources: set[str] | None = None) -> Changes:
        """Remove what is not to be kept (of some sources, or of all), and write the last block.

        A block of which less than half is left is written again, and a last one with room takes the new texts.
        """
        if keep is not None:
            for name, place in list(self._known.items()):
                if name not in keep and (sources is None or place.source in sources):
                    self._remove(name)
        for number in [block.number for block in self.manifest.blocks]:
            block = self._block(number)
            if block is not None and 0 < self._rest(block) < block.rows / 2:
                self._move(block)
                if self._pending.is_full:
                    self._commit()
        last = self.manifest.blocks[-1] if self.manifest.blocks and self._pending.rows else None
        if (
            last is not None
            and 0 < self._rest(last) <= BLOCK_TEXTS - len(self._pending.rows)
            and last.texts_bytes + self._pending.characters < BLOCK_CHARACTERS
        ):
            self._move(last)
        self._commit(finished=True)
        self.changes.total = self.manifest.num_texts
        return self.changes

    def _commit(self, *, finished: bool = False) -> None:
        """Write the pending block; only then the manifest, with what is removed; only then delete files.

        Blocks without a text that counts stay until the end, because their vectors may still be used again.
        """
        pending, self._pending = self._pending, _Pending()
        try:
            self._compute(pending)
        except Interrupted as stop:
            if not pending.replaces:  # otherwise texts would be there twice, or be missing
                self._write(pending.begun(), finished=False)
            message = f"{stop} after {counted(self.manifest.num_texts, 'text')}; run the same command to go on"
            raise Interrupted(message, stop.signum) from None
        self._write(pending, finished=finished)

    def _write(self, pending: _Pending, *, finished: bool) -> None:
        new, next_block = [], self.manifest.next_block
        if pending.rows:
            vectors = np.array(pending.vectors, self.manifest.number_type)
            rows = [each.row for each in pending.rows]
            new, next_block = [write_block(self.path, next_block, vectors, rows)], next_block + 1
        blocks = [_without(block, pending.gone.get(block.number, set())) for block in self.manifest.blocks]
        self.manifest = self.manifest.model_copy(
            update={
                "blocks": (*(block for block in blocks if not finished or len(block.live)), *new),
                "next_block": next_block,
                "finished": finished or self.manifest.finished,
                **({"documents": self.documents.recorded(finished)} if self.documents else {}),
            }
        )
        write_manifest(self.path, self.manifest)
        self._vectors.clear()  # a file that is mapped cannot be deleted everywhere
        for path in unnamed_files(self.path, self.manifest.blocks):
            path.unlink()

    def _compute(self, pending: _Pending) -> None:
        """Vectors of the pending texts that have none yet; those computed until an Interrupted are there."""
        missing = [number for number, vector in enumerate(pending.vectors) if vector is None]
        if not missing:
            return
        assert self.encoder is not None
        label = f"texts after {self.manifest.num_texts:,}"
        with Progress(len(missing), label=label, unit="texts", check=self._signals.check) as bar:
            for start in range(0, len(missing), TEXTS_AT_ONCE):
                some = missing[start : start + TEXTS_AT_ONCE]
                encoded = self.encoder.encode(
                    [pending.rows[number].row.searched for number in some], advance=bar.advance
                )
                if not self.truncate:
                    where = [pending.rows[number].where for number in some]
                    refuse_truncated(encoded, where.__getitem__, self.encoder.longest)
                for number, vector in zip(some, stored(encoded.vectors, self.manifest.number_type), strict=True):
                    pending.vectors[number] = vector


def digest_of(text: str) -> bytes:
    """The hash by which a changed text is noticed."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def more_digest(row: Row) -> bytes:
    """The same for what is kept beside a text."""
    return digest_of(json.dumps(row.more)) if row.more else b""


def _without(block: Block, gone: set[int]) -> Block:
    return block.model_copy(update={"removed": tuple(sorted({*block.removed, *gone}))}) if gone else block


def index_rows(texts: Iterable[SourceText]) -> Iterator[Located]:
    """Texts as rows: with the id that each has, else ``SOURCE:LINE``; empty ones are left out and counted."""
    empty, sources = 0, set[str]()
    for source, line, name, text, more in texts:
        where = f"{source}:{line}"
        if text.strip():
            yield Located(Row(where if name is None else name, text, source, more), where)
        else:
            empty += 1
            sources.add(source)
    if empty:
        of = next(iter(sources)) if len(sources) == 1 else counted(len(sources), "file")
        say(f"left out {counted(empty, 'empty text')} of {of}")
