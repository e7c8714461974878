"""Small random BARTs and T5s with tokenizers, that read: classify texts, find answers, give vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from family_folders import tokenizer
from seq2seq_helpers import KINDS, stir

#: Texts of very different lengths.
TEXTS = ["the river", "t", "the other day, the river was wide and they rode the boat to the fair over there",
         "who ran?", "there were two of them", "a"]  # fmt: skip


def save_reader(head: str, folder: Path, *, family: str = "bart", **changes: Any) -> Any:
    """Write a checkpoint of transformers' class of a family with a head; returns that model, in eval mode.

    Args:
        head: ending of the class's name.
        folder: where to.
        family: ``bart`` or ``t5``.
        **changes: values of the config.
    """
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer(family, folder)
    prefix, values = KINDS[family]
    ids: dict[str, Any] = {"pad_token_id": words.pad_token_id, "eos_token_id": words.eos_token_id}
    if family == "bart":
        ids |= {"bos_token_id": words.cls_token_id, "decoder_start_token_id": words.eos_token_id}
        ids |= {"forced_eos_token_id": words.eos_token_id, "max_position_embeddings": 96}
    config = getattr(transformers, f"{prefix}Config")(**{**values, **ids, "vocab_size": len(words), **changes})
    torch.manual_seed(0)
    model = getattr(transformers, prefix + head)(config).eval()
    with torch.no_grad():
        stir(model)
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return model
