"""The files of unigram tokenizers: SentencePiece's ``.model``, and ``tokenizer.json``.

The original format is the ``.model``, a protocol buffer (``sentencepiece_model.proto`` of google/sentencepiece): pieces
with their scores, how the model was trained, how text is normalized. Only what a tokenizer needs is read, without the
``sentencepiece`` package. The normalization is a table, ``precompiled_charsmap``: a trie (double array) of byte strings
to replace, and the replacements. (Kudo 2018, "Subword regularization"; Kudo & Richardson 2018.)

``tokenizer.json`` has the pieces as the model numbers them. Of both files, only ``tokenizer.json`` is read: every
published model is used with it, and 250,000 pieces of a ``.model`` file take a second.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import normalizers, pre_tokenizers

from bertkit.errors import CheckpointError
from bertkit.system.protobuf import Value, bytes_of, fields, number_of, text_of
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.backend import unigram_steps
from bertkit.tokenization.formats.tokenizer_files import read_bytes
from bertkit.tokenization.formats.tokenizer_folder import Kind
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson
from bertkit.tokenization.templates import Template
from bertkit.tokenization.vocabulary import BEGIN_AND_END, Splits

#: Kinds of pieces; 4 are defined by the user, 5 unused.
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
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
    """A model file: pieces with scores in the order of their ids, the kind of each, and ``precompiled_charsmap``."""

    pieces: tuple[tuple[str, float], ...]
    kinds: tuple[int, ...]
    charsmap: bytes | None


def parse_sentencepiece(data: bytes, path: Path) -> SentencePieceModel:
    """Read the bytes of a unigram model file; error messages name them ``path``."""
    pieces: list[tuple[str, float]] = []
    kinds: list[int] = []
    charsmap: bytes | None = None
    algorithm = _UNIGRAM

    def part(value: Value) -> dict[int, Value]:
        return dict(fields(bytes_of(value), _MAX_PART_FIELDS))

    try:
        for number, value in fields(memoryview(data), MAX_PIECES):
            if number == 1:
                piece, score, kind = _piece(bytes(bytes_of(value)))
                pieces.append((piece, score))
                kinds.append(kind)
            elif number == 2:
                algorithm = number_of(part(value).get(3, _UNIGRAM))
            elif number == 3:
                charsmap = bytes(bytes_of(part(value).get(2, memoryview(b"")))) or None
    except ValueError as error:
        where = f" (piece {len(pieces):,})" if pieces else ""
        raise CheckpointError(f"{path} is not a SentencePiece model, or is damaged: {error}{where}") from None
    if algorithm != _UNIGRAM:
        name = _ALGORITHMS.get(algorithm, str(algorithm))
        raise CheckpointError(f"{path} is a SentencePiece model with the algorithm {name}; only unigram is read")
    if not pieces:
        raise CheckpointError(f"{path} is not a SentencePiece model: it has no pieces")
    return SentencePieceModel(tuple(pieces), tuple(kinds), charsmap)


def _piece(data: bytes) -> tuple[str, float, int]:
    """Text, score and kind; without a loop where the fields are as sentencepiece writes those of a normal piece."""
    try:
        if len(data) > 7 and data[0] == 10 and len(data) == data[1] + 7 and data[-5] == _SCORE_KEY and data[1] < 0x80:
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
        raise ValueError(f"invalid piece {text!r:.40}: kind {kind}, score {score}")
    return text, score, kind


#: Several blanks, which a normalizer replaces by one.
_BLANKS = {"Regex": " {2,}"}

Pieces = tuple[tuple[str, float], ...]
Numbering = Callable[[SentencePieceModel, Path], Pieces]


def read_model(path: Path, number: Numbering, *, byte_pieces: bool = False) -> dict[str, Any]:
    """The arguments in a SentencePiece file, numbered as its family does; with ``byte_pieces`` bytes are pieces too."""
    data = read_bytes(path)
    model = parse_sentencepiece(data, path)
    if BYTE in model.kinds and not byte_pieces:
        raise CheckpointError(
            f"{path} writes unknown characters as bytes (byte_fallback), which bertkit does not implement"
        )
    pieces = number(model, path)
    return {"vocab": pieces, "precompiled_charsmap": model.charsmap, "model": data, "source": str(path)}


def unigram_kind(name: str, model_file: str, number: Numbering, template: Template, **differences: Any) -> Kind:
    """The files of a family's tokenizer; ``differences`` are fields of :class:`Kind` that are not XLM-R's."""
    usual: dict[str, Any] = {
        "from_json": words_from_json,
        "originals": {model_file: partial(read_model, number=number)},
        "flags": ("add_prefix_space",),
        "required": {"sp_model_kwargs": {}},
        "names": BEGIN_AND_END,
        "blank_before_mask": True,
    }
    classes = frozenset({name})
    return Kind(name, classes, model="Unigram", template=template, json_alone=True, **{**usual, **differences})


def words_from_json(file: TokenizerJson) -> dict[str, Any]:
    """The arguments of a tokenizer that cuts at white space; see :func:`unigram_kind`."""
    steps, charsmap = _steps(file)
    return {**_words(file, steps, charsmap, []), "precompiled_charsmap": charsmap}


def albert_from_json(file: TokenizerJson) -> dict[str, Any]:
    """The arguments of a tokenizer that may replace quotes, drop accents and lower-case before, as ALBERT's does."""
    steps, charsmap = _steps(file)
    lower, keeps = {"type": "Lowercase"} in steps, {"type": "NFKD"} not in steps
    first = unigram_steps(
        replace_quotes=True, keep_accents=keeps, lower_case=lower, splits="at white space", charsmap=None
    )
    found = _words(file, steps, charsmap, first)
    return {**found, "precompiled_charsmap": charsmap, "do_lower_case": lower, "keep_accents": keeps}


