"""Small corpora that BART and T5 can learn to restore, whose best loss without the source is known."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

import bertkit
from bertkit.config.any_config import AnyConfig
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.model.seq2seq.seq2seq_layers import CrossAttention
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining.initial_model import with_vocabulary
from bertkit.training.pretraining.pretrain_settings import PretrainConfig

WORDS = "ash bay cod dew elm fig gem hay ivy jam kit log map nut oak pea".split()
FAMILIES = ("t5", "bart", "mbart")
OBJECTIVES = {"t5": "span-corruption", "bart": "text-infilling", "mbart": "text-infilling"}
#: The text is one sentence, as long as an example. T5's has two words in turn: the last two tokens are removed, which
#: without the source are any two. BART's has six words in the order of the alphabet.
LENGTHS = {"t5": 16, "bart": 8, "mbart": 8}
#: The loss that no model gets below that does not read the source, in nats a target.
BLIND = {"t5": math.log(16 * 15) / 4, "bart": math.log(math.comb(16, 6)) / 8, "mbart": math.log(math.comb(16, 6)) / 8}
SETTINGS = PretrainConfig(batch_size=32, max_steps=6, learning_rate=1e-2, warmup=0.1, dev_examples=32, curve=False)

Stores = tuple[TokenStore, TokenStore]


def settings(family: str, **changes: Any) -> PretrainConfig:
    return SETTINGS.replace(**{"max_seq_length": LENGTHS[family], **changes})


def tokenizer(folder: Path) -> BertTokenizer:
    """Whole words, a mask, and sentinels."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"<extra_id_{number}>" for number in range(8))]
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    return BertTokenizer(folder / "vocab.txt")


def make_stores(family: str, folder: Path, size: int = 120) -> Stores:
    """So many texts to train on, and a quarter of that held out."""
    made = []
    for name, count in (("train", size), ("dev", size // 4)):
        chance = random.Random(f"{family} {name}")
        rows = [
            chance.sample(WORDS, 2) * 7 if family == "t5" else sorted(chance.sample(WORDS, 6)) for _ in range(count)
        ]
        (folder / f"{name}.txt").write_text("\n\n".join(map(" ".join, rows)) + "\n")
        prepare(folder / f"{name}.txt", tokenizer(folder), folder / name, sentences="line", workers=1)
        made.append(TokenStore(folder / name))
    return made[0], made[1]


def shape_of(family: str, store: TokenStore, **changes: Any) -> AnyConfig:
    """One layer each, for the vocabulary of the store."""
    if family == "t5":
        made: AnyConfig = bertkit.T5Config(d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
    else:
        sizes = {"layers": 1, "ffn_dim": 64, "attention_heads": 4}
        halves = {f"{half}_{name}": size for half in ("encoder", "decoder") for name, size in sizes.items()}
        made = bertkit.BartConfig(model_type=family, d_model=32, max_position_embeddings=32, **halves)
    return with_vocabulary(made.replace(**changes), store)


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no decoder sees what the encoder read."""
    right = CrossAttention.forward
    monkeypatch.setattr(CrossAttention, "forward", lambda self, *given, **more: 0 * right(self, *given, **more))
