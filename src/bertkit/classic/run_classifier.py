"""``run_classifier.py`` of google-research/bert: examples, features of fixed length, and the readers of data sets.

For new code, :mod:`bertkit.tasks` reads more tasks, reports bad rows with their line, and pads nothing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from bertkit.errors import DataError, InputError, did_you_mean, shorten
from bertkit.tasks.examples import Split
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import COMPRESSIONS, Lines
from bertkit.tasks.text.glue import COLA, MRPC
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.task import TextTask

__all__ = [
    "ColaProcessor",
    "DataProcessor",
    "InputExample",
    "InputFeatures",
    "MrpcProcessor",
    "convert_examples_to_features",
    "convert_single_example",
]


class Tokenizer(Protocol):
    """What a tokenizer must have; both ``FullTokenizer`` and ``BertTokenizer`` fit."""

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of a text, without special tokens."""

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        """Their ids."""


@dataclass
class InputExample:
    """One text, or pair of texts, with its label.

    guid: name of the example.
    text_a, text_b: ``text_b`` is None, or has no word piece, for one text.
    label: as in the data set; None in a test set without labels.
    """

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | None = None


@dataclass
class InputFeatures:
    """An example padded to a fixed length; every list has ``max_seq_length`` numbers.

    input_ids: ``[CLS] A [SEP]`` or ``[CLS] A [SEP] B [SEP]``, then 0.
    input_mask: 1 at these tokens, then 0.
    segment_ids: 1 in B and its [SEP], else 0.
    label_id: number of the label among the task's labels; 0 where there is none.
    is_real_example: False for padding of a batch.
    """

    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]
    label_id: int
    is_real_example: bool = True


class DataProcessor:
    """Base class of data set readers; subclasses have the four methods and may use :meth:`_read_tsv`."""

    def get_train_examples(self, data_dir: str | Path) -> list[InputExample]:
        """Examples to train on."""
        raise NotImplementedError

    def get_dev_examples(self, data_dir: str | Path) -> list[InputExample]:
        """Examples to choose by."""
        raise NotImplementedError

    def get_test_examples(self, data_dir: str | Path) -> list[InputExample]:
        """Examples to predict."""
        raise NotImplementedError

    def get_labels(self) -> list[str]:
        """The labels, in the order of their numbers."""
        raise NotImplementedError

    @classmethod
    def _read_tsv(cls, input_file: str | Path, quotechar: str | None = None) -> list[list[str]]:
        """The rows of a tab-separated file, the header among them, each as the list of its fields.

        Args:
            input_file: UTF-8, with or without a byte order mark; if it does not exist, the same name with ``.xz``,
                ``.gz`` or ``.bz2``.
            quotechar: None: quotes are text, as in GLUE's files.

        Raises:
            DataError: no such file, or bytes that are not UTF-8; names the line.
        """
        lines = Lines(_packed_or_not(Path(input_file)), BadRows(), "utf-8")
        if quotechar is not None:
            return [row for row in csv.reader(lines, delimiter="\t", quotechar=quotechar) if row]
        return [text.split("\t") for line in lines if (text := line.rstrip("\r\n"))]


class _GlueProcessor(DataProcessor):
    task: ClassVar[TextTask]

    def get_train_examples(self, data_dir: str | Path) -> list[InputExample]:
        return self._examples(data_dir, "train")

    def get_dev_examples(self, data_dir: str | Path) -> list[InputExample]:
        return self._examples(data_dir, "dev")

    def get_test_examples(self, data_dir: str | Path) -> list[InputExample]:
        return self._examples(data_dir, "test")

    def get_labels(self) -> list[str]:
        return list(self.task.raw_labels)

    def _examples(self, data_dir: str | Path, split: Split) -> list[InputExample]:
        labels = self.get_labels()
        return [
            InputExample(
                guid=f"{split}-{example.row - 1}",  # the original counts rows from 0, the header among them
                text_a=example.text,
                text_b=example.text_pair,
                label=labels[example.label if isinstance(example.label, int) and split != "test" else 0],
            )
            for example in load_split(self.task, data_dir, split)
        ]


class MrpcProcessor(_GlueProcessor):
    """Do two sentences mean the same? In a test set every label is "0", as in the original."""

    task = MRPC


class ColaProcessor(_GlueProcessor):
    """Is a sentence acceptable English? In a test set every label is "0", as in the original."""

    task = COLA


def convert_single_example(
    ex_index: int, example: InputExample, label_list: Sequence[str], max_seq_length: int, tokenizer: Tokenizer
) -> InputFeatures:
    """An example as ids, truncated and padded to ``max_seq_length``.

    A pair that is too long loses tokens one by one at the end of the longer text (of B if both have the same length).

    Args:
        ex_index: for messages.
        example: what to convert.
        label_list: the labels, by number.
        max_seq_length: tokens of the result, special tokens included.
        tokenizer: splits texts into word pieces.

    Raises:
        DataError: a label that is not in ``label_list``.
        InputError: ``max_seq_length`` leaves no room for a token of each text.
    """
    pieces_a = tokenizer.tokenize(example.text_a)
    pieces_b = tokenizer.tokenize(example.text_b) if example.text_b else []
    num_special = 3 if pieces_b else 2
    if max_seq_length <= num_special + bool(pieces_b):
        raise InputError(f"max_seq_length={max_seq_length} leaves no room beside the {num_special} special tokens")
    while len(pieces_a) + len(pieces_b) > max_seq_length - num_special:
        (pieces_a if len(pieces_a) > len(pieces_b) else pieces_b).pop()
    tokens = ["[CLS]", *pieces_a, "[SEP]"]
    segment_ids = [0] * len(tokens)
    if pieces_b:
        tokens += [*pieces_b, "[SEP]"]
        segment_ids += [1] * (len(pieces_b) + 1)
    if example.label is not None and example.label not in label_list:
        raise DataError(
            f"example {ex_index} ({example.guid}): label {example.label!r} is not one of {shorten(label_list)}"
            f"{did_you_mean(example.label, label_list)}"
        )
    padding = [0] * (max_seq_length - len(tokens))
    return InputFeatures(
        input_ids=tokenizer.convert_tokens_to_ids(tokens) + padding,
        input_mask=[1] * len(tokens) + padding,
        segment_ids=segment_ids + padding,
        label_id=0 if example.label is None else list(label_list).index(example.label),
    )


def convert_examples_to_features(
    examples: Sequence[InputExample], label_list: Sequence[str], max_seq_length: int, tokenizer: Tokenizer
) -> list[InputFeatures]:
    """:func:`convert_single_example` of each."""
    return [
        convert_single_example(number, example, label_list, max_seq_length, tokenizer)
        for number, example in enumerate(examples)
    ]


def _packed_or_not(path: Path) -> Path:
    for suffix in ("", *COMPRESSIONS):
        packed = path.with_name(path.name + suffix)
        if packed.is_file():
            return packed
    near = sorted(entry.name for entry in path.parent.iterdir()) if path.parent.is_dir() else []
    beside = f"; {path.parent}{os.sep} has {shorten(near, limit=8)}" if near else ""
    raise DataError(f"{path} does not exist{beside}")
