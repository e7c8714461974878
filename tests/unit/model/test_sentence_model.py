"""From packed token vectors to vectors of texts, compared with the padded formulas of torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from bertkit import AutoTokenizer, BertModel, InputError
from bertkit.batch import Layout, pack
from bertkit.checkpoints.sentence_folder import read_sentence_parts
from bertkit.config.sentence_config import POOLING_MODES, Dense, LayerNorm, Normalize, PoolingMode, SentenceConfig
from bertkit.engine.backend import Pack
from bertkit.inference.sentence_steps import sentence_vectors
from bertkit.model.pooling import pool_sentences
from bertkit.model.sentence_model import SentenceModel
from pipeline_helpers import save_tiny
from sentence_folders import WIDTH, after_pooling, dense, padded_pooling, pooling, sentence_folder

LENGTHS = (5, 3, 9, 4)
SEQUENCES = [[2, 7, 8, 9, 3], [2, 10, 3], [2, 11, 12, 13, 14, 15, 3], [2, 3]]


@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("modes", [*[(mode,) for mode in POOLING_MODES], ("mean", "cls"), tuple(POOLING_MODES)])
def test_pooling_is_that_of_padded_batches(modes: tuple[PoolingMode, ...], skipped: int) -> None:
    torch.manual_seed(0)
    x_TD = torch.randn(sum(LENGTHS), 6)
    padded = torch.nn.utils.rnn.pad_sequence(x_TD.split(LENGTHS), batch_first=True)
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    expected = torch.cat([padded_pooling(padded, mask, mode, skipped) for mode in modes], dim=1)
    assert_close(pool_sentences(x_TD, Layout(LENGTHS), modes, skipped), expected)
    ids = np.zeros(sum(LENGTHS), np.int64)
    assert_close(torch.from_numpy(Pack(ids, ids, LENGTHS).pool(x_TD.numpy(), modes, skipped)), expected)
    if skipped and modes != ("lasttoken",):  # control
        assert not torch.allclose(pool_sentences(x_TD, Layout(LENGTHS), modes), expected)


STEPS = [
    pooling("max", "mean"),
    dense(2 * WIDTH, 24, use_residual=True),
    ("LayerNorm", {"dimension": 24}),
    dense(24, 24, "activation.GELU", use_residual=True),
    dense(24, 12, "activation.SiLU", bias=False),
    dense(12, 12, "activation.ReLU"),
    dense(12, 12, "activation.Sigmoid"),
    dense(12, 10, "linear.Identity"),
    ("Normalize", {}),
]


def test_steps_are_torch_s_in_both_implementations(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", STEPS)
    model = SentenceModel.from_pretrained(folder)
    assert not model.training
    assert model.head.width == 10
    batch = pack(SEQUENCES)
    with torch.no_grad():
        found = model(batch)
        hidden = model.encoder.forward_packed(batch).last_hidden_state
        pooled = pool_sentences(hidden, batch.layout, ("max", "mean"))
    assert_close(found, after_pooling(pooled, STEPS))
    parts = read_sentence_parts(folder, WIDTH)
    assert parts is not None
    np.testing.assert_allclose(sentence_vectors(pooled.numpy(), parts), found, atol=1e-6)
    wrong = [STEPS[0], *reversed(STEPS[1:])]
    assert wrong != STEPS  # control: the order matters
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    bare = sentence_vectors(pooled.numpy(), parts, normalize=False)
    np.testing.assert_allclose(bare / np.linalg.norm(bare, axis=1, keepdims=True), found, atol=1e-6)
    assert np.abs(np.linalg.norm(bare, axis=1) - 1).min() > 0.01
    cut = sentence_vectors(pooled.numpy(), parts, dimensions=4)
    np.testing.assert_array_equal(cut, sentence_vectors(pooled.numpy(), parts)[:, :4])
    np.testing.assert_allclose(
        sentence_vectors(pooled.numpy(), parts, dimensions=4, normalize=True),
        cut / np.linalg.norm(cut, axis=1, keepdims=True),
        atol=1e-6,
    )
    for dimensions in (0, 11):
        with pytest.raises(InputError, match=f"must be from 1 to 10, the numbers of a vector, got {dimensions}"):
            sentence_vectors(pooled.numpy(), parts, dimensions=dimensions)


def test_a_new_head_is_drawn_by_its_seed_trained_and_saved(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "plain")
    config = SentenceConfig(
        pooling=("mean", "cls"),
        steps=(Dense(in_features=2 * WIDTH, out_features=8), LayerNorm(dimension=8), Normalize()),
        prompts={"query": "q: "},
        max_length=20,
    )
    before = torch.get_rng_state()
    model, same, other = (SentenceModel.from_pretrained(folder, config, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    batch = pack(SEQUENCES)
    with torch.no_grad():
        assert torch.equal(model(batch), same(batch))
        assert not torch.allclose(model(batch), other(batch))
    weight = model.head.steps[0].linear.weight
    assert weight.abs().max() <= (2 * WIDTH) ** -0.5
    loss = model.train()(batch)[0].sum()
    loss.backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "pooler" not in name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * (0 if parameter.grad is None else parameter.grad)
    model.eval().save_pretrained(tmp_path / "trained", AutoTokenizer.from_pretrained(folder))
    again = SentenceModel.from_pretrained(tmp_path / "trained")
    assert again.head.config == config
    with torch.no_grad():
        assert torch.equal(again(batch), model(batch))
        assert not torch.allclose(again(batch), same(batch))
    assert AutoTokenizer.from_pretrained(tmp_path / "trained")("a film").input_ids


def test_the_prompt_is_left_out_only_where_the_config_says_so(tmp_path: Path) -> None:
    encoder, batch = BertModel.from_pretrained(save_tiny(tmp_path / "plain")), pack([*SEQUENCES[:1], [2, 5, 6, 3]])
    pooled = SentenceModel(encoder, SentenceConfig(include_prompt=False))
    whole = SentenceModel(encoder)
    with torch.no_grad():
        hidden = encoder.forward_packed(batch).last_hidden_state.split(batch.layout.lengths)
        assert_close(pooled(batch, skipped=2), torch.stack([x[2:].mean(0) for x in hidden]))
        assert torch.equal(whole(batch, skipped=2), whole(batch))
        assert torch.equal(pooled(batch), whole(batch))


def test_a_head_that_does_not_fit_the_encoder(tmp_path: Path) -> None:
    encoder = BertModel.from_pretrained(save_tiny(tmp_path / "plain"))
    with pytest.raises(InputError, match="step 1 after pooling, Dense, reads vectors of 64 numbers, and gets 32"):
        SentenceModel(encoder, SentenceConfig(steps=(Dense(in_features=64, out_features=8),)))
