"""The files that unigram tokenizers come in.

A SentencePiece ``.model`` file is the original format; ``tokenizer.json`` holds the pieces as the model numbers them.
Where a folder has both, ``tokenizer.json`` alone is read: it is what every published model is used with, and a model
file of 250,000 pieces takes a second to read. Settings: see :mod:`bertkit.tokenization.formats.tokenizer_files`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertkit.errors import CheckpointError
from bertkit.tokenization.formats.sentencepiece import SentencePieceModel, parse_sentencepiece
from bertkit.tokenization.formats.tokenizer_files import (
    Kind,
    add_settings,
    added_tokens,
    part,
    read_bytes,
    read_json,
    read_template,
    write_tokenizer_files,
)
from bertkit.tokenization.ragged import Template
from bertkit.tokenization.vocabulary import UnigramVocabulary

#: Steps of normalization as a tokenizer.json has them, by what they do; in this order.
_STEPS = ("quotes", "quotes", "decompose", "strip accents", "lower", "charsmap")
_QUOTES = ("``", "''")
#: Scores are logarithms of probabilities, or near them.
MAX_SCORE = 1e9

Pieces = tuple[tuple[str, float], ...]
Numbering = Callable[[SentencePieceModel, Path], Pieces]


def read_model(path: Path, number: Numbering) -> dict[str, Any]:
    """The arguments of a unigram tokenizer's class that a SentencePiece file holds.

    Args:
        path: the file.
        number: gives the pieces as the family numbers them.

    Raises:
        CheckpointError: the file is missing, too large, damaged, or another family's.
    """
    data = read_bytes(path)
    model = parse_sentencepiece(data, path)
    pieces = number(model, path)
    return {"vocab": pieces, "precompiled_charsmap": model.charsmap, "model": data, "source": str(path)}


def read_unigram_tokenizer(
    path: Path, model_file: str, kind: Kind, template: Template, number: Numbering
) -> dict[str, Any]:
    """The arguments of a unigram tokenizer's class that a folder, a tokenizer.json or a ``.model`` file describes.

    Raises:
        CheckpointError: nothing to read, a damaged file, or another tokenizer.
    """
    folder = path if path.is_dir() else path.parent
    json_file = folder / "tokenizer.json" if path.is_dir() else path
    arguments: dict[str, Any] = {}
    has_json = json_file.is_file() and json_file.suffix == ".json"
    if has_json:
        arguments = {"source": str(json_file), **_read_tokenizer_json(json_file, kind, template)}
    else:
        vocab_file = folder / model_file if path.is_dir() else path
        if not vocab_file.is_file():
            raise CheckpointError(f"{path} has no {model_file} and no tokenizer.json; it is not a {kind.name}'s folder")
        arguments = read_model(vocab_file, number)
    if path.is_dir():
        vocab = {piece: at for at, (piece, _) in enumerate(arguments["vocab"])}
        add_settings(arguments, vocab, folder, kind, has_json=has_json)
    return arguments


def _read_tokenizer_json(path: Path, kind: Kind, template: Template) -> dict[str, Any]:
    content = read_json(path)
    model = part(content, "model", path)
    name = model.get("type", "Unigram" if "unk_id" in model else None)
    if name != "Unigram":
        raise CheckpointError(f"{path} holds a {name} model; {kind.name} reads Unigram")
    if model.get("byte_fallback"):
        raise CheckpointError(f"{path}: model.byte_fallback is true; unknown characters as bytes are not computed")
    pieces = _pieces(model.get("vocab"), path)
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(pieces):
        raise CheckpointError(f"{path}: model.unk_id must be the place of a piece, got {unknown!r}")
    arguments: dict[str, Any] = {
        "vocab": pieces,
        "unk_token": pieces[unknown][0],
        "added_tokens": added_tokens(content, path),
        **read_template(content.get("post_processor"), template, path),
    }
    steps, charsmap, collapses = _normalization(content.get("normalizer"), path)
    arguments["add_prefix_space"] = _prefix_space(content.get("pre_tokenizer"), path, collapses=collapses)
    if charsmap:
        arguments["precompiled_charsmap"] = charsmap
    if "keep_accents" in kind.settings:
        arguments |= {"do_lower_case": "lower" in steps, "keep_accents": "decompose" not in steps}
        steps = [step for step in steps if step == "charsmap"] if "quotes" in steps else ["no quotes", *steps]
    if steps not in ([], ["charsmap"]):
        raise CheckpointError(
            f"{path} normalizes text with {json.dumps(content['normalizer'])[:200]}, which is not what {kind.name} does"
        )
    return arguments


def _pieces(values: Any, path: Path) -> Pieces:
    if not isinstance(values, list) or not values:
        raise CheckpointError(f"{path}: model.vocab must be a list of pieces and their scores")
    for number, value in enumerate(values):
        right = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)
        if not right or type(value[1]) not in (int, float) or not abs(value[1]) < MAX_SCORE:
            raise CheckpointError(f"{path}: piece {number:,} must be a text and a score, got {str(value)[:80]}")
    return tuple((piece, float(score)) for piece, score in values)


def _normalization(normalizer: Any, path: Path) -> tuple[list[str], bytes | None, bool]:
    """What is done to text, the compiled table of characters, and whether several blanks become one."""
    found: list[str] = []
    charsmap, collapses = None, False
    listed = normalizer.get("normalizers") if isinstance(normalizer, dict) and "normalizers" in normalizer else None
    for step in listed if isinstance(listed, list) else [normalizer] if normalizer is not None else []:
        kind = step.get("type") if isinstance(step, dict) else None
        if kind == "Precompiled":
            found.append("charsmap")
            charsmap = _decoded(step.get("precompiled_charsmap"), path)
        elif kind == "Replace" and step.get("pattern") in [{"String": quote} for quote in _QUOTES]:
            found.append("quotes")
        elif kind == "Replace" and step.get("pattern") == {"Regex": " {2,}"} and step.get("content") in (" ", "▁"):
            collapses = True
        elif kind in ("NFKD", "StripAccents", "Lowercase"):
            found.append({"NFKD": "decompose", "StripAccents": "strip accents", "Lowercase": "lower"}[kind])
        elif kind != "Strip":  # white space at the ends: words are split at white space anyway
            raise CheckpointError(f"{path}: a step of normalization is {str(step)[:200]}, which is not computed here")
    in_order = sorted(found, key=_STEPS.index)
    if found != in_order or ("decompose" in found) != ("strip accents" in found) or found.count("quotes") not in (0, 2):
        raise CheckpointError(f"{path}: normalization must be some of {', '.join(_STEPS)}, got {', '.join(found)}")
    return found, charsmap, collapses


def _decoded(value: Any, path: Path) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if value else None
    except (TypeError, ValueError, binascii.Error):
        raise CheckpointError(f"{path}: precompiled_charsmap must be base64 text, got {str(value)[:80]}") from None


def _prefix_space(splitter: Any, path: Path, *, collapses: bool) -> bool:
    """Whether words begin with ``▁``."""
    listed = splitter.get("pretokenizers") if isinstance(splitter, dict) else None
    steps = listed if isinstance(listed, list) else [splitter]
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    # Without splitting at white space first, several blanks in a row would be tokens.
    if kinds != ["WhitespaceSplit", "Metaspace"] and not (kinds == ["Metaspace"] and collapses):
        raise CheckpointError(
            f"{path}: the pre_tokenizer must be WhitespaceSplit and Metaspace, got {str(splitter)[:200]}"
        )
    metaspace = steps[-1]
    scheme = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space", True) else "never")
    if metaspace.get("replacement", "▁") != "▁" or scheme not in ("always", "never") or metaspace.get("split") is False:
        raise CheckpointError(f"{path}: Metaspace must begin every word, or none, with '▁', got {str(metaspace)[:200]}")
    return bool(scheme == "always")


def write_unigram_tokenizer(
    folder: Path, vocabulary: UnigramVocabulary, engine: Tokenizer, settings: Mapping[str, Any], model_file: str
) -> tuple[str, ...]:
    """Write the files that every tokenizer has, and the SentencePiece file where the pieces came from one.

    Raises:
        CheckpointError: ``folder`` is a file.
        ResourceError: disk full, no permission.
    """
    contents = {} if vocabulary.model is None else {model_file: vocabulary.model}
    own = {"add_prefix_space": vocabulary.add_prefix_space}
    return write_tokenizer_files(folder, vocabulary, engine, {**own, **settings}, contents)
