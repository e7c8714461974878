"""The files that BERT's tokenizer comes in.

``vocab.txt`` is the original format: one token a line. ``tokenizer.json`` is the format of the ``tokenizers`` package,
which can hold any tokenizer; only BERT's is accepted here. Where two files contradict each other about a token's
number, that is an error. Truncation and padding stored in a ``tokenizer.json`` are ignored: they are what the last call
before saving asked for, not part of the tokenizer. Settings: see :mod:`bertkit.tokenization.formats.tokenizer_files`.
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
from bertkit.tokenization.ragged import BERT
from bertkit.tokenization.vocabulary import Vocabulary

#: What to fetch from the Hub.
TOKENIZER_FILES = ("vocab.txt", *COMMON_FILES)
WORDPIECE = Kind(
    "BertTokenizer",
    frozenset({"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MobileBertTokenizer", "ConvBertTokenizer"}),
    settings={"do_lower_case": bool, "strip_accents": bool, "tokenize_chinese_chars": bool},
    required={"do_basic_tokenize": True, "never_split": []},
)


def read_vocab(path: Path) -> dict[str, int]:
    """Read a ``vocab.txt``: see :func:`bertkit.tokenization.load_vocab`."""
    lines = read_lines(path)
    if not lines:
        raise CheckpointError(f"{path} is empty; a vocabulary has one token a line")
    vocab: dict[str, int] = {}
    for number, line in enumerate(lines):
        token = line.removesuffix("\r")
        if not token:
            raise CheckpointError(f"{path}:{number + 1} is empty; a vocabulary has one token a line")
        if vocab.setdefault(token, number) != number:
            raise CheckpointError(f"{path}:{number + 1} repeats {token!r}, which line {vocab[token] + 1} has already")
    return vocab


def read_tokenizer(path: Path) -> dict[str, Any]:
    """The arguments of :class:`~bertkit.tokenization.BertTokenizer` that a folder, or one file, describes.

    Raises:
        CheckpointError: nothing to read, a damaged file, files that contradict each other, or another tokenizer.
    """
    folder = path if path.is_dir() else path.parent
    vocab_file = folder / "vocab.txt" if path.is_dir() else path
    json_file = folder / "tokenizer.json" if path.is_dir() else path
    arguments: dict[str, Any] = {}
    if json_file.is_file() and json_file.suffix == ".json":
        arguments = _read_tokenizer_json(json_file)
    if vocab_file.is_file() and vocab_file.suffix != ".json":
        vocab = read_vocab(vocab_file)
        check_same(vocab, arguments.get("vocab", vocab), vocab_file, json_file)
        arguments["vocab"] = vocab
    if "vocab" not in arguments:
        raise CheckpointError(f"{path} has no vocab.txt and no tokenizer.json; it is not a tokenizer's folder")
    arguments["source"] = str(vocab_file if vocab_file.is_file() else json_file)
    if path.is_dir():
        add_settings(arguments, arguments["vocab"], folder, WORDPIECE, has_json=json_file.is_file())
    return arguments


def _read_tokenizer_json(path: Path) -> dict[str, Any]:
    content = read_json(path)
    model = part(content, "model", path)
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else None)
    if kind != "WordPiece":
        raise CheckpointError(f"{path} holds a {kind} model; BertTokenizer reads WordPiece")
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab or not all(type(number) is int for number in vocab.values()):
        raise CheckpointError(f"{path}: model.vocab must be an object of tokens and their whole numbers")
    arguments: dict[str, Any] = {"vocab": vocab}
    for name, key in (("unk_token", "unk_token"), ("prefix", "continuing_subword_prefix")):
        if model.get(key) is not None:
            arguments[name] = typed(model, key, str, path)
    if model.get("max_input_chars_per_word") is not None:
        longest = typed(model, "max_input_chars_per_word", int, path)
        if not 1 <= longest <= 100_000:
            raise CheckpointError(
                f"{path}: max_input_chars_per_word must be from 1 to 100,000, got {str(longest)[:20]}"
            )
        arguments["max_input_chars_per_word"] = longest
    normalizer = part(content, "normalizer", path)
    if normalizer.get("type") != "BertNormalizer" or normalizer.get("clean_text") is False:
        raise CheckpointError(
            f"{path} normalizes text with {json.dumps(normalizer)[:200]}; BertTokenizer reads only a BertNormalizer "
            "with clean_text"
        )
    for name, key in (("do_lower_case", "lowercase"), ("tokenize_chinese_chars", "handle_chinese_chars")):
        arguments[name] = typed(normalizer, key, bool, path)
    if normalizer.get("strip_accents") is not None:
        arguments["strip_accents"] = typed(normalizer, "strip_accents", bool, path)
    if part(content, "pre_tokenizer", path).get("type") != "BertPreTokenizer":
        raise CheckpointError(f"{path}: the pre_tokenizer must be a BertPreTokenizer, got {content['pre_tokenizer']!r}")
    read_template(content.get("post_processor"), BERT, path)
    arguments["added_tokens"] = added_tokens(content, path)
    return arguments


def check_uncased(vocab: Mapping[str, int], path: Path) -> None:
    """A vocabulary with capitals is of a cased model: lower-casing would quietly spoil every result."""
    capital = [token for token in vocab if token != token.lower() and not token.startswith("[")]
    if len(capital) > len(vocab) // 50:
        raise CheckpointError(
            f"{path} does not say whether to lower-case, and its vocabulary has capitals ({capital[0]!r} and "
            f"{len(capital) - 1:,} more): pass do_lower_case=False (or True), or add a tokenizer_config.json"
        )


def write_tokenizer(
    folder: Path, vocabulary: Vocabulary, engine: Tokenizer, settings: Mapping[str, Any]
) -> tuple[str, ...]:
    """Write ``vocab.txt``, ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``.

    Raises:
        CheckpointError: ``folder`` is a file, or a token cannot stand on a line of ``vocab.txt``.
        ResourceError: disk full, no permission.
    """
    tokens = sorted(vocabulary.vocab, key=vocabulary.vocab.__getitem__)
    for number, token in enumerate(tokens):
        if not token or "\n" in token or token.endswith("\r"):
            raise CheckpointError(f"token {number}, {token!r}, cannot stand on a line of vocab.txt")
    own = {
        "do_lower_case": vocabulary.do_lower_case,
        "strip_accents": vocabulary.strip_accents,
        "tokenize_chinese_chars": vocabulary.tokenize_chinese_chars,
    }
    contents = {"vocab.txt": "".join(f"{token}\n" for token in tokens)}
    return write_tokenizer_files(folder, vocabulary, engine, {**own, **settings}, contents)
