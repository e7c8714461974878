"""The vocabulary beside the weights: how many tokens it has, and whether the embedding table has a row for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.formats.tokenizer_files import count_lines, read_bytes, read_json, read_json_if_there

#: Whole numbers behind a colon, and pieces with scores, in a ``tokenizer.json``: no token has a larger id.
_NUMBER, _SCORED = re.compile(rb":\s*(\d{1,12})"), re.compile(rb'\[\s*"(?:[^"\\]|\\.)*"\s*,\s*-?\d')
_VOCAB = re.compile(rb'"vocab"\s*:\s*[\[{]')


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary file: the highest id plus one, and the content of ``tokenizer_config.json`` (empty without one)."""

    file: Path
    size: int
    settings: Mapping[str, Json]


def find_vocabulary(folder: Path) -> Vocabulary | None:
    """Count the tokens in the ``vocab.txt`` of a folder, or in its ``tokenizer.json``; None without either."""
    settings = read_json_if_there(folder / "tokenizer_config.json")
    for file, count in ((folder / "vocab.txt", count_lines), (folder / "tokenizer.json", _highest_id)):
        if file.exists():
            return Vocabulary(file, count(file), settings)
    return None


def check_vocabulary(folder: Path, config: BertConfig) -> None:
    """Refuse a vocabulary with ids that have no row in the embedding table."""
    file = folder / "tokenizer.json"
    if not (folder / "vocab.txt").exists() and file.exists() and _bound(file) <= config.vocab_size:
        return
    found = find_vocabulary(folder)
    if found is not None and found.size > config.vocab_size:
        raise CheckpointError(
            f"{found.file} has {found.size:,} word pieces, but the embedding table has only {config.vocab_size:,} rows "
            "(vocab_size in config.json): the tokenizer belongs to another model"
        )


def _bound(file: Path) -> float:
    """A number that no id in a ``tokenizer.json`` reaches, found without parsing it: that takes five times as long."""
    text = read_bytes(file)
    if not _VOCAB.search(text):
        return float("inf")
    return max(max(map(int, _NUMBER.findall(text)), default=0) + 1, sum(1 for _ in _SCORED.finditer(text)))


def _highest_id(file: Path) -> int:
    """The highest id in a ``tokenizer.json``, plus one."""
    content: Any = read_json(file)
    try:
        vocab = content["model"]["vocab"]  # of unigram models a list, in the order of the ids
        ids = range(len(vocab)) if isinstance(vocab, list) else vocab.values()
        return int(max([*ids, *(added["id"] for added in content.get("added_tokens") or ())])) + 1
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file} has no vocabulary of word pieces (model.vocab)") from None
