"""Embeddings and encoder of a model, packed for the C library: token ids in, vectors of tokens out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bertkit.engine.backend import Pack, Precision
from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.native_encoder import NativeEmbeddings, NativeEncoder, PositionTables
from bertkit.errors import ConfigError
from bertkit.ragged import Floats, Ids, Ints
from bertkit.weights.encoder_weights import EncoderWeights
from bertkit.weights.parts import Matrix, WeightType

#: Tables of positions are made for texts of so many tokens at least, and then for twice as many.
FEWEST_TOKENS = 128
#: What the library keeps weights as.
WEIGHT_TYPES: dict[Precision, WeightType] = {
    "auto": "float24",
    "int8": "float24",  # of the matrices that are not in 8 bits
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
}


def check_int8(precision: Precision, *, in_bytes: bool) -> None:
    """Refuse (ConfigError) int8 for a model that is not in 8 bits, and other precisions for one that is."""
    if in_bytes and precision not in ("auto", "int8"):
        raise ConfigError(f"the model is in int8; precision is 'auto' or 'int8' then, got {precision!r}")
    if precision == "int8" and not in_bytes:
        raise ConfigError("the model is not in int8; make one that is with: bertkit quantize MODEL --out FOLDER")


def check_bf16(precision: Precision, library: NativeLibrary) -> None:
    """Refuse (ConfigError) bf16 where the library's variant has no such products."""
    if precision == "bf16" and not library.bf16:
        raise ConfigError(f"this processor has no bf16 products (it has {library}); use precision 'auto'")


class PackedEncoder:
    """The layers, and the tables of positions that they ask for.

    added: further matrices, for :meth:`NativeEncoder.multiply`.
    threads: how many pack the matrices, this one among them.
    """

    def __init__(
        self,
        weights: EncoderWeights,
        library: NativeLibrary,
        kept_as: WeightType,
        added: tuple[Matrix, ...] = (),
        threads: int = 1,
    ) -> None:
        layers = weights.layers(kept_as)
        self.native = NativeEncoder(library, weights.shape, layers, weights.final_norm, added, threads)
        self._positions = weights.positions
        self._tables: PositionTables | None = None

    def compute(
        self,
        x_TD: Floats,
        boundaries: tuple[int, ...],
        chosen: Ids | None = None,
        chosen_starts: Ids | None = None,
        *,
        threads: int = 1,
    ) -> Floats:
        """Embeddings to the top layer; see :class:`~bertkit.engine.native.native_encoder.NativeEncoder`."""
        tables = None
        if self._positions is not None:
            tables = self._tables_for(max(end - start for start, end in pairwise(boundaries)))
        starts = np.array(boundaries, np.int32)
        return self.native(x_TD, starts, chosen, chosen_starts, threads=threads, positions=tables)

    def _tables_for(self, tokens: int) -> PositionTables:
        """Tables that reach to ``tokens`` at least; the largest are kept. Two threads may make the same ones."""
        assert self._positions is not None
        tables = self._tables
        if tables is None or tables.most < tokens:
            most = max(FEWEST_TOKENS, 1 << (tokens - 1).bit_length())
            self._tables = tables = PositionTables(self._positions(most))
        return tables


class PackedEmbeddings:
    """The tables of a model, which are not copied, and the normalization of their sum."""

    def __init__(self, weights: EncoderWeights, library: NativeLibrary) -> None:
        tables, config = weights.tables, weights.config
        self.names, self.first_position = list(tables), config.first_position
        self.sizes = {name: len(table) for name, table in tables.items()}
        self._embed = NativeEmbeddings(library, list(tables.values()), weights.embedding_norm, config.layer_norm_eps)

    def compute(self, ids_T: Ints, positions_T: Ints, segments_T: Ints) -> Floats | None:
        """Vectors ``(T, E)``; None if a number is not in its table."""
        found = self._rows(ids_T, positions_T, segments_T)
        return self._embed([found[name] for name in self.names])

    def _rows(self, ids_T: Ints, positions_T: Ints, segments_T: Ints) -> dict[str, Ints]:
        """By table, the rows to look up."""
        positions_T = positions_T + self.first_position if self.first_position else positions_T
        return {"input_ids": ids_T, "position_ids": positions_T, "token_type_ids": segments_T}

    def outside(self, pack: Pack) -> tuple[str, int] | None:
        """Name of the table that lacks a row for a pack, and the number that is outside; None: there is none."""
        for name, rows_T in self._rows(pack.ids, pack.positions, pack.token_type_ids).items():
            if name in self.sizes and len(rows_T):
                low, high = int(rows_T.min()), int(rows_T.max())
                if low < 0 or high >= self.sizes[name]:
                    return name, low if low < 0 else high
        return None


def first_tokens(pack: Pack) -> tuple[Ids, Ids]:
    """The rows of the first tokens, and where those of each sequence begin, as :meth:`PackedEncoder.compute` wants."""
    firsts = np.array(pack.boundaries, np.int32)
    return firsts[:-1], np.arange(len(firsts), dtype=np.int32)
