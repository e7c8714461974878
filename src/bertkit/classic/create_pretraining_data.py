"""``create_pretraining_data.py`` of google-research/bert: text files to pre-training examples, and these to TFRecords.

The algorithm is that of :mod:`bertkit.data.examples.original_instances`. Deviations: whole-word masking is an argument,
not a global flag; text that is not UTF-8 and a missing file are errors that say where.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from bertkit.checkpoints.tensorflow.crc import crc32c, masked
from bertkit.classic import run_classifier
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
from bertkit.errors import ConfigError, DataError
from bertkit.system.atomic_files import write_atomically

__all__ = [
    "MaskedLmInstance",
    "TrainingInstance",
    "create_float_feature",
    "create_instances_from_document",
    "create_int_feature",
    "create_masked_lm_predictions",
    "create_training_instances",
    "truncate_seq_pair",
    "write_instance_to_example_files",
]


class Tokenizer(run_classifier.Tokenizer, Protocol):
    """What a tokenizer must have; both ``FullTokenizer`` and ``BertTokenizer`` fit."""

    @property
    def vocab(self) -> Mapping[str, int]:
        """Token to id, in the order of the vocabulary file."""
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

    Files are UTF-8, one sentence per line, with a blank line between documents; the end of a file does not end a
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


def write_instance_to_example_files(
    instances: Sequence[TrainingInstance],
    tokenizer: Tokenizer,
    max_seq_length: int,
    max_predictions_per_seq: int,
    output_files: Sequence[str | Path],
) -> None:
    """Write examples as TFRecord files of ``tf.train.Example``, by turns to each file, as the original does.

    Every example is padded: ``input_ids``, ``input_mask`` and ``segment_ids`` to ``max_seq_length``;
    ``masked_lm_positions``, ``masked_lm_ids`` and ``masked_lm_weights`` to ``max_predictions_per_seq``.

    Raises:
        ConfigError: no file, or an example that is longer.
        ResourceError: a file cannot be written.
    """
    if not output_files:
        raise ConfigError("write_instance_to_example_files needs at least one output file")
    records: list[list[bytes]] = [[] for _ in output_files]
    for number, instance in enumerate(instances):
        record = _example(instance, tokenizer, max_seq_length, max_predictions_per_seq)
        records[number % len(records)].append(record)
    for file, own in zip(output_files, records, strict=True):
        # Each record of a TFRecord file is its length and its bytes, each followed by a masked CRC-32C.
        parts = (part for record in own for part in (struct.pack("<Q", len(record)), record))
        write_atomically(Path(file), b"".join(part + struct.pack("<I", masked(crc32c(part))) for part in parts))


def create_int_feature(values: Iterable[int]) -> bytes:
    """``tf.train.Feature(int64_list=...)``, serialized."""
    packed = b"".join(_varint(int(value) % 2**64) for value in values)
    return _field(3, _field(1, packed))


def create_float_feature(values: Iterable[float]) -> bytes:
    """``tf.train.Feature(float_list=...)``, serialized."""
    numbers = [float(value) for value in values]
    return _field(2, _field(1, struct.pack(f"<{len(numbers)}f", *numbers)))


def _example(
    instance: TrainingInstance, tokenizer: Tokenizer, max_seq_length: int, max_predictions_per_seq: int
) -> bytes:
    ids, places = tokenizer.convert_tokens_to_ids(instance.tokens), instance.masked_lm_positions
    padding, unused = max_seq_length - len(ids), max_predictions_per_seq - len(places)
    if padding < 0 or unused < 0:
        raise ConfigError(
            f"an example has {len(ids)} tokens and {len(places)} predictions, but max_seq_length={max_seq_length} and "
            f"max_predictions_per_seq={max_predictions_per_seq}"
        )
    labels = tokenizer.convert_tokens_to_ids(instance.masked_lm_labels)
    features = {
        "input_ids": create_int_feature(ids + [0] * padding),
        "input_mask": create_int_feature([1] * len(ids) + [0] * padding),
        "segment_ids": create_int_feature(instance.segment_ids + [0] * padding),
        "masked_lm_positions": create_int_feature(places + [0] * unused),
        "masked_lm_ids": create_int_feature(labels + [0] * unused),
        "masked_lm_weights": create_float_feature([1.0] * len(places) + [0.0] * unused),
        "next_sentence_labels": create_int_feature([int(instance.is_random_next)]),
    }
    entries = (_field(1, name.encode()) + _field(2, feature) for name, feature in features.items())
    return _field(1, b"".join(_field(1, entry) for entry in entries))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_documents(files: Sequence[Path], tokenizer: Tokenizer) -> list[TokenizedDocument]:
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
        raise DataError(f"there is no text to create examples from: {named}")
    return found


def _lines(file: Path) -> Iterator[str]:
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
