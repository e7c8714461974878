"""Write a token store that is either complete or visibly unfinished.

Shards are written one after another, each under a temporary name until its bytes are on disk; ``progress.json`` then
lists it. Whatever kills the process or the machine, finished shards stay, and a writer with the same settings continues
after them. At the end the shards get their final names; ``manifest.json`` is written last. A writer that stops before
its first shard is finished leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bertkit.data.corpus.near_duplicates import DedupReport
from bertkit.data.corpus.store_folders import MANIFEST, PROGRESS, TOKENIZER
from bertkit.data.store.mapped_ids import StoredIds
from bertkit.data.store.store_manifest import (
    Counts,
    Setting,
    Shard,
    StoreManifest,
    TokenizerFacts,
    id_type_for,
    lists_of,
    schema_for,
    strings_of,
)
from bertkit.errors import ConfigError, DataError, ResourceError
from bertkit.ragged import boundaries_of
from bertkit.system.atomic_files import LOCK, held_lock, is_full_disk, make_folder, replace_file, sha256_file, sync_file
from bertkit.system.json_files import printable
from bertkit.system.paths import user_path
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: A shard is closed once it has this many bytes of text: little to repeat after a kill, and not many files.
SHARD_TEXT_BYTES = 1 << 26
WRITING = ".writing"

#: What a writer that was killed before its first progress.json may leave.
_OWN = {LOCK, PROGRESS + WRITING}
_AGAIN = "start over with resume=False (--no-resume), which deletes its shards"


@dataclass(frozen=True, slots=True)
class TokenizedChunk:
    """Documents as ids: one row group of a shard.

    ids: ``(T,)`` of the store's type, concatenated sentences without special tokens.
    sentence_lengths: int32 ``(S,)``, tokens of each sentence, at least 1.
    document_lengths: int32 ``(D,)``, sentences of each document, at least 1.
    num_read: documents of the corpus that it came from, including those without any token.
    """

    ids: StoredIds
    sentence_lengths: NDArray[np.int32]
    document_lengths: NDArray[np.int32]
    sources: list[str]
    counts: Counts
    num_read: int

    def to_table(self, schema: pa.Schema) -> pa.Table:
        """One row per document."""
        ends = boundaries_of(self.sentence_lengths)
        document_ends = boundaries_of(self.document_lengths)
        lengths = lists_of(document_ends, self.sentence_lengths, schema.field("sentence_lengths").type)
        tokens = lists_of(ends[document_ends], self.ids, schema.field("tokens").type)
        return pa.Table.from_arrays([strings_of(self.sources), lengths, tokens], schema=schema)


class StoreWriter:
    """:meth:`add` chunks, then :meth:`finish`. Use it in a ``with`` block, which closes files in any case.

    settings: what the shards depend on besides the text; goes into the manifest.
    inputs: identifies the corpus on this machine (JSON); kept until the store is finished.
    num_read: documents of the corpus in finished shards: skip as many before adding.
    """

    def __init__(
        self,
        folder: str | Path,
        tokenizer: PreTrainedTokenizer,
        *,
        settings: Mapping[str, Setting],
        inputs: Sequence[Sequence[Setting]] = (),
        resume: bool = True,
        shard_text_bytes: int = SHARD_TEXT_BYTES,
    ) -> None:
        self.path = user_path(folder)
        if printable(self.path) != str(self.path):
            raise ConfigError(
                f"{printable(self.path)}: a store lies in Parquet files, whose paths must be UTF-8; choose another "
                "--out, or a UTF-8 locale"
            )
        self.tokenizer = TokenizerFacts.of(tokenizer)
        self.id_type = id_type_for(len(tokenizer))
        self.settings = {**settings, "shard_text_bytes": shard_text_bytes}
        self.num_read = 0
        self._identity = json.loads(
            json.dumps({"tokenizer": self.tokenizer.sha256, "settings": self.settings, "inputs": inputs})
        )
        self._shard_text_bytes = shard_text_bytes
        self._schema = schema_for(self.id_type)
        self._shards: list[Shard] = []
        self._open: pq.ParquetWriter | None = None
        self._parts: list[Counts] = []
        self._read_since = 0
        self._began = False
        self._lock = contextlib.ExitStack()
        with self._errors():
            # A folder with other content is refused before anything is written to it.
            make_folder(self.path)
            self._refuse_taken()
            busy = f"another process is writing to {self.path}; wait for it or choose another --out"
            self._lock.enter_context(held_lock(self.path / LOCK, busy))
            try:
                self._begin(resume)
                shutil.rmtree(self.path / TOKENIZER, ignore_errors=True)  # of a killed writer, perhaps half of it
                tokenizer.save_pretrained(self.path / TOKENIZER)
            except BaseException:
                self._release()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            with contextlib.suppress(OSError, pa.ArrowException):  # its content will be written again
                self._open.close()
            self._open = None
        with contextlib.suppress(OSError):
            self._temporary().unlink(missing_ok=True)
        self._release()

    @property
    def counts(self) -> Counts:
        """Of the finished shards."""
        return Counts.total(shard.counts for shard in self._shards)

    def add(self, chunk: TokenizedChunk) -> None:
        """Write one row group, and close the shard if it is large enough."""
        self._read_since += chunk.num_read
        if not len(chunk.document_lengths):
            return
        with self._errors():
            if self._open is None:
                # No dictionary: it makes 15-bit ids no smaller than compression does, and plain values decode faster.
                self._open = pq.ParquetWriter(
                    self._temporary(),
                    self._schema,
                    compression="zstd",
                    use_dictionary=False,
                    write_statistics=False,
                    write_page_checksum=True,
                )
            self._open.write_table(chunk.to_table(self._schema), row_group_size=len(chunk.document_lengths))
            self._parts.append(chunk.counts)
            if sum(part.text_bytes for part in self._parts) >= self._shard_text_bytes:
                self._close_shard()

    def finish(self, duplicates: DedupReport | None = None) -> StoreManifest:
        """Close the last shard, rename all, and write the manifest with ``duplicates``; DataError without a token."""
        with self._errors():
            if self._open is not None:
                self._close_shard()
            if not self._shards:
                raise DataError("no document of the corpus has a token: there is nothing to store")
            shards = []
            for number, shard in enumerate(self._shards):
                name = f"tokens-{number:05d}-of-{len(self._shards):05d}.parquet"
                if (self.path / shard.name).exists():
                    (self.path / shard.name).replace(self.path / name)
                shards.append(shard.model_copy(update={"name": name}))
            manifest = StoreManifest(
                tokenizer=self.tokenizer,
                id_type=self.id_type,
                settings=self.settings,
                counts=self.counts,
                shards=tuple(shards),
                duplicates=duplicates,
            )
            self._replace(MANIFEST, manifest.model_dump_json(indent=2))
            (self.path / PROGRESS).unlink()
        return manifest

    def _release(self) -> None:
        """Unlock the folder. A store without a finished shard is removed, and so is an empty folder."""
        with contextlib.suppress(OSError):
            if self._began and not self._shards:
                shutil.rmtree(self.path / TOKENIZER, ignore_errors=True)
                (self.path / PROGRESS).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._lock.close()
        with contextlib.suppress(OSError):  # it is not empty
            self.path.rmdir()

    def _refuse_taken(self) -> None:
        if (self.path / MANIFEST).exists():
            raise ConfigError(f"{self.path} already has a finished token store; remove it or choose another --out")
        if (self.path / PROGRESS).exists():
            return
        if others := sorted(entry.name for entry in self.path.iterdir() if entry.name not in _OWN):
            raise ConfigError(f"{self.path} is not empty (it has {others[0]!r}); choose another --out")

    def _begin(self, resume: bool) -> None:
        """Take over what an earlier writer finished, and delete the rest of what it left."""
        self._refuse_taken()  # again: it may have finished while this one waited for the lock
        progress = self.path / PROGRESS
        if resume and progress.exists():
            self._take_over(progress)
        self._save_progress()
        self._began = True
        kept = {self._find(number, shard) for number, shard in enumerate(self._shards)}
        for path in (*self.path.glob("tokens-*.parquet"), *self.path.glob(f"*{WRITING}")):
            if path not in kept:
                path.unlink()

    def _take_over(self, progress: Path) -> None:
        try:
            values = json.loads(progress.read_bytes())
            identity, num_read = values["identity"], int(values["num_read"])
            shards = [Shard(**shard) for shard in values["shards"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{progress} cannot be used ({error}); remove {self.path}, or {_AGAIN}") from None
        if shards and identity != self._identity:
            changed = [key for key, value in self._identity.items() if identity.get(key) != value]
            raise ConfigError(
                f"{self.path} was started with other {' and '.join(changed)}; choose another --out, or {_AGAIN}"
            )
        for number, shard in enumerate(shards):
            path = self._find(number, shard)
            if path is None or path.stat().st_size != shard.num_bytes or sha256_file(path) != shard.sha256:
                raise ConfigError(f"shard {number} of the unfinished store {self.path} is missing or damaged; {_AGAIN}")
            if path.name != shard.name:  # killed while the shards were getting their final names
                path.replace(self.path / shard.name)
        self._shards, self.num_read = shards, num_read

    def _find(self, number: int, shard: Shard) -> Path | None:
        """Path of a finished shard: its first name or, after a kill in :meth:`finish`, its final one."""
        own = self.path / shard.name
        return own if own.exists() else next(self.path.glob(f"tokens-{number:05d}-of-*.parquet"), None)

    def _temporary(self) -> Path:
        return self.path / f"tokens-{len(self._shards):05d}.parquet{WRITING}"

    def _close_shard(self) -> None:
        """Write the shard to disk, then list it: its documents are not read again after a kill."""
        assert self._open is not None
        self._open.close()
        self._open = None
        temporary = self._temporary()
        sync_file(temporary)
        path = self.path / temporary.name.removesuffix(WRITING)
        counts = Counts.total(self._parts)
        shard = Shard(name=path.name, num_bytes=temporary.stat().st_size, sha256=sha256_file(temporary), counts=counts)
        temporary.replace(path)
        self._shards.append(shard)
        self._parts = []
        self.num_read, self._read_since = self.num_read + self._read_since, 0
        self._save_progress()

    def _save_progress(self) -> None:
        values = {
            "identity": self._identity,
            "num_read": self.num_read,
            "shards": [shard.model_dump() for shard in self._shards],
        }
        self._replace(PROGRESS, json.dumps(values, indent=2))

    def _replace(self, name: str, content: str) -> None:
        replace_file(self.path / name, f"{content}\n".encode(), self.path / (name + WRITING))

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if is_full_disk(error):
                raise ResourceError(
                    f"no room left for the token store {self.path}; finished shards stay: make room and run it again"
                ) from error
            raise ResourceError(f"cannot write the token store {self.path}: {error.strerror or error}") from error
