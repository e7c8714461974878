"""A small corpus, tokenizers of every family with a few hundred tokens, and small masked-LM models for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from bertkit import BertConfig, BertForMaskedLM
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.tokenization import (
    BertTokenizer,
    DistilBertTokenizer,
    ElectraTokenizer,
    MPNetTokenizer,
    PreTrainedTokenizer,
)
from tokenizer_families import ENCODERS, model_type, small
from tokenizer_helpers import vocab_file

#: Every family whose tokenizer can make examples with masked words.
MASKED = (*ENCODERS, "distilbert", "electra")
#: Those in whose ids the blank before a word counts.
BLANKS = ("roberta", "modernbert")
WORD_PIECES: dict[str, type[BertTokenizer]] = {
    "bert": BertTokenizer,
    "distilbert": DistilBertTokenizer,
    "electra": ElectraTokenizer,
    "mpnet": MPNetTokenizer,
}
#: Documents of sentences; some of them with a single sentence, with signs, with other scripts.
DOCUMENTS = [
    ["The old mill stands by the river.", "Nobody has worked there for years; its wheel (of oak) is broken!"],
    ["Her brother's co-operative sold 1,250 barrels in 1904."],
    ["Über die Brücke fährt naïve Verwandtschaft.", "Русские слова тоже.", "What a strange, quiet afternoon it was."],
    ["The river froze.", "Children walked to the mill over the ice, and their mothers worried."],
]
#: Values of the config that are too large for such models, or not BERT's.
OWN_VALUES: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 12},
    "electra": {"embedding_size": 12},
    "modernbert": {"local_attention": 8},
    "mmbert": {"local_attention": 8},
    "deberta-v2": {"position_buckets": 8, "max_relative_positions": 16},
}


def tokenizer_of(family: str, shared: Path, folder: Path) -> PreTrainedTokenizer:
    """A small tokenizer of the family; word pieces are those of BERT without capitals."""
    if family not in WORD_PIECES:
        return small(family, shared, folder)
    lines = vocab_file(shared, "uncased").read_text(encoding="utf-8").split("\n")
    endings = [line for line in lines if line.startswith("##") and len(line) == 3 and line.isascii()]
    words = [*lines[999:1063], *lines[1996:2300], *endings]
    first, last = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], []
    if family == "mpnet":
        first, last = ["<s>", "<pad>", "</s>", "[UNK]"], ["<mask>"]
    tokens = dict.fromkeys([*first, *words, *last])
    made: PreTrainedTokenizer = WORD_PIECES[family]({token: number for number, token in enumerate(tokens)})
    return made


def oracle(tokenizer: PreTrainedTokenizer, folder: Path) -> Tokenizer:
    """The ``tokenizers`` package with the file that is written for everyone."""
    tokenizer.save_pretrained(folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def write_corpus(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n", encoding="utf-8")
    return path


def store_of(tokenizer: PreTrainedTokenizer, folder: Path, documents: list[list[str]] = DOCUMENTS) -> TokenStore:
    """The documents as a token store, a line as a sentence."""
    folder.mkdir(exist_ok=True, parents=True)
    prepare(write_corpus(folder / "corpus.txt", documents), tokenizer, folder / "store", sentences="line", workers=1)
    return TokenStore(folder / "store")


def checkpoint(family: str, tokenizer: PreTrainedTokenizer, folder: Path) -> Path:
    """A small random masked-LM model of the family, with its tokenizer."""
    config = BertConfig(
        model_type=model_type(family), vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=68, pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.2,
        **OWN_VALUES.get(family, {}),
    )  # fmt: skip
    torch.manual_seed(1)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
