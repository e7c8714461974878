"""Run inside one tree by ``make same``: tiny models with random weights, made and saved by public names alone.

    python same_models.py TOKENIZER OUT

Each head has a folder of its own below OUT, with the tokenizer in it; ``pickled`` is a folder as it was saved before
safetensors.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import bertkit

HEADS = {
    "encoder": "BertModel",
    "pretraining": "BertForPreTraining",
    "words": "BertForMaskedLM",
    "nextsentence": "BertForNextSentencePrediction",
    "classifier": "BertForSequenceClassification",
    "tagger": "BertForTokenClassification",
    "answers": "BertForQuestionAnswering",
    "choices": "BertForMultipleChoice",
}


def main(tokenizer: Path, out: Path) -> None:
    size = bertkit.BertTokenizer.from_pretrained(tokenizer).vocab_size
    for folder, head in HEADS.items():
        torch.manual_seed(0)
        shape = bertkit.BertConfig(
            vocab_size=size,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=64,
            initializer_range=0.2 if folder != "encoder" else 0.05,
            num_labels=3 if folder in ("classifier", "tagger") else 2,
        )
        getattr(bertkit, head)(shape).save_pretrained(out / folder)
        bertkit.BertTokenizer.from_pretrained(tokenizer, model_max_length=64).save_pretrained(out / folder)
    shutil.copytree(out / "pretraining", out / "pickled")
    weights = load_file(out / "pickled" / "model.safetensors")
    torch.save(weights, out / "pickled" / "pytorch_model.bin")
    (out / "pickled" / "model.safetensors").unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
