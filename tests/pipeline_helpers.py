"""Tiny models on disk for the tests of pipelines and commands."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bertkit import BertConfig, BertModel
from bertkit.engine.backend import Precision

#: ``bertkit`` called in this process: exit code, output and messages.
Command = Callable[..., tuple[int, str, str]]
WORDS = "the a film is good bad and not very of to it in was [ ] great dull scene end start".split()
#: Of scores and vectors, how far those of a pipeline may be from float32: weights are kept in 24 bits unless asked.
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "auto": 1e-4}
PIECES = [*string.ascii_lowercase, *string.digits, *".,!?'-"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES, *(f"##{p}" for p in PIECES if p.isalnum())]
VOCABULARY += [word for word in WORDS if word not in VOCABULARY]


def save_tiny(folder: Path, model_class: type[Any] = BertModel, **settings: Any) -> Path:
    """A model folder with random weights large enough that different texts get clearly different results."""
    values = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        **settings,
    }
    torch.manual_seed(0)
    model_class(BertConfig(**values)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "model_max_length": values["max_position_embeddings"]}), encoding="utf-8"
    )
    return folder
