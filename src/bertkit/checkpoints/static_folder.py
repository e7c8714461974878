"""Folders of word vectors that make vectors of texts: those of model2vec, and ``StaticEmbedding`` of
sentence-transformers, read strictly; and one form that both read, written.

A folder of model2vec has ``config.json``, ``tokenizer.json`` and ``model.safetensors`` with ``embeddings``, and where
tokens share vectors, ``mapping`` (a row for each token) and ``weights`` (a factor for each token). One of
sentence-transformers has ``modules.json``, and ``embedding.weight`` in the folder of its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit.checkpoints.safetensors_format import (
    CHECKSUM,
    NO_CHECKSUM,
    TensorInfo,
    read_floats,
    read_header,
    seal,
    tensor_bytes,
)
from bertkit.checkpoints.sentence_files import PoolingFile
from bertkit.checkpoints.sentence_folder import MODULES, SETTINGS, STATIC, SentenceParts, listed_modules, parts_of
from bertkit.config.config_file import CONFIG, MAX_CONFIG_BYTES, first_module
from bertkit.config.sentence_config import Normalize, SentenceConfig
from bertkit.errors import CheckpointError, ConfigError, ResourceError, shorten
from bertkit.ragged import Floats
from bertkit.system.json_files import write_json
from bertkit.system.untrusted_files import Json, is_there, read_object
from bertkit.system.validated_settings import Field, FileSettings

#: ``model_type`` in a ``config.json`` of model2vec.
MODEL2VEC = "model2vec"
WEIGHTS, TOKENIZER = "model.safetensors", "tokenizer.json"
#: Names of the table of vectors: in model2vec, and in sentence-transformers.
TABLES = ("embeddings", "embedding.weight")
#: Most bytes of a table in memory, in float32: a million words of 2,000 numbers.
MAX_TABLE_BYTES = 8 << 30
#: Largest value in 16 bits.
MAX_HALF = float(np.finfo(np.float16).max)


class Model2VecFile(FileSettings):
    """``config.json`` of model2vec; fields that only say how the vectors were made are read and not used."""

    model_type: str = MODEL2VEC
    architectures: list[str] = Field([])
    normalize: bool = False
    max_length: int | None = Field(None, ge=1)
    hidden_dim: int | None = Field(None, ge=1)
    seq_length: int | None = None
    tokenizer_name: str | None = None
    apply_pca: int | float | str | None = None
    apply_zipf: bool | None = None
    sif_coefficient: float | None = None
    pooling: str | None = None
    embedding_dtype: str | None = None
    vocabulary_quantization: int | None = None


class StaticFolder(NamedTuple):
    """Where a folder has its word vectors, and how they are used.

    home: the folder of ``model.safetensors`` and ``tokenizer.json``.
    said: the ``config.json`` of model2vec; None for a folder of sentence-transformers alone.
    """

    folder: Path
    home: Path
    said: Model2VecFile | None

    @property
    def skips_unknown(self) -> bool:
        """Whether unknown words are left out, as model2vec does, or have a vector, as in sentence-transformers."""
        return self.said is not None

    @property
    def files(self) -> tuple[Path, ...]:
        """The weights."""
        return (self.home / WEIGHTS,)

    def read_table(self) -> Floats:
        """A vector for each token: float32 ``(V, D)``."""
        file = self.home / WEIGHTS
        found = read_header(file)
        names = [name for name in TABLES if name in found]
        if len(names) != 1 or found.keys() - {*TABLES, "mapping", "weights"} or len(found[names[0]].shape) != 2:
            shapes = shorten(f"{name} {list(info.shape)}" for name, info in found.items())
            raise CheckpointError(
                f"{file} has {shapes or 'no tensors'}; expected one table of two axes named {' or '.join(TABLES)}, "
                "with mapping and weights beside it at most"
            )
        rows, width = found[names[0]].shape
        size = found["mapping"].num_values if "mapping" in found else rows
        if not size or not width or size * width * 4 > MAX_TABLE_BYTES:
            raise ResourceError(
                f"{file} describes {size:,} vectors of {width:,} numbers: there must be some, of at most "
                f"{MAX_TABLE_BYTES >> 30} GiB in float32"
            )
        table = _numbers(found[names[0]])
        if "mapping" in found:
            table = table[_rows_of(found["mapping"], rows)]
        if "weights" in found:
            factors = _numbers(found["weights"])
            if factors.shape != (size,):
                raise CheckpointError(f"{file}: weights has the shape {list(factors.shape)}, expected [{size}]")
            table = table * factors[:, None]
        return table

    def sentence_parts(self, width: int) -> SentenceParts:
        """How vectors of texts are made: the mean, and what follows."""
        if is_there(self.folder / MODULES):
            parts = parts_of(
                self.folder, PoolingFile(pooling_mode="mean"), listed_modules(self.folder / MODULES)[1:], width
            )
            config, weights = parts.config, parts.weights
        else:
            assert self.said is not None
            config = SentenceConfig(steps=(Normalize(),) if self.said.normalize else ())
            weights = ({},) * len(config.steps)
        limit = config.max_length or (self.said.max_length if self.said else None)
        return SentenceParts(config.model_copy(update={"max_length": limit}), weights)


class StaticReport(NamedTuple):
    """What ``bertkit inspect`` says of word vectors."""

    path: str
    tokens: int
    dimensions: int
    bytes: int
    steps: tuple[str, ...]
    skips_unknown: bool
    max_length: int | None

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return self._asdict()

    def render(self) -> str:
        """For people."""
        after = "".join(f", then {step}" for step in self.steps)
        unknown = "left out" if self.skips_unknown else "tokens as others"
        limit = "none" if self.max_length is None else f"{self.max_length:,} tokens"
        return (
            f"word vectors  {self.path}\n{self.tokens:,} tokens, vectors of {self.dimensions} numbers, "
            f"{self.bytes / 1e6:.1f} MB\na text: the mean of its tokens{after}; unknown words are {unknown}; limit: "
            f"{limit}"
        )


def inspect_static(found: StaticFolder) -> StaticReport:
    """What a folder of word vectors holds; errors as in loading it."""
    table = found.read_table()
    config = found.sentence_parts(table.shape[1]).config
    return StaticReport(
        str(found.folder),
        len(table),
        table.shape[1],
        sum(file.stat().st_size for file in found.files),
        tuple(type(step).__name__ for step in config.steps),
        found.skips_unknown,
        config.max_length,
    )


def static_folder(path: Path) -> StaticFolder | None:
    """The word vectors in a folder; None if it holds something else. CheckpointError for a damaged one."""
    if not path.is_dir():
        return None
    said, home = None, path
    if is_there(path / CONFIG):
        values = read_object(path / CONFIG, max_bytes=MAX_CONFIG_BYTES)
        if values.get("model_type") != MODEL2VEC:
            return None
        try:
            said = Model2VecFile(**values)
        except ConfigError as error:
            raise CheckpointError(f"{path / CONFIG} says what bertkit does not have: {error}") from None
    elif not is_there(path / MODULES):
        return None
    if is_there(path / MODULES):
        if first_module(path / MODULES)[0] != STATIC:
            if said is None:
                return None
            raise CheckpointError(f"{path / MODULES} does not begin with a {STATIC}, which its config.json is of")
        first, *others = listed_modules(path / MODULES)
        if wrong := [place.kind for place in others if place.kind in ("Transformer", "Pooling", STATIC)]:
            raise CheckpointError(
                f"{path / MODULES} has {', '.join(wrong)} after word vectors, which are pooled already"
            )
        home = first.folder
    return StaticFolder(path, home, said)


def write_static_folder(folder: Path, table_VD: Floats, config: Mapping[str, Json]) -> None:
    """Write everything but the tokenizer into a folder that bertkit, model2vec and sentence-transformers read.

    The vectors are stored in 16 bits; ConfigError where they do not fit. ``config`` says how they were made.
    """
    largest = float(np.abs(table_VD).max(initial=0.0))
    if not np.isfinite(table_VD).all() or largest > MAX_HALF:
        raise ConfigError(
            f"the vectors have values up to {largest:g}, and 16 bits hold {MAX_HALF:g}: scale them, for example to "
            "length 1"
        )
    half = np.ascontiguousarray(table_VD, np.float16)
    draft = folder / WEIGHTS
    from safetensors.numpy import save

    draft.write_bytes(save({TABLES[0]: half}, {CHECKSUM: NO_CHECKSUM}))
    seal(draft)
    said = {"model_type": MODEL2VEC, "architectures": ["StaticModel"], "hidden_dim": table_VD.shape[1]}
    usual: dict[str, Json] = {"normalize": True, "max_length": None, "seq_length": 1_000_000}
    write_json(folder / CONFIG, {**said, **usual, "embedding_dtype": "float16", **config})
    names = ((".", STATIC), ("1_Normalize", "Normalize"))
    entries: list[Json] = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(names)
    ]
    write_json(folder / MODULES, entries)
    write_json(folder / SETTINGS, {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"})


def _numbers(info: TensorInfo) -> Floats:
    """Floats, or 8-bit integers as they are, of which model2vec takes the mean as well."""
    if info.dtype == "I8":
        return tensor_bytes(info).view(np.int8).astype(np.float32).reshape(info.shape)
    return read_floats(info)


def _rows_of(info: TensorInfo, rows: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    kinds = {"I64": "<i8", "I32": "<i4", "U32": "<u4", "U16": "<u2", "I16": "<i2"}
    if info.dtype not in kinds or len(info.shape) != 1:
        raise CheckpointError(f"{info.file}: mapping is {info.dtype} {list(info.shape)}, expected a list of integers")
    found = tensor_bytes(info).view(kinds[info.dtype]).astype(np.int64)
    if len(wrong := found[(found < 0) | (found >= rows)]):
        raise CheckpointError(f"{info.file}: mapping names row {wrong[0]:,}, and there are rows 0 to {rows - 1:,}")
    return found
