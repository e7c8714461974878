"""Attention in plain numpy beside that of the models, for every family that it is computed for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit.batch import pack
from bertkit.weights.checkpoint_weights import ModelWeights
from bertkit.weights.plain_attention import attention_of, why_no_plain_attention
from family_helpers import MODEL_TYPES_WITH_SEGMENTS, SHAPES, V, pair


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_torch_computes(shape: str, tmp_path: Path) -> None:
    _, model = pair(shape, "BertModel", tmp_path)
    assert why_no_plain_attention(model.config) is None
    draw = np.random.default_rng(5)
    ids = draw.integers(2, V, 19).astype(np.int32)
    segments = draw.integers(0, max(1, MODEL_TYPES_WITH_SEGMENTS.get(shape, 1)), 19).astype(np.int8)
    with torch.inference_mode():
        out = model.eval().forward_packed(pack([ids.tolist()], [segments.tolist()]), output_attentions=True)
    weights = ModelWeights.from_checkpoint(tmp_path, "BertModel").encoder
    for depth, (right,) in enumerate(out.attentions, start=1):
        found = attention_of(weights, ids, segments, depth)
        assert found.shape == (model.config.num_attention_heads, 19, 19)
        np.testing.assert_allclose(found, right.numpy(), atol=1e-5)
        # The layers and heads differ, so that another one would not pass.
        assert np.abs(found[0] - found[1]).max() > 1e-3
