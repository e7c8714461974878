"""A tiny model with a vocabulary of whole words, and data that it can learn, for the tests of fine-tuning runs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit.config.bert_config import BertConfig
from bertkit.errors import MissingExtraError
from bertkit.model.models import BertModel
from bertkit.tokenization import BertTokenizer
from bertkit.visualize import figures

GOOD = ["good", "fine", "great", "lovely"]
BAD = ["bad", "poor", "awful", "sad"]
OTHER = ["the", "a", "film", "book", "day", "was", "is", "it", "very", "and"]
QUICK = {"learning_rate": 3e-3, "epochs": 2, "precision": "fp32", "batch_size": 16, "max_length": 24, "baseline": False}


def tiny_start(folder: Path, *, width: int = 16) -> Path:
    """A random BERT of one layer and its tokenizer."""
    return start_with_words([*GOOD, *BAD, *OTHER], folder, width=width, layers=1, heads=2)


def start_with_words(words: list[str], folder: Path, *, width: int, layers: int, heads: int) -> Path:
    """A random BERT and a tokenizer of these words."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    BertTokenizer(vocab_file=folder / "words.txt", model_max_length=32).save_pretrained(folder)
    (folder / "words.txt").unlink()
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(words),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=2 * width,
        max_position_embeddings=32,
    )
    BertModel(shape).save_pretrained(folder)
    return folder


def labelled_texts(num_rows: int, seed: int) -> list[tuple[str, int]]:
    """Texts with two words of their label."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(num_rows):
        label = int(generator.integers(2))
        words = [*generator.choice(OTHER, generator.integers(2, 8)), *generator.choice([BAD, GOOD][label], 2)]
        generator.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_table(path: Path, columns: tuple[str, ...], rows: list[tuple[Any, ...]], *, delimiter: str = "\t") -> Path:
    """A TSV or CSV file with a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, quoting=quoting).writerows([columns, *rows])
    return path


def write_splits(folder: Path, train: list[tuple[str, int]], dev: list[tuple[str, int]]) -> Path:
    """A folder with ``train.csv`` and ``dev.csv``, columns ``text`` and ``label``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("dev", dev)):
        write_table(folder / f"{name}.csv", ("text", "label"), rows, delimiter=",")
    return folder


def write_heads_data(folder: Path) -> None:
    """Folders ``ner``, ``squad`` and ``swag`` with a few rows each."""
    for name in ("ner", "squad", "swag"):
        (folder / name).mkdir()
    context = "the film, a fine play"
    answers = [{"text": "fine", "answer_start": 12}]
    for split in ("train", "dev"):
        words = "\n\n".join("the O\nfilm B-MISC\nfine O" for _ in range(12))
        (folder / "ner" / f"{split}.txt").write_text(words + "\n")
        questions = [{"id": f"{split}{n}", "question": "the play", "answers": answers} for n in range(8)]
        paragraphs = [{"context": context, "qas": questions}]
        whole = {"version": "1.1", "data": [{"title": "play", "paragraphs": paragraphs}]}
        (folder / "squad" / f"{split}.json").write_text(json.dumps(whole))
        rows = "".join(f"the film,a,fine,poor book,{n % 2}\n" for n in range(8))
        (folder / "swag" / f"{split}.csv").write_text("sent1,sent2,ending0,ending1,label\n" + rows)


@contextmanager
def no_pictures() -> Iterator[None]:
    """Runs as where matplotlib is missing, for tests of something else: drawing takes longer than training."""

    def missing(*args: object, **options: object) -> None:
        raise MissingExtraError("drawing pictures needs 'matplotlib'")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "require", missing)
        yield


_REQUIRE = figures.require


@contextmanager
def drawn() -> Iterator[None]:
    """Pictures after all, within :func:`no_pictures`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "require", _REQUIRE)
        yield
