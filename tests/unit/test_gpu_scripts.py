"""The scripts that measure a GPU, as far as a machine without one can run them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from bertkit.engine.backend import Pack, Values, Wanted

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.append(str(REPOSITORY / "benchmarks"))  # behind everything: it has a tokenize.py

import host_path  # noqa: E402


class ByIds(host_path.NoEncoder):
    """The vector of a token is that of its id, so that the vector of a text says which one it is."""

    def __init__(self) -> None:
        super().__init__()
        self.num_packs = 0
        self.table_VD = torch.randn(30_000, 8, generator=torch.Generator().manual_seed(1))

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        self.num_packs += 1
        self.hidden_TD = self.table_VD[torch.from_numpy(pack.ids.astype(np.int64))]
        return super().compute(pack, wanted)


def test_the_host_s_share_of_embedding_is_computed() -> None:
    found = host_path.embedded(host_path.some_texts(5_000))
    assert found.shape == (5_000, host_path.WIDTH)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_the_host_s_share_of_embedding_keeps_the_order_of_the_texts() -> None:
    """Beside each text's own mean. In windows of other sizes too, in each of which the texts are sorted by length."""
    rows = host_path.some_texts(5_000)
    for window in (2_048, 5_000):
        encoder = ByIds()
        found = host_path.embedded(rows, window, encoder)
        means = np.stack([encoder.table_VD[torch.from_numpy(ids.astype(np.int64))].mean(0).numpy() for ids in rows])
        expected = means / np.linalg.norm(means, axis=1, keepdims=True)
        assert encoder.num_packs >= 2
        assert np.allclose(found, expected, atol=1e-5)
        by_length = np.argsort(rows.lengths, kind="stable")
        assert not np.allclose(found[by_length], expected, atol=1e-2)  # the control
