"""SentencePiece model files, read without the ``sentencepiece`` package.

Such a file is a protocol buffer (``sentencepiece_model.proto`` of google/sentencepiece): a list of pieces with their
scores, how the model was trained, how text is normalized. Only what a tokenizer needs is read. The normalization is a
table of its own, ``precompiled_charsmap``: a trie of byte strings to replace, as a double array, and their
replacements. (Kudo 2018, "Subword regularization"; Kudo & Richardson 2018.)
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertkit.errors import CheckpointError
from bertkit.system.protobuf import Value, bytes_of, fields, number_of, text_of

#: Kinds of pieces.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
#: Most pieces; XLM-R has 250,000.
MAX_PIECES = 300_000
#: Most fields of a piece, which has three, and of another part of a model; user-defined symbols are a field each.
_MAX_PIECE_FIELDS, _MAX_PART_FIELDS = 8, 100_000
_UNIGRAM = 1
_ALGORITHMS = {1: "unigram", 2: "BPE", 3: "word", 4: "character"}
_FLOAT = struct.Struct("<f")
_SCORE_KEY = 2 << 3 | 5


@dataclass(frozen=True)
class SentencePieceModel:
    """What a model file says.

    pieces: every piece and its score, in the order of their ids.
    kinds: the kind of each, such as :data:`CONTROL`.
    charsmap: the compiled normalization; None where there is none.
    """

    pieces: tuple[tuple[str, float], ...]
    kinds: tuple[int, ...]
    charsmap: bytes | None


def parse_sentencepiece(data: bytes, path: Path) -> SentencePieceModel:
    """Read the bytes of a unigram model file.

    Args:
        data: the bytes.
        path: how error messages name them.

    Raises:
        CheckpointError: not such a file, a damaged one, or a model of another algorithm than unigram.
    """
    pieces: list[tuple[str, float]] = []
    kinds: list[int] = []
    charsmap: bytes | None = None
    algorithm = _UNIGRAM
    try:
        for number, value in fields(memoryview(data), MAX_PIECES):
            if number == 1:
                piece, score, kind = _piece(bytes(bytes_of(value)))
                pieces.append((piece, score))
                kinds.append(kind)
            elif number == 2:
                algorithm = number_of(_part(value).get(3, _UNIGRAM))
            elif number == 3:
                charsmap = bytes(bytes_of(_part(value).get(2, memoryview(b"")))) or None
    except ValueError as error:
        where = f" (piece {len(pieces):,})" if pieces else ""
        raise CheckpointError(f"{path} is not a SentencePiece model, or is damaged: {error}{where}") from None
    if algorithm != _UNIGRAM:
        name = _ALGORITHMS.get(algorithm, str(algorithm))
        raise CheckpointError(f"{path} is a SentencePiece model of the algorithm {name}; only unigram is read")
    if not pieces:
        raise CheckpointError(f"{path} is not a SentencePiece model: it has no pieces")
    return SentencePieceModel(tuple(pieces), tuple(kinds), charsmap)


def _part(value: Value) -> dict[int, Value]:
    """The fields of a message, by number."""
    return dict(fields(bytes_of(value), _MAX_PART_FIELDS))


def _piece(data: bytes) -> tuple[str, float, int]:
    """Text, score and kind; without a loop where the fields are as sentencepiece writes those of a normal piece."""
    try:
        if data[:1] == b"\n" and len(data) == data[1] + 7 and data[-5] == _SCORE_KEY and 0 < data[1] < 0x80:
            text, score, kind = data[2:-5].decode(), _FLOAT.unpack_from(data, len(data) - 4)[0], NORMAL
        else:
            text, score, kind = "", 0.0, NORMAL
            for number, value in fields(memoryview(data), _MAX_PIECE_FIELDS):
                if number == 1:
                    text = text_of(value)
                elif number == 2:
                    (score,) = _FLOAT.unpack(bytes_of(value, 4))
                elif number == 3:
                    kind = number_of(value)
    except UnicodeDecodeError:
        raise ValueError("a piece is not UTF-8 text") from None
    if not text or not NORMAL <= kind <= BYTE or score != score:
        raise ValueError(f"a piece is {text!r:.40} of kind {kind}, score {score}")
    return text, score, kind


def check_charsmap(charsmap: bytes, source: str) -> None:
    """See that no lookup in a compiled normalization can leave it.

    Its first four bytes are the size of the trie, a double array of 32-bit units; the replacements follow, each ended
    by a zero byte. A unit either leads to 256 other units or holds the place of a replacement.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        (size,) = struct.unpack_from("<I", charsmap)
        if size % 4 or size == 0 or 4 + size > len(charsmap):
            raise ValueError(f"a trie of {size:,} bytes in {len(charsmap):,}")
        units = np.frombuffer(charsmap, "<u4", size // 4, 4)
        replacements = charsmap[4 + size :]
        replacements.decode()
        holds = units >> 31 == 1
        places = (units[holds] & 0x7FFFFFFF).astype(np.int64)
        if len(places) and int(places.max()) >= len(replacements):
            raise ValueError("a replacement outside the table")
        starts = np.frombuffer(replacements, np.uint8)[places]
        if (starts >> 6 == 2).any():
            raise ValueError("a replacement that begins inside a character")
        inner = units[~holds].astype(np.int64)
        offsets = (inner >> 10) << ((inner & 0x200) >> 6)
        reached = (np.flatnonzero(~holds) ^ offsets) | 0xFF
        if len(reached) and int(reached.max()) >= len(units):
            raise ValueError("a unit that leads outside the trie")
    except (ValueError, struct.error) as error:
        raise CheckpointError(f"{source}: its precompiled_charsmap is damaged: {error}") from None
