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
