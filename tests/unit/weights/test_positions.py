"""Rows of distances and rotary angles without torch, beside those of the models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertkit import BertConfig
from bertkit.batch import Layout
from bertkit.model.kernels.relative_positions import log_buckets, t5_buckets
from bertkit.model.rotary_attention import RotaryPositions
from bertkit.weights.positions import log_rows, positions_of, t5_rows

DISTANCES = np.arange(-5000, 5001)


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (64, 256), (32, 512)])
def test_rows_of_t5(num_buckets: int, max_distance: int) -> None:
    found = t5_rows(DISTANCES, num_buckets, max_distance)
    right = t5_buckets(torch.from_numpy(DISTANCES), num_buckets, max_distance, bidirectional=True)
    np.testing.assert_array_equal(found, right.numpy())
    assert len(np.unique(found)) == num_buckets - 1  # no key is after its query and at no distance


@pytest.mark.parametrize("num_buckets", [4, 9, 64, 128, 256])
@pytest.mark.parametrize("max_distance", [400, 512, 1024, 2048])
def test_rows_of_deberta(num_buckets: int, max_distance: int) -> None:
    found = log_rows(DISTANCES, num_buckets, max_distance)
    right = log_buckets(torch.from_numpy(DISTANCES), num_buckets, max_distance)
    np.testing.assert_array_equal(found, right.numpy())


@pytest.mark.parametrize("buckets", [-1, 4, 9, 64, 256])
@pytest.mark.parametrize(
    ("farthest", "positions"), [(-1, 32), (-1, 129), (-1, 256), (131, 512), (-1, 512), (1024, 512)]
)
def test_rows_of_deberta_do_not_fall_with_the_distance(buckets: int, farthest: int, positions: int) -> None:
    values = {"position_buckets": buckets, "max_relative_positions": farthest, "max_position_embeddings": positions}
    config = BertConfig.for_model("deberta-v2", relative_attention=True, pos_att_type="c2p", **values)
    rows = positions_of(config, 512).rows
    assert rows is not None
    assert (np.diff(rows) >= 0).all()
    assert 0 <= rows[0] < rows[-1] < 2 * config.distance_span
    reached = np.arange(1 - positions, positions)
    if buckets > 0:
        right = log_buckets(torch.from_numpy(reached), buckets, config.farthest_distance).numpy() + buckets
        np.testing.assert_array_equal(rows[reached + 511], right.clip(0, 2 * buckets - 1))


def test_rotary_angles() -> None:
    config = BertConfig.from_dict({"model_type": "modernbert", "hidden_size": 64, "num_attention_heads": 2})
    found = positions_of(config, 8192)
    right = RotaryPositions(config)(torch.empty(0), Layout((8192,)))
    assert len(found.angles) == len(right) == 2
    for ours, (cosines, sines) in zip(found.angles, right.values(), strict=True):
        expected = torch.cat([cosines, sines], dim=-1).squeeze(1).numpy()
        # Angles of thousands have an error of their own in float32, by which cosines may differ.
        np.testing.assert_allclose(ours[:128], expected[:128], atol=1e-5)
        np.testing.assert_allclose(ours, expected, atol=2e-3)
