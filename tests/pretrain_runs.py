"""A small corpus with something to learn, and settings under which a run of some seconds learns it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.data.store.prepare import prepare
from bertkit.data.store.token_store import TokenStore
from bertkit.tokenization import BertTokenizer
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import StepResult

WORDS = "the cat dog sat ran on under mat tree . a red blue".split()
SHAPE = BertConfig(
    vocab_size=32, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=64, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1,
)  # fmt: skip
SETTINGS = PretrainConfig(
    max_seq_length=32,
    batch_size=8,
    max_steps=12,
    learning_rate=3e-3,
    warmup=0.1,
    dev_examples=16,
    checkpoint_every_s=60,
    curve=False,
    precision="fp32",  # the same run on every processor
)


def corpus(path: Path, num_documents: int, seed: int) -> Path:
    """Documents about one animal each, so that a random second segment can be told from the true one."""
    chance = torch.Generator().manual_seed(seed)
    documents = []
    for number in range(num_documents):
        animal, verb = (("cat", "sat on"), ("dog", "ran under"))[number % 2]
        places = torch.randint(0, 2, (12,), generator=chance).tolist()
        documents.append("\n".join(f"the {animal} {verb} the {('mat', 'tree')[place]} ." for place in places))
    path.write_text("\n\n".join(documents) + "\n")
    return path


def make_stores(folder: Path, *first: str) -> tuple[TokenStore, TokenStore]:
    """Training and held-out text, prepared; the vocabulary begins with the tokens ``first``."""
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text(
        "\n".join(dict.fromkeys([*first, "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])) + "\n"
    )
    tokenizer = BertTokenizer(vocab_file=vocabulary)
    made = []
    for name, count, seed in (("train", 40, 0), ("dev", 12, 1)):
        text = corpus(folder / f"{name}.txt", count, seed)
        prepare(text, tokenizer, folder / name, sentences="line", workers=1)
        made.append(TokenStore(folder / name))
    return made[0], made[1]


def interrupt_after(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """From now on a signal comes at the end of each of these steps, in whatever run it is made."""
    taken = Trainer.train_step

    def signalled(trainer: Trainer[Batch]) -> StepResult:
        result = taken(trainer)
        if trainer.at.step in steps:
            os.kill(os.getpid(), signal.SIGTERM)
        return result

    monkeypatch.setattr(Trainer, "train_step", signalled)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")
