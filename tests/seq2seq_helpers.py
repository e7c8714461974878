"""Small encoder-decoders of every kind beside those of transformers, and inputs for them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bertkit
from bertkit.checkpoints.seq2seq_names import BART, T5
from parity_measures import LIMIT, error

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
#: Every class of every kind, by the endings of their names, as this package has them.
HEADS = {
    prefix: [name.removeprefix(table.family.capitalize()) for name in table.classes]
    for prefix, table in {"Bart": BART, "MBart": BART, "T5": T5}.items()
}
CASES = [(kind, head) for kind, (prefix, _) in KINDS.items() for head in HEADS[prefix]]
VOCAB = 60


def odd(kind: str) -> dict[str, Any]:
    """The values of a config with which a kind has odd sizes: width 36, 3 heads, 5 layers, long tables."""
    if KINDS[kind][0] == "T5":
        return {"d_model": 36, "d_kv": 5, "d_ff": 50, "num_layers": 5, "num_decoder_layers": 5, "num_heads": 3}
    towers = ("encoder", "decoder")
    sizes = {"attention_heads": 3, "ffn_dim": 50, "layers": 5}
    values = {f"{tower}_{name}": size for tower in towers for name, size in sizes.items()}
    return {**values, "d_model": 36, "max_position_embeddings": 140}


@dataclass
class Pair:
    """A model of transformers, the same here, and a padded batch of inputs."""

    peer: Any
    ours: Any
    ids: Tensor
    mask: Tensor


def pair(
    kind: str,
    head: str,
    folder: Path,
    *,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    varied: bool = False,
    **changes: Any,
) -> Pair:
    """The same model in both; ours is read from what transformers saves.

    Args:
        kind: of model.
        head: the ending of the classes.
        folder: for the checkpoint.
        dtype: of both.
        seed: of weights and inputs.
        varied: what it writes is no repetition; see :func:`vary`.
        **changes: values of the config.
    """
    import transformers

    prefix, values = KINDS[kind]
    torch.manual_seed(seed)
    config = getattr(transformers, f"{prefix}Config")(vocab_size=VOCAB, **{**values, **changes})
    peer = getattr(transformers, prefix + head)(config)
    if kind == "t5 v1.1" and head == "ForConditionalGeneration":  # transformers ties new ones
        peer.lm_head.weight = torch.nn.Parameter(torch.randn(VOCAB, config.d_model) * 0.5)
    with torch.no_grad():
        stir(peer)
        if varied:
            vary(peer)
    peer = peer.to(dtype).eval()
    peer.save_pretrained(folder)
    ours = getattr(bertkit, prefix.removeprefix("M") + head).from_pretrained(folder, dtype=dtype)
    ids, mask = batch(config.pad_token_id, seed)
    return Pair(peer, ours, ids, mask)


#: By endings of names: what matrices of the decoder are multiplied with.
_FACTORS = {
    ("out_proj.weight", ".o.weight"): 0.3,
    ("q_proj.weight", "k_proj.weight", ".q.weight", ".k.weight"): 3.0,
    ("fc1.weight", "fc2.weight", ".wi.weight", ".wi_0.weight", ".wi_1.weight", ".wo.weight"): 1.5,
}


def stir(peer: Any) -> None:
    """Make a new model one in which nothing is 0 or 1, not even biases and norms."""
    for parameter in peer.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(parameter.mean()), std=0.2)
    if hasattr(peer, "final_logits_bias"):
        torch.nn.init.normal_(peer.final_logits_bias, std=0.3)


def vary(peer: Any) -> None:
    """Make it one whose texts depend on all that it reads; a new one repeats its last token again and again.

    Attention is sharp, and adds less than the feed-forward; the norm before the output weighs at random.
    """
    for name, parameter in peer.named_parameters():
        if "decoder" in name:
            parameter *= next((factor for ends, factor in _FACTORS.items() if name.endswith(ends)), 1.0)
    decoder = getattr(peer, "model", peer).decoder
    norms = (getattr(decoder, name, None) for name in ("final_layer_norm", "layer_norm"))
    last = next((norm for norm in norms if norm is not None), None) or decoder.layers[-1].final_layer_norm
    torch.nn.init.normal_(last.weight, std=1.0)


def batch(pad: int, seed: int, rows: int = 4, width: int = 17) -> tuple[Tensor, Tensor]:
    """Random inputs of very different lengths, padded on the right."""
    chance = random.Random(seed)
    lengths = [width, *(chance.choice([1, 2, chance.randint(1, width)]) for _ in range(1, rows))]
    return batch_of(lengths, pad, seed)


def batch_of(lengths: Sequence[int], pad: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random inputs of these lengths, padded on the right."""
    ids = torch.randint(3, VOCAB, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids.masked_fill(mask == 0, pad), mask


def decoder_ids(rows: int = 4, width: int = 11) -> Tensor:
    """Random tokens for the decoder, or targets."""
    return torch.randint(3, VOCAB, (rows, width), generator=torch.Generator().manual_seed(5))


def close(a: Tensor, b: Tensor, tolerance: float = LIMIT) -> None:
    """Equal to a hundred-thousandth of the largest value (at least of 1)."""
    assert error(a, b) <= tolerance
