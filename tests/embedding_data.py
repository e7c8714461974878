"""Topics whose words a tiny encoder has to learn to keep together: no word of an anchor stands in its positive."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import torch

from bertkit.config.bert_config import BertConfig
from bertkit.config.sentence_config import Normalize, SentenceConfig
from bertkit.model.models import BertModel
from bertkit.model.sentence_model import SentenceModel
from bertkit.tokenization import BertTokenizer

TOPICS = 16
#: The first five words of a topic stand in anchors, the others in what they are compared with.
WORDS = [[f"{chr(97 + topic)}{letter}" for letter in "qrstuvwxyz"] for topic in range(TOPICS)]
Row = dict[str, Any]


def untrained(folder: Path, *, dropout: float = 0.1, sentence: bool = True) -> Path:
    """A BERT of one layer with a tokenizer of whole words, as a folder of sentence-transformers or as an encoder."""
    folder.mkdir(parents=True)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "find", "text", *(word for words in WORDS for word in words)]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    tokenizer = BertTokenizer(folder / "vocab.txt", model_max_length=16)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(names),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    encoder = BertModel(shape, add_pooling_layer=False)
    if sentence:
        config = SentenceConfig(steps=(Normalize(),), prompts={"query": "find ", "document": "text "}, max_length=12)
        SentenceModel(encoder, config).save_pretrained(folder, tokenizer)
    else:
        encoder.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def text_of(topic: int, side: int, chance: random.Random) -> str:
    """Three words of a topic: of its first ones, or with side 1 of its last ones."""
    return " ".join(chance.sample(WORDS[topic][5 * side : 5 * side + 5], 3))


def rows_of(kind: str, count: int, seed: int) -> list[Row]:
    """Rows of pairs, triplets or scored pairs; the first of them are one of each topic, in order."""
    chance, rows = random.Random(seed), []
    for number in range(count):
        topic = number if number < TOPICS else chance.randrange(TOPICS)
        other = (topic + chance.randrange(1, TOPICS)) % TOPICS
        row: Row = {"anchor": text_of(topic, 0, chance), "positive": text_of(topic, 1, chance)}
        if kind == "triplets":
            row["negative"] = text_of(other, 1, chance)
        elif kind == "scored-pairs":
            alike = chance.random() < 0.5
            second = row.pop("positive") if alike else text_of(other, 1, chance)
            row = {"sentence1": row["anchor"], "sentence2": second, "score": chance.uniform(3, 5) if alike else 1.0}
        rows.append(row)
    return rows


def write_rows(path: Path, rows: list[Row]) -> Path:
    """A file by its ending: CSV or JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        if path.suffix == ".jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return path


def write_data(folder: Path, kind: str, *, train: int = 400, dev: int = TOPICS) -> Path:
    """A folder with ``train.csv`` and ``dev.csv``."""
    for name, count, seed in (("train", train, 1), ("dev", dev, 2)):
        write_rows(folder / f"{name}.csv", rows_of(kind, count, seed))
    return folder
