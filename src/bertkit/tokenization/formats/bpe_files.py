"""The files that byte-level BPE tokenizers come in.

``vocab.json`` (token to id) and ``merges.txt`` (one pair a line) are the original format; ``tokenizer.json`` holds
both. Where they contradict each other, that is an error. Settings: see
:mod:`bertkit.tokenization.formats.tokenizer_files`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from bertkit.errors import CheckpointError
from bertkit.tokenization.formats.tokenizer_files import (
    COMMON_FILES,
    Kind,
    add_settings,
    added_tokens,
    check_same,
    part,
    read_json,
    read_lines,
    read_template,
    typed,
    write_tokenizer_files,
)
from bertkit.tokenization.ragged import ROBERTA
from bertkit.tokenization.vocabulary import BpeVocabulary

#: What to fetch from the Hub.
BPE_FILES = ("vocab.json", "merges.txt", *COMMON_FILES)
#: Special tokens under a second name.
BEGIN_AND_END = {"bos_token": "cls_token", "eos_token": "sep_token"}
BYTE_LEVEL_BPE = Kind(
    "RobertaTokenizer",
    frozenset({"RobertaTokenizer"}),
    settings={"add_prefix_space": bool, "trim_offsets": bool},
    required={"errors": "replace"},
    aliases=BEGIN_AND_END,
)
#: Settings of the model in a tokenizer.json, and the values that mean the BPE that is computed here.
_PLAIN_BPE: Mapping[str, tuple[Any, ...]] = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (None, False),
    "byte_fallback": (None, False),
    "ignore_merges": (None, False),
}

Merges = tuple[tuple[str, str], ...]


def read_bpe_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.json``.

    Raises:
        CheckpointError: the file is missing, too large, not JSON, or not an object of tokens and whole numbers.
    """
    return _checked_vocab(read_json(path), path)


def _checked_vocab(vocab: Any, path: Path) -> dict[str, int]:
    if not isinstance(vocab, dict) or not vocab or not all(type(number) is int for number in vocab.values()):
        raise CheckpointError(f"{path} must hold an object of tokens and their whole numbers")
    return vocab


def read_merges(path: Path) -> Merges:
    """Read a ``merges.txt``: two tokens a line, the most important pair first. A first line may name the version.

    Raises:
        CheckpointError: the file is missing, too large, not UTF-8, or has a line that is not two tokens; names it.
    """
    lines = read_lines(path)
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines):
        if number == 0 and line.startswith("#version"):
            continue
        pair = line.removesuffix("\r").split(" ")
        if len(pair) != 2 or not all(pair):
            raise CheckpointError(f"{path}:{number + 1} must be two tokens with a blank between them, got {line!r:.80}")
        merges.append((pair[0], pair[1]))
    return tuple(merges)


def read_bpe_tokenizer(path: Path) -> dict[str, Any]:
    """The arguments of :class:`~bertkit.tokenization.RobertaTokenizer` that a folder, or a tokenizer.json, describes.

    Raises:
        CheckpointError: nothing to read, a damaged file, files that contradict each other, or another tokenizer.
    """
    folder = path if path.is_dir() else path.parent
    json_file = folder / "tokenizer.json" if path.is_dir() else path
    vocab_file, merges_file = folder / "vocab.json", folder / "merges.txt"
    arguments: dict[str, Any] = {}
    if json_file.is_file():
        arguments = {"source": str(json_file), **_read_tokenizer_json(json_file)}
    if path.is_dir() and vocab_file.is_file():
        vocab = read_bpe_vocab(vocab_file)
        check_same(vocab, arguments.get("vocab", vocab), vocab_file, json_file)
        arguments |= {"vocab": vocab, "source": str(vocab_file)}
    if path.is_dir() and merges_file.is_file():
        merges = read_merges(merges_file)
        _check_same_merges(merges, arguments.get("merges", merges), merges_file, json_file)
        arguments |= {"merges": merges, "merges_source": str(merges_file)}
    if not {"vocab", "merges"} <= arguments.keys():
        raise CheckpointError(
            f"{path} must have vocab.json and merges.txt, or a tokenizer.json; it is not a byte-level BPE tokenizer's "
            "folder"
        )
    if path.is_dir():
        add_settings(arguments, arguments["vocab"], folder, BYTE_LEVEL_BPE, has_json=json_file.is_file())
    return arguments


def _check_same_merges(merges: Merges, other: Merges, merges_file: Path, json_file: Path) -> None:
    if merges == other:
        return
    at = next((at for at, pair in enumerate(zip(merges, other, strict=False)) if pair[0] != pair[1]), None)
    where = f"merge {min(len(merges), len(other)) if at is None else at:,} is not the same"
    raise CheckpointError(
        f"{merges_file} has {len(merges):,} merges, {json_file} {len(other):,}, and {where}; delete the file that does "
        "not belong to this model"
    )


def _read_tokenizer_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    model = part(content, "model", path)
    kind = model.get("type", "BPE" if "merges" in model else None)
    if kind != "BPE":
        raise CheckpointError(f"{path} holds a {kind} model; RobertaTokenizer reads BPE")
    for key, values in _PLAIN_BPE.items():
        if model.get(key) not in values:
            raise CheckpointError(f"{path}: model.{key} is {model[key]!r}; this tokenizer computes only {values[0]!r}")
    if content.get("normalizer") is not None:
        raise CheckpointError(
            f"{path} normalizes text with {json.dumps(content['normalizer'])[:200]}; byte-level BPE takes it as it is"
        )
    splitter = part(content, "pre_tokenizer", path)
    if splitter.get("type") != "ByteLevel" or splitter.get("use_regex") is False:
        raise CheckpointError(f"{path}: the pre_tokenizer must be ByteLevel, got {str(splitter)[:200]}")
    processor = content.get("post_processor")
    arguments: dict[str, Any] = {
        "vocab": _checked_vocab(model.get("vocab"), path),
        "merges": _merges(model.get("merges"), path),
        "add_prefix_space": typed(splitter, "add_prefix_space", bool, path),
        "added_tokens": added_tokens(content, path),
        **read_template(processor, ROBERTA, path),
    }
    if isinstance(processor, dict) and processor.get("type") == "RobertaProcessing":
        arguments["trim_offsets"] = typed(processor, "trim_offsets", bool, path)
    elif processor is not None:
        arguments["trim_offsets"] = False  # which a template does not do
    return arguments


def _merges(values: Any, path: Path) -> Merges:
    """Merges as pairs, or as the older "a b"."""
    if not isinstance(values, list):
        raise CheckpointError(f"{path}: model.merges must be a list of pairs, got {values!r:.80}")
    pairs = [tuple(each.split(" ")) if isinstance(each, str) else each for each in values]
    for number, pair in enumerate(pairs):
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(isinstance(each, str) for each in pair):
            raise CheckpointError(f"{path}: merge {number:,} must be two tokens, got {pair!r:.80}")
    return tuple((left, right) for left, right in pairs)


def write_bpe_tokenizer(
    folder: Path, vocabulary: BpeVocabulary, engine: Tokenizer, settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """Write ``vocab.json``, ``merges.txt`` and the files that every tokenizer has.

    Raises:
        CheckpointError: ``folder`` is a file.
        ResourceError: disk full, no permission.
    """
    own = {"add_prefix_space": vocabulary.add_prefix_space, "trim_offsets": vocabulary.trim_offsets}
    contents = {
        "vocab.json": json.dumps(vocabulary.vocab, ensure_ascii=False) + "\n",
        "merges.txt": "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in vocabulary.merges),
    }
    return write_tokenizer_files(folder, vocabulary, engine, {**own, **settings}, contents)
