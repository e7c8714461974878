"""Tables of positions: rotary angles, biases and rows of distances, as the models of :mod:`bertkit.model` have them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bertkit.config.bert_config import BertConfig
from bertkit.config.family_forms import THETAS
from bertkit.ragged import Floats, Ints
from bertkit.weights.parts import Positions

#: Of MPNet: rows of the table of biases, and the distance from which all share one.
_NUM_BUCKETS, _MAX_DISTANCE = 32, 128


def rotary_bases(config: BertConfig) -> list[str]:
    """The kinds of layers that have angles of their own, in the order of the tables."""
    return sorted(set(config.layer_kinds))


def positions_of(config: BertConfig, most: int, biases_EN: Floats | None = None) -> Positions:
    """The tables for texts of at most ``most`` tokens; ``biases_EN``: the table of a family whose scores are biased."""
    match config.family.scores:
        case "rotary":
            return Positions(most, [_angles(config, kind, most) for kind in rotary_bases(config)])
        case "biased":
            assert biases_EN is not None
            rows = t5_rows(np.arange(1 - most, most), _NUM_BUCKETS, _MAX_DISTANCE)
            return Positions(most, bias=np.ascontiguousarray(biases_EN[rows].T))
        case "disentangled":
            return Positions(most, rows=_distance_rows(config, np.arange(1 - most, most)).astype(np.int32))
        case _:
            raise AssertionError("only asked where attention knows of positions")


def _angles(config: BertConfig, kind: str, most: int) -> Floats:
    """Cosines, then sines, ``(most, H)``, of angles in float32, as those of :class:`RotaryPositions`."""
    theta = np.float32(getattr(config, THETAS[kind]))
    steps_h = np.arange(0, config.head_size, 2, dtype=np.float32) / np.float32(config.head_size)
    angles = np.arange(most, dtype=np.float32)[:, None] * (np.float32(1.0) / theta**steps_h)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def t5_rows(distances: Ints, num_buckets: int, max_distance: int) -> Ints:
    """:func:`bertkit.model.kernels.relative_positions.t5_buckets` in both directions, without torch."""
    rows = num_buckets // 2
    single, away = rows // 2, np.abs(distances)
    near = np.maximum(away, 1).astype(np.float32) / np.float32(single)
    steps = _log(near) / np.float32(math.log(max_distance / single)) * np.float32(rows - single)
    wide = np.minimum(single + steps.astype(np.int64), rows - 1)
    found: Ints = rows * (distances > 0) + np.where(away < single, away, wide)
    return found


def log_rows(distances: Ints, num_buckets: int, max_distance: int) -> Ints:
    """:func:`bertkit.model.kernels.relative_positions.log_buckets`, without torch."""
    middle = num_buckets // 2
    if max_distance - 1 <= middle:  # a config has this only where no distance is above the middle
        return distances
    away = np.maximum(np.abs(distances), middle - 1).astype(np.float32) / np.float32(middle)
    whole = _log(np.asarray((max_distance - 1) / middle, np.float32))
    steps = _log(away) / whole * np.float32(middle - 1)
    wide = (np.ceil(steps) + np.float32(middle)).astype(np.int64) * np.sign(distances)
    found: Ints = np.where(np.abs(distances) <= middle, distances, wide)
    return found


def _distance_rows(config: BertConfig, distances: Ints) -> Ints:
    span, num_buckets = config.distance_span, config.position_buckets or -1
    if num_buckets > 0:
        distances = log_rows(distances, num_buckets, config.farthest_distance)
    return np.clip(distances + span, 0, 2 * span - 1)


def _log(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The float32 nearest to the logarithm: the last bit decides which row a distance at the edge of one has."""
    return np.log(values.astype(np.float64)).astype(np.float32)
