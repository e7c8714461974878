"""About how much memory a fine-tuning needs, told before it starts: long texts are where it runs out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bertkit.config.bert_config import BertConfig
from bertkit.system.processor import find_processor
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

#: Share of the memory from which on the estimate is worth a line.
WORTH_TELLING = 0.5
#: Bytes of a parameter in training: weight, gradient and the two moments of Adam, float32.
PARAMETER_BYTES = 16


def memory_line(shape: BertConfig, lengths: Sequence[int], config: FinetuneConfig, device: str | None) -> str:
    """What to say of the memory before training on rows of these lengths, in tokens; empty if there is enough."""
    total = _memory(device)
    if total is None or config.freeze_encoder or not lengths:
        return ""
    longest = min(max(lengths), config.max_length or max(lengths))
    bytes_each = 4 if config.lora else PARAMETER_BYTES  # adapters are too small to count
    needed = training_bytes(shape, longest_batch(lengths, config.max_tokens, longest), bytes_each)
    if needed < WORTH_TELLING * total:
        return ""
    return (
        f"MEMORY: the longest batch ({longest:,} tokens in a text) needs about {needed / 1e9:.1f} GB in training, and "
        f"this {'GPU' if _is_gpu(device) else 'machine'} has {total / 1e9:.1f} GB; if it runs out, give a smaller "
        f"--max-length or --max-tokens (now {config.max_tokens:,})"
    )


def longest_batch(lengths: Sequence[int], max_tokens: int, longest: int) -> list[int]:
    """Lengths of the sequences in the largest share of a batch that is computed at once; a row may be several."""
    found: list[int] = []
    for length in sorted(lengths, reverse=True):
        if found and sum(found) + length > max_tokens:
            break
        found += [longest] * (length // longest) + ([length % longest] if length % longest else [])
    return found


def training_bytes(shape: BertConfig, lengths: Sequence[int], parameter_bytes: int = PARAMETER_BYTES) -> float:
    """Bytes of weights, gradients, moments, and of what layers keep for the backward pass of sequences, in float32.

    For each token a layer of width D and feed-forward width F keeps about 6 D + 3 F numbers (gated: 5 F), and with
    dropout on the probabilities of attention each head two for each key. Without it, attention keeps probabilities only
    where a kernel adds to the scores: one with a bias by distance, one for each direction of DeBERTa's scores.
    """
    d, tokens = shape.hidden_size, sum(lengths)
    numbers = (6 * d + (5 if shape.family.pre_norm else 3) * shape.intermediate_size) * tokens
    layers = float(numbers * shape.num_hidden_layers)
    has_dropout = shape.attention_probs_dropout_prob > 0
    each = 2 if has_dropout else 0
    if shape.family.scores == "disentangled":
        each += len(set(shape.pos_att_type or []))
    elif shape.family.scores == "biased":
        each = max(each, 1)
    for kind in shape.layer_kinds:
        half = shape.reach_of(kind)
        keys = [s if half is None else min(s, 3 * half) for s in lengths]
        pairs = sum(s * k for s, k in zip(lengths, keys, strict=True))
        layers += each * shape.num_attention_heads * pairs
    return parameter_bytes * _parameters(shape) + 4.0 * layers


def _parameters(shape: BertConfig) -> int:
    """Numbers in the matrices and tables of the model; what has one axis is not worth counting."""
    d, f = shape.hidden_size, shape.intermediate_size
    rows = shape.vocab_size + (shape.max_position_embeddings if shape.has_position_table else 0)
    layer = 4 * d * d + (3 if shape.family.pre_norm else 2) * d * f
    return rows * shape.embedding_width + shape.num_stored_layers * layer


def _is_gpu(device: str | None) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _memory(device: str | None) -> int | None:
    if _is_gpu(device):
        return int(torch.cuda.get_device_properties(torch.device(str(device))).total_memory)
    return find_processor().memory
