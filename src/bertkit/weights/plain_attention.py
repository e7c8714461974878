"""The attention of one layer, by a forward pass in plain numpy that can be read from top to bottom; no torch, no C.

It is for looking at, one text at a time. Letters of the array shapes: S tokens, D width, N heads, H = D / N, F the
inner width, E rows of a table of distances.
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
from bertkit.weights.parts import ByteTable, Positions, Table
from bertkit.weights.positions import rotary_bases


def why_no_plain_attention(config: BertConfig) -> str | None:
    """Why :func:`attention_of` does not compute such a model, in words that follow "because"; None: it does."""
    if config.num_hidden_layers == 0:
        return "it has no layers"
    if config.attention_direction != "both":
        return f"attention is {config.attention_direction}"
    return None if config.hidden_act in _ACTIVATIONS else f"its activation is {config.hidden_act}"


def attention_of(weights: EncoderWeights, ids_S: Ids, segments_S: Segments, depth: int) -> Floats:
    """How much each token attends to each other one in layer ``depth``, from 1 on: ``(N, S, S)``, each row sums to 1.

    weights: of a model for which :func:`why_no_plain_attention` is None. ids_S, segments_S: of one text or pair.
    """
    x_SD = _embedded(weights, ids_S, segments_S)
    positions = None if weights.positions is None else weights.positions(len(ids_S))
    for number in weights.order[: depth - 1]:
        x_SD = _layer(weights, number, x_SD, positions)
    number = weights.order[depth - 1]
    q_NSH, k_NSH, _ = _projected(weights, number, _before(weights, f"encoder.layer.{number}.attention_norm", x_SD))
    return _probabilities(weights, number, q_NSH, k_NSH, positions)


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


def _layer(weights: EncoderWeights, number: int, x_SD: Floats, positions: Positions | None) -> Floats:
    """One layer: attention and feed-forward, each added to what it reads.

    BERT normalizes the sums (Vaswani et al. 2017); ModernBERT what the two read, and has a gate (Warner et al. 2024).
    """
    config, arrays, name = weights.config, weights.arrays, f"encoder.layer.{number}."
    q_NSH, k_NSH, v_NSH = _projected(weights, number, _before(weights, f"{name}attention_norm", x_SD))
    mixed_NSH = _probabilities(weights, number, q_NSH, k_NSH, positions) @ v_NSH
    together_SD = mixed_NSH.transpose(1, 0, 2).reshape(x_SD.shape)
    x_SD = _after(weights, f"{name}attention_norm", x_SD + linear(arrays, f"{name}attention.out", together_SD))
    inner_SF = linear(arrays, f"{name}ffn_up", _before(weights, f"{name}ffn_norm", x_SD))
    if config.family.pre_norm:
        inner_SF, gate_SF = np.split(inner_SF, 2, axis=1)
        inner_SF = _ACTIVATIONS[config.hidden_act](inner_SF) * gate_SF
    else:
        inner_SF = _ACTIVATIONS[config.hidden_act](inner_SF)
    return _after(weights, f"{name}ffn_norm", x_SD + linear(arrays, f"{name}ffn_down", inner_SF))


def _before(weights: EncoderWeights, norm: str, x_SD: Floats) -> Floats:
    """What a half of a layer reads."""
    return _normalized(weights, norm, x_SD) if weights.config.family.pre_norm else x_SD


def _after(weights: EncoderWeights, norm: str, x_SD: Floats) -> Floats:
    """What a half of a layer returns."""
    return x_SD if weights.config.family.pre_norm else _normalized(weights, norm, x_SD)


def _normalized(weights: EncoderWeights, name: str, x_SD: Floats) -> Floats:
    norm = norm_of(weights.arrays, name)  # none before ModernBERT's first layer, which reads normalized embeddings
    return x_SD if norm is None else normalized(x_SD, norm, weights.config.layer_norm_eps)


def _projected(weights: EncoderWeights, number: int, x_SD: Floats) -> list[Floats]:
    """Queries, keys and values, ``(N, S, H)`` each."""
    parts = np.split(linear(weights.arrays, f"encoder.layer.{number}.attention.qkv", x_SD), 3, axis=1)
    return [_by_head(part, weights.config) for part in parts]


def _by_head(x_SD: Floats, config: BertConfig) -> Floats:
    return x_SD.reshape(len(x_SD), config.num_attention_heads, config.head_size).transpose(1, 0, 2)


def _probabilities(
    weights: EncoderWeights, number: int, q_NSH: Floats, k_NSH: Floats, positions: Positions | None
) -> Floats:
    """What queries and keys of a layer make, by all ways in which families learn of positions, ``(N, S, S)``."""
    config, kind = weights.config, weights.config.layer_kinds[number]
    place_S = np.arange(q_NSH.shape[1])
    away_SS = place_S[:, None] - place_S[None, :]  # query minus key
    if positions is not None and positions.angles:
        angles_SH = positions.angles[rotary_bases(config).index(kind)]
        q_NSH, k_NSH = _rotated(q_NSH, angles_SH), _rotated(k_NSH, angles_SH)
    scores_NSS = q_NSH @ k_NSH.transpose(0, 2, 1)
    if positions is not None and positions.rows is not None:
        scores_NSS += _with_distances(weights, number, q_NSH, k_NSH, positions.rows[away_SS + len(place_S) - 1])
    scores_NSS *= np.float32(weights.scale)
    if positions is not None and positions.bias is not None:
        scores_NSS += positions.bias[:, len(place_S) - 1 - away_SS]
    if (reach := config.reach_of(kind)) is not None:
        scores_NSS[:, np.abs(away_SS) > reach] = -np.inf
    found: Floats = softmax(scores_NSS)
    return found


def _rotated(x_NSH: Floats, angles_SH: Floats) -> Floats:
    """Vectors whose numbers i and i + H / 2 are turned by the i-th angle of their place (Su et al. 2021)."""
    (first, second), (cos, sin) = np.split(x_NSH, 2, axis=2), np.split(angles_SH, 2, axis=1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2)


def _with_distances(weights: EncoderWeights, number: int, q_NSH: Floats, k_NSH: Floats, rows_SS: Ids) -> Floats:
    """What distances add to scores: of queries with their keys, and of keys with their queries (He et al. 2021)."""
    keys_ED, queries_ED = weights.distances(number)
    found = np.zeros((len(q_NSH), *rows_SS.shape), np.float32)
    if keys_ED is not None:
        products_NSE = q_NSH @ _by_head(keys_ED, weights.config).transpose(0, 2, 1)
        found += np.take_along_axis(products_NSE, rows_SS[None].astype(np.int64), axis=2)
    if queries_ED is not None:
        products_NSE = k_NSH @ _by_head(queries_ED, weights.config).transpose(0, 2, 1)
        found += np.take_along_axis(products_NSE, rows_SS.T[None].astype(np.int64), axis=2).transpose(0, 2, 1)
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
