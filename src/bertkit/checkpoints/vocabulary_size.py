"""What lies beside the weights for the tokenizer: how many word pieces, and do they fit the embedding table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import MAX_VOCABULARY_BYTES, MAX_VOCABULARY_VALUES, read_regular, strict_json


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary file, unread but counted.

    size: word pieces: the highest id plus one.
    settings: what ``tokenizer_config.json`` says, where there is one.
    """

    file: Path
    size: int
    settings: dict[str, Any]


def find_vocabulary(folder: Path) -> Vocabulary | None:
    """Count the ``vocab.txt`` of a folder, or the ``tokenizer.json`` where there is no such file.

    Raises:
        CheckpointError: a file that cannot be read, or a ``tokenizer.json`` without word pieces.
    """
    settings = _settings(folder / "tokenizer_config.json")
    for file, count in ((folder / "vocab.txt", _count_lines), (folder / "tokenizer.json", _count_pieces)):
        if file.exists():
            return Vocabulary(file, count(file), settings)
    return None


def check_vocabulary(folder: Path, config: BertConfig) -> None:
    """Refuse a vocabulary whose last word pieces have no row in the embedding table.

    Raises:
        CheckpointError: more word pieces than ``config.vocab_size``; names both counts.
    """
    found = find_vocabulary(folder)
    if found is not None and found.size > config.vocab_size:
        raise CheckpointError(
            f"{found.file} has {found.size:,} word pieces, the embedding table of the model {config.vocab_size:,} "
            "(vocab_size in config.json): the tokenizer belongs to another model"
        )


def _count_lines(file: Path) -> int:
    """Lines of a text file; a last line without its end counts."""
    text = read_regular(file, max_bytes=MAX_VOCABULARY_BYTES)
    return text.count(b"\n") + (text[-1:] not in (b"", b"\n"))


def _count_pieces(file: Path) -> int:
    content = _read_json(file)
    try:
        vocab = content["model"]["vocab"]  # a list where the number of a piece is its place, as in unigram models
        ids = range(len(vocab)) if isinstance(vocab, list) else vocab.values()
        return int(max([*ids, *(added["id"] for added in content.get("added_tokens") or ())])) + 1
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file} has no vocabulary of word pieces (model.vocab)") from None


def _settings(file: Path) -> dict[str, Any]:
    content = _read_json(file) if file.exists() else {}
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} holds a {type(content).__name__}, expected an object of settings")
    return content


def _read_json(file: Path) -> Any:
    text = read_regular(file, max_bytes=MAX_VOCABULARY_BYTES)
    try:
        return strict_json(text, max_values=MAX_VOCABULARY_VALUES)
    except ValueError as error:
        raise CheckpointError(f"{file} is not a readable JSON file: {error}") from None
