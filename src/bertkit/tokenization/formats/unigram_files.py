"""The files that unigram tokenizers come in.

A SentencePiece ``.model`` file is the original format; ``tokenizer.json`` holds the pieces as the model numbers them.
Where a folder has both, ``tokenizer.json`` alone is read: it is what every published model is used with, and a model
file of 250,000 pieces takes a second to read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.backend import unigram_steps
from bertkit.tokenization.formats.sentencepiece import SentencePieceModel, parse_sentencepiece
from bertkit.tokenization.formats.tokenizer_files import read_bytes
from bertkit.tokenization.formats.tokenizer_folder import BEGIN_AND_END, Kind
from bertkit.tokenization.formats.tokenizer_json import TokenizerJson
from bertkit.tokenization.templates import Template

#: Replaces several blanks by one.
_BLANKS = {"Regex": " {2,}"}

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


def unigram_kind(name: str, model_file: str, number: Numbering, template: Template, *, accents: bool) -> Kind:
    """How the tokenizer of a family lies in files.

    Args:
        name: of its class.
        model_file: name of its SentencePiece file.
        number: gives the pieces of such a file as the family numbers them.
        template: where its special tokens stand.
        accents: whether it may lower-case, drop accents and replace quotes, as ALBERT's does.
    """
    return Kind(
        name,
        frozenset({name}),
        model="Unigram",
        from_json=partial(_from_json, accents=accents),
        originals={model_file: partial(read_model, number=number)},
        template=template,
        flags=("do_lower_case", "keep_accents", "add_prefix_space") if accents else ("add_prefix_space",),
        required={"remove_space": True, "sp_model_kwargs": {}} if accents else {"sp_model_kwargs": {}},
        aliases=BEGIN_AND_END,
        json_alone=True,
    )


def _from_json(file: TokenizerJson, *, accents: bool) -> dict[str, Any]:
    """The arguments of a unigram tokenizer's class in a file; see :func:`unigram_kind`."""
    file.require_unset("byte_fallback")
    normalizer = file.content.get("normalizer")
    listed = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else [normalizer]
    steps = [step for step in listed if isinstance(step, dict)] if isinstance(listed, list) else []
    collapses = any(step.get("pattern") == _BLANKS and step.get("content") in (" ", "▁") for step in steps)
    # White space at the ends makes no difference: words are split at white space anyway.
    steps = [step for step in steps if step.get("type") != "Strip" and step.get("pattern") != _BLANKS]
    charsmap = None
    if steps and steps[-1].get("type") == "Precompiled":
        charsmap = _decoded(steps.pop().get("precompiled_charsmap"), file.path)
    lower, keeps = {"type": "Lowercase"} in steps, {"type": "NFKD"} not in steps
    computed = unigram_steps(replace_quotes=True, keep_accents=keeps, lower_case=lower) if accents else []
    if steps != [json.loads(step.__getstate__()) for step in computed]:
        said = f"normalizes text with {str(normalizer)[:300]}, which is not what {file.reader} does"
        raise CheckpointError(f"{file.path} {said}")
    flags = {"do_lower_case": lower, "keep_accents": keeps} if accents else {}
    splitters: list[tuple[pre_tokenizers.PreTokenizer, bool]] = []
    for scheme in ("always", "never"):
        splitter = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
        whole = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), splitter])
        # Without splitting at white space, several blanks in a row would be tokens, unless they were made one before.
        splitters += [(each, scheme == "always") for each in (whole, splitter)[: 1 + collapses]]
    wanted = "be WhitespaceSplit and Metaspace, with '▁' before every word or before none"
    adds = file.part("pre_tokenizer", wanted, splitters)
    pieces, unknown = file.pieces()
    return {"vocab": pieces, "unk_token": unknown, "precompiled_charsmap": charsmap, "add_prefix_space": adds, **flags}


def _decoded(value: Json, path: Path) -> bytes | None:
    try:
        charsmap = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        charsmap = None
    if charsmap is None:
        raise CheckpointError(f"{path}: precompiled_charsmap must be base64 text, got {str(value)[:80]}")
    return charsmap or None
