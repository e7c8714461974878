"""``create_pretraining_data.py`` of google-research/bert: text files to pre-training examples, and these to TFRecords.

The algorithm is that of :mod:`bertkit.data.examples.original_instances`. Deviations: whole-word masking is an argument,
not a global flag; text that is not UTF-8 and a missing file are errors that say where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from bertkit.data.examples.original_instances import (
    InstanceSettings,
    MaskedLmInstance,
    Sentence,
    TokenizedDocument,
    TrainingInstance,
    create_masked_lm_predictions,
    document_instances,
    instances_from_documents,
    truncate_seq_pair,
)
from bertkit.errors import DataError

__all__ = [
    "MaskedLmInstance",
    "TrainingInstance",
    "create_instances_from_document",
    "create_masked_lm_predictions",
    "create_training_instances",
    "truncate_seq_pair",
]


class Tokenizer(Protocol):
    """What is needed of a tokenizer; both ``FullTokenizer`` and ``BertTokenizer`` fit."""

    @property
    def vocab(self) -> Mapping[str, int]:
        """Token to id, in the order of the vocabulary file."""
        ...

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of a text, without special tokens."""
        ...


def create_training_instances(
    input_files: Iterable[str | Path],
    tokenizer: Tokenizer,
    max_seq_length: int,
    dupe_factor: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    rng: Random,
    *,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """Text files to shuffled examples; for the settings see :class:`InstanceSettings`.

    Files are UTF-8, one sentence a line, with a blank line between documents; the end of a file does not end a
    document, as in the original. Random tokens are drawn from the tokenizer's vocabulary.

    Raises:
        ConfigError: a setting out of bounds.
        DataError: a file is missing or not UTF-8, or none has any text.
    """
    settings = InstanceSettings(
        max_seq_length=max_seq_length,
        dupe_factor=dupe_factor,
        short_seq_prob=short_seq_prob,
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        do_whole_word_mask=do_whole_word_mask,
    )
    all_documents = _read_documents([Path(file) for file in input_files], tokenizer)
    instances = list(instances_from_documents(all_documents, list(tokenizer.vocab), settings, rng))
    rng.shuffle(instances)
    return instances


def create_instances_from_document(
    all_documents: Sequence[TokenizedDocument],
    document_index: int,
    max_seq_length: int,
    short_seq_prob: float,
    masked_lm_prob: float,
    max_predictions_per_seq: int,
    vocab_words: Sequence[str],
    rng: Random,
    *,
    do_whole_word_mask: bool = False,
) -> list[TrainingInstance]:
    """The examples of one document; for the settings see :class:`InstanceSettings`.

    Raises:
        ConfigError: a setting out of bounds.
    """
    settings = InstanceSettings(
        max_seq_length=max_seq_length,
        short_seq_prob=short_seq_prob,
        masked_lm_prob=masked_lm_prob,
        max_predictions_per_seq=max_predictions_per_seq,
        do_whole_word_mask=do_whole_word_mask,
    )
    return document_instances(all_documents, document_index, vocab_words, settings, rng)


def _read_documents(files: Sequence[Path], tokenizer: Tokenizer) -> list[TokenizedDocument]:
    """All documents that have a token."""
    documents: list[list[Sentence]] = [[]]
    for file in files:
        for line in _lines(file):
            if not line:
                documents.append([])
            elif tokens := tokenizer.tokenize(line):
                documents[-1].append(tokens)
    found: list[TokenizedDocument] = [document for document in documents if document]
    if not found:
        named = ", ".join(map(str, files)) or "no input file was given"
        raise DataError(f"there is no text to make examples from: {named}")
    return found


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file without white space at their ends."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield line.decode("utf-8").strip()
                except UnicodeDecodeError as error:
                    raise DataError(
                        f"{file}:{number}: not UTF-8 (byte {line[error.start]:#04x} at {error.start}); convert it, for "
                        "example with: iconv -f latin1 -t utf-8"
                    ) from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from None
