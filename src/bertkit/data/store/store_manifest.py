"""The manifest of a token store and the layout of its shards, for reader and writer.

A store is a folder::

    STORE/
        tokens-00000-of-00002.parquet  tokens-00001-of-00002.parquet
        tokenizer/                     the tokenizer that made the ids, as its save_pretrained writes it
        manifest.json                  counts, hashes, tokenizer digest; written last: without it, unfinished

A shard has one row per document: ``source`` (where it begins in the corpus), ``sentence_lengths`` (tokens per sentence)
and ``tokens`` (the ids of all its sentences, without special tokens). The ids are a flat list, not a list of lists, so
that lengths can be read alone and ids are simple to decode. Any Parquet reader opens a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bertkit.data.corpus.near_duplicates import DedupReport
from bertkit.data.corpus.store_folders import MANIFEST, PROGRESS
from bertkit.errors import DataError
from bertkit.system.folder_manifest import FolderKind
from bertkit.system.validated_settings import Field, Settings
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.tokenization.family_vocabularies import UnigramVocabulary
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import Vocabulary

#: Increased when older versions could misread a store.
FORMAT_VERSION = 1

Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
IdType = Literal["uint16", "uint32"]
Setting = str | int | None
NumberT = TypeVar("NumberT", bound=np.integer)


class Counts(Settings):
    """Amount of text in any part of a store; ``text_bytes`` has one more for the end of each sentence."""

    num_documents: Count = 0
    num_sentences: Count = 0
    num_tokens: Count = 0
    num_unknown: Count = 0
    text_bytes: Count = 0

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Counts:
        """The sum of ``parts``."""
        rows = [[getattr(part, name) for name in Counts.model_fields] for part in parts]
        return Counts(**dict(zip(Counts.model_fields, map(sum, zip(*rows, strict=True)), strict=False)))


class Shard(Settings):
    """One file of a store. ``name`` contains no folder, so that a manifest cannot point elsewhere."""

    name: Annotated[str, Field(pattern=r"^tokens-\d{5,}(-of-\d{5,})?\.parquet$")]
    num_bytes: Count
    sha256: Sha256
    counts: Counts


class TokenizerFacts(Settings):
    """The tokenizer that made the ids: see :func:`tokenizer_digest`. ``num_tokens`` includes added tokens."""

    sha256: Sha256
    num_tokens: Annotated[int, Field(ge=1)]
    do_lower_case: bool

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizer) -> Self:
        """The facts of a tokenizer."""
        vocabulary = tokenizer._vocabulary
        lower = isinstance(vocabulary, Vocabulary | UnigramVocabulary) and vocabulary.do_lower_case
        return cls(sha256=tokenizer_digest(tokenizer), num_tokens=len(tokenizer), do_lower_case=lower)


class StoreManifest(Settings):
    """Content of ``manifest.json``. Like the shards, it is a pure function of the input: no date, no path."""

    format_version: Literal[1] = 1
    tokenizer: TokenizerFacts
    id_type: IdType
    settings: dict[str, Setting]
    counts: Counts
    shards: tuple[Shard, ...]
    duplicates: DedupReport | None = None

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The defaults of DedupReport are for one that is still being filled."""
        report = values.get("duplicates")
        if isinstance(report, dict) and (missing := {each.name for each in fields(DedupReport)} - report.keys()):
            raise ValueError(f"duplicates lacks {', '.join(sorted(missing))}")
        return values


STORE = FolderKind(
    StoreManifest,
    MANIFEST,
    FORMAT_VERSION,
    called="a token store",
    command="bertkit prepare CORPUS --tokenizer DIR --out STORE",
    again="prepare it again",
)


def read_manifest(folder: Path) -> StoreManifest:
    """The manifest of a finished store; anything else is a DataError."""
    if not (folder / MANIFEST).exists() and (folder / PROGRESS).is_file():
        raise DataError(f"{folder} is an unfinished token store; run the same 'bertkit prepare' again to continue")
    manifest = STORE.read(folder)
    if Counts.total(shard.counts for shard in manifest.shards) != manifest.counts:
        raise DataError(f"{folder / MANIFEST} is damaged: its counts are not the sums over its shards")
    return manifest


def id_type_for(num_tokens: int) -> IdType:
    """The smallest type for the ids of a vocabulary of ``num_tokens``."""
    return "uint16" if num_tokens <= 1 << 16 else "uint32"


def schema_for(id_type: IdType) -> pa.Schema:
    """Columns of a shard, without nulls."""
    lists = {"sentence_lengths": pa.int32(), "tokens": pa.uint16() if id_type == "uint16" else pa.uint32()}
    columns = {name: pa.list_(pa.field("element", kind, nullable=False)) for name, kind in lists.items()}
    columns = {"source": pa.string(), **columns}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


# Arrow arrays are made through their buffers: pa.array() and to_numpy() import pandas if it is installed, 40 MB of
# memory and a third of a second per process.


def array_of(values: NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """Numbers ``(N,)`` as an Arrow array of the same type, without a copy if they are contiguous."""
    values = np.ascontiguousarray(values)
    assert values.itemsize * 8 == kind.bit_width, (values.dtype, kind)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def strings_of(texts: Sequence[str]) -> pa.Array:
    """Texts as an array of strings, together less than 2 GiB of UTF-8."""
    encoded = [text.encode("utf-8", "replace") for text in texts]  # half of a surrogate pair becomes a "?"
    ends = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(text) for text in encoded], out=ends[1:])
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def lists_of(boundaries: NDArray[np.integer], values: NDArray[np.integer], kind: pa.DataType) -> pa.Array:
    """An array of the list type ``kind``, whose n-th list is ``values[boundaries[n] : boundaries[n + 1]]``."""
    ends = array_of(boundaries.astype(np.int32), pa.int32())
    return pa.ListArray.from_arrays(ends, array_of(values, kind.value_type), type=kind)


def numbers_of(array: pa.Array, kind: np.dtype[NumberT]) -> NDArray[NumberT]:
    """The numbers of an array without nulls, whose type in numpy is ``kind``: a view that keeps the array alive."""
    assert array.null_count == 0
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(0, kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)
