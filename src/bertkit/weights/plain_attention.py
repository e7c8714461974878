"""The attention of one layer, by a forward pass in plain numpy that can be read from top to bottom; no torch, no C.

It is for looking at, one text at a time. Letters of the array shapes: S tokens, D width, N heads, H = D / N, F the
inner width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertkit.config.bert_config import BertConfig
from bertkit.metrics.probabilities import softmax
from bertkit.ragged import Floats, Ids, Segments
from bertkit.weights.encoder_weights import EncoderWeights, linear, norm_of, normalized
from bertkit.weights.parts import ByteTable, Table

#: Where attention learns of positions, and this pass does not compute it, in words that follow "because".
_OTHER_SCORES = {"rotary": "positions rotate queries and keys", "disentangled": "scores read vectors of distances"}


def why_no_plain_attention(config: BertConfig) -> str | None:
    """Why :func:`attention_of` does not compute such a model, in words that follow "because"; None: it does."""
    if config.num_hidden_layers == 0:
        return "it has no layers"
    if config.attention_direction != "both":
        return f"attention is {config.attention_direction}"
    if (reason := _OTHER_SCORES.get(config.family.scores)) is not None:
        return reason
    return None if config.hidden_act in _ACTIVATIONS else f"its activation is {config.hidden_act}"


def attention_of(weights: EncoderWeights, ids_S: Ids, segments_S: Segments, depth: int) -> Floats:
    """How much each token attends to each other one in layer ``depth``, from 1 on: ``(N, S, S)``, each row sums to 1.

    weights: of a model for which :func:`why_no_plain_attention` is None. ids_S, segments_S: of one text or pair.
    """
    x_SD = _embedded(weights, ids_S, segments_S)
    bias_NSS = _bias(weights, len(ids_S))
    for number in weights.order[: depth - 1]:
        x_SD = _layer(weights, number, x_SD, bias_NSS)
    q_SD, k_SD, _ = _projected(weights, weights.order[depth - 1], x_SD)
    return _probabilities(weights.config, q_SD, k_SD, bias_NSS)


def _embedded(weights: EncoderWeights, ids_S: Ids, segments_S: Segments) -> Floats:
    """The sum of the embeddings, normalized, as wide as the layers."""
    config = weights.config
    rows: dict[str, NDArray[Any]] = {
        "input_ids": ids_S,
        "position_ids": np.arange(len(ids_S)) + config.first_position,
        "token_type_ids": segments_S,
    }
    found = [_rows_of(table, rows[name]) for name, table in weights.tables.items()]
    x_SD = normalized(np.sum(found, axis=0), weights.embedding_norm, config.layer_norm_eps)
    name = "embeddings.projection"
    return linear(weights.arrays, name, x_SD) if f"{name}.weight" in weights.arrays else x_SD


def _rows_of(table: Table, numbers: NDArray[Any]) -> Floats:
    if not isinstance(table, ByteTable):
        return np.asarray(table[numbers])
    return np.asarray(table.rows[numbers] * table.row_scale[numbers, None] * table.column_scale)


def _bias(weights: EncoderWeights, size: int) -> Floats | None:
    """What scores get for the distance of a key from its query, ``(N, S, S)``; None: nothing."""
    if weights.positions is None:
        return None
    bias = weights.positions(size).bias
    assert bias is not None
    places = np.arange(size)
    return bias[:, places[None, :] - places[:, None] + size - 1]


def _layer(weights: EncoderWeights, number: int, x_SD: Floats, bias_NSS: Floats | None) -> Floats:
    """One layer: attention and feed-forward, each added to what it reads and normalized (Vaswani et al. 2017)."""
    config, name = weights.config, f"encoder.layer.{number}."

    def added(norm: str, more_SD: Floats) -> Floats:
        own = norm_of(weights.arrays, name + norm)
        assert own is not None
        return normalized(x_SD + more_SD, own, config.layer_norm_eps)

    q_SD, k_SD, v_SD = _projected(weights, number, x_SD)
    mixed_NSH = _probabilities(config, q_SD, k_SD, bias_NSS) @ _by_head(v_SD, config)
    together_SD = mixed_NSH.transpose(1, 0, 2).reshape(x_SD.shape)
    x_SD = added("attention_norm", linear(weights.arrays, f"{name}attention.out", together_SD))
    inner_SF = _ACTIVATIONS[config.hidden_act](linear(weights.arrays, f"{name}ffn_up", x_SD))
    return added("ffn_norm", linear(weights.arrays, f"{name}ffn_down", inner_SF))


def _projected(weights: EncoderWeights, number: int, x_SD: Floats) -> list[Floats]:
    """Queries, keys and values, ``(S, D)`` each."""
    return np.split(linear(weights.arrays, f"encoder.layer.{number}.attention.qkv", x_SD), 3, axis=1)


def _by_head(x_SD: Floats, config: BertConfig) -> Floats:
    return x_SD.reshape(len(x_SD), config.num_attention_heads, config.head_size).transpose(1, 0, 2)


def _probabilities(config: BertConfig, q_SD: Floats, k_SD: Floats, bias_NSS: Floats | None) -> Floats:
    scores_NSS = _by_head(q_SD, config) @ _by_head(k_SD, config).transpose(0, 2, 1)
    scores_NSS *= np.float32(config.head_size**-0.5)
    found: Floats = softmax(scores_NSS if bias_NSS is None else scores_NSS + bias_NSS)
    return found


def _gelu(x: Floats) -> Floats:
    return x * (np.float32(0.5) * (1 + _erf(x / np.float32(math.sqrt(2)))))


def _gelu_new(x: Floats) -> Floats:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    return np.asarray(np.float32(0.5) * x * (1 + np.tanh(inner)))


def _erf(x: Floats) -> Floats:
    """The error function to 2e-7 (Abramowitz and Stegun 1964, 7.1.26), which numpy does not have."""
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    found: Floats = np.sign(x) * (1 - np.polyval(np.array(factors, np.float32), t) * t * np.exp(-x * x))
    return found


#: As :data:`bertkit.weights.parts.ACTIVATIONS`.
_ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "gelu": _gelu,
    "gelu_new": _gelu_new,
    "relu": lambda x: np.maximum(x, np.float32(0)),
}
