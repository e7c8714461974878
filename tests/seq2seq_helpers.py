"""Small encoder-decoders of every kind beside those of transformers."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bertkit

_BART: dict[str, Any] = {
    "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 36, "decoder_ffn_dim": 40, "max_position_embeddings": 40, "init_std": 0.3, "dropout": 0.0,
}  # fmt: skip
_T5: dict[str, Any] = {
    "d_model": 24, "d_kv": 10, "d_ff": 36, "num_layers": 2, "num_heads": 3, "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12, "dropout_rate": 0.0, "decoder_start_token_id": 0,
}  # fmt: skip
#: By name: the prefix of the class of transformers, and the values of its config.
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("Bart", _BART),
    "bart scaled": ("Bart", {**_BART, "scale_embedding": True, "activation_function": "relu"}),
    "mbart": ("MBart", {**_BART, "scale_embedding": True, "activation_function": "gelu_new"}),
    "t5": ("T5", _T5),
    "t5 v1.1": ("T5", {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "t5 of odd sizes": ("T5", {**_T5, "d_model": 36, "d_kv": 5, "num_layers": 5, "num_decoder_layers": 1}),
}
VOCAB = 60


@dataclass
class Pair:
    """A model of transformers, the same here, and a padded batch of inputs."""

    peer: Any
    ours: Any
    ids: Tensor
    mask: Tensor


def pair(kind: str, head: str, folder: Path, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Pair:
    """``head`` is the ending of the classes; our model is read from what transformers saves."""
    import transformers

    prefix, values = KINDS[kind]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{prefix}Config")(vocab_size=VOCAB, **values)
    peer = getattr(transformers, prefix + head)(config)
    if kind == "t5 v1.1" and head == "ForConditionalGeneration":  # transformers ties new ones
        peer.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, config.d_model) * 0.5)
    peer = peer.to(dtype).eval()
    peer.save_pretrained(folder)
    ours = getattr(bertkit, prefix.removeprefix("M") + head).from_pretrained(folder, dtype=dtype)
    ids, mask = batch(config.pad_token_id, seed)
    return Pair(peer, ours, ids, mask)


def batch(pad: int, seed: int, rows: int = 4, width: int = 17) -> tuple[Tensor, Tensor]:
    """Random inputs of very different lengths, padded on the right."""
    chance = random.Random(seed)
    ids = torch.randint(3, VOCAB, (rows, width), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(rows, width, dtype=torch.long)
    for row in range(1, rows):
        length = chance.choice([1, 2, chance.randint(1, width)])
        mask[row, length:] = 0
        ids[row, length:] = pad
    return ids, mask


def close(a: Tensor, b: Tensor, tolerance: float = 1e-5) -> None:
    """Equal to a hundred-thousandth of the largest value (at least of 1)."""
    scale = max(1.0, float(b.abs().max()))
    assert float((a - b).abs().max()) <= tolerance * scale