def deberta_from_json(file: TokenizerJson) -> dict[str, Any]:
    """The arguments of DeBERTa's tokenizer, which cuts at blanks, in either of its forms."""
    steps, charsmap = _steps(file)
    lower = {"type": "Lowercase"} in steps
    forms: tuple[Splits, ...] = ("at blanks", "at blanks of NFC")
    for splits in forms:
        known = unigram_steps(replace_quotes=False, keep_accents=True, lower_case=lower, splits=splits, charsmap=None)
        described = [json.loads(step.__getstate__()) for step in known]
        if charsmap and splits == "at blanks":
            described.insert(-1, _TABLE)
        if steps == described:
            break
    else:
        raise _other_normalizer(file)
    words = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    file.part(
        "pre_tokenizer",
        "be Metaspace, with '▁' before every text",
        [(each, None) for each in (pre_tokenizers.Sequence([words]), words)],
    )
    pieces, unknown = _pieces(file)
    return {
        "vocab": pieces,
        "unk_token": unknown,
        "precompiled_charsmap": charsmap,
        "do_lower_case": lower,
        "splits": splits,
    }


#: The place of SentencePiece's table among the steps of normalization.
_TABLE: Json = {"type": "Precompiled"}


def _steps(file: TokenizerJson) -> tuple[list[Json], bytes | None]:
    """The steps of normalization, and the table of that of SentencePiece."""
    normalizer = file.content.get("normalizer")
    listed = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else [normalizer]
    steps: list[Json] = []
    charsmap = None
    for step in listed if isinstance(listed, list) else []:
        if isinstance(step, dict) and step.get("type") == "Precompiled" and charsmap is None:
            coded = step.get("precompiled_charsmap")
            try:
                charsmap = base64.b64decode(coded, validate=True) if isinstance(coded, str) and coded else b""
            except ValueError:
                charsmap = b""
            if charsmap == b"" and coded != "":
                raise CheckpointError(f"{file.path}: precompiled_charsmap must be base64 text, got {str(coded)[:80]}")
            steps += [_TABLE] if charsmap else []
        elif isinstance(step, dict):
            steps.append(step)
    return steps, charsmap or None


def _words(
    file: TokenizerJson, steps: list[Json], charsmap: bytes | None, first: Sequence[normalizers.Normalizer]
) -> dict[str, Any]:
    """Pieces, and what stands before words; ``first`` are the steps of normalization before SentencePiece's."""
    blanks = [step for step in steps if isinstance(step, dict) and step.get("pattern") == _BLANKS]
    collapses = any(step.get("content") in (" ", "▁") for step in blanks if isinstance(step, dict))
    # White space at the ends makes no difference: words are split at white space anyway.
    rest = [step for step in steps if isinstance(step, dict) and step.get("type") != "Strip" and step not in blanks]
    described = [json.loads(step.__getstate__()) for step in first]
    if rest != [*described, *([_TABLE] if charsmap else [])]:
        raise _other_normalizer(file)
    splitters: list[tuple[pre_tokenizers.PreTokenizer, bool]] = []
    for scheme in ("always", "never"):
        splitter = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        whole = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), splitter])
        # Without splitting at white space, several blanks in a row would be tokens, unless they were made one before.
        splitters += [(each, scheme == "always") for each in (whole, splitter)[: 1 + collapses]]
    wanted = "be WhitespaceSplit and Metaspace, with '▁' before every word or before none"
    adds = file.part("pre_tokenizer", wanted, splitters)
    pieces, unknown = _pieces(file)
    return {"vocab": pieces, "unk_token": unknown, "add_prefix_space": adds}


def _pieces(file: TokenizerJson) -> tuple[Pieces, str]:
    file.require_unset("byte_fallback")
    return file.pieces()


def _other_normalizer(file: TokenizerJson) -> CheckpointError:
    return CheckpointError(
        f"{file.path} normalizes text with {str(file.content.get('normalizer'))[:300]}, which is not what "
        f"{file.reader} does"
    )
