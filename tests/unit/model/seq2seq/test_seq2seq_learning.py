"""The whole path of an encoder-decoder: trained from scratch to write lists of words backwards, it does so unseen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import bertkit

WORDS, FIRST = 6, 3
MODELS = {
    "bart": lambda: bertkit.BartForConditionalGeneration(
        bertkit.BartConfig(
            vocab_size=FIRST + WORDS, d_model=48, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, max_position_embeddings=8, dropout=0.0,
            forced_eos_token_id=None,
        )
    ),
    "t5": lambda: bertkit.T5ForConditionalGeneration(
        bertkit.T5Config(
            vocab_size=FIRST + WORDS, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, dropout_rate=0.0
        )
    ),
}  # fmt: skip


def lists(rows: int, longest: int, model: Any, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 1 to ``longest`` words, their mask, and the same backwards as labels."""
    config = model.config
    ids = torch.full((rows, longest + 1), config.pad_token_id)
    labels = torch.full((rows, longest + 1), -100)
    for row, length in enumerate(torch.randint(1, longest + 1, (rows,), generator=generator).tolist()):
        words = torch.randint(FIRST, FIRST + WORDS, (length,), generator=generator)
        ids[row, :length], labels[row, :length] = words, words.flip(0)
        ids[row, length] = labels[row, length] = config.eos_token_id
    return ids, (ids != config.pad_token_id).long(), labels


def exact_matches(model: Any, longest: int, steps: int) -> float:
    """Share of unseen lists that a model writes backwards after training."""
    chance = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 30, (steps - s) / steps))
    model.train()
    for _ in range(steps):
        ids, mask, labels = lists(48, longest, model, chance)
        loss = model(ids, mask, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    ids, mask, labels = lists(300, longest, model, torch.Generator().manual_seed(99))
    written = model.generate(ids, mask, max_new_tokens=longest + 1)[:, 1:]
    hits = 0
    for row, wanted in zip(written.tolist(), labels.tolist(), strict=True):
        wanted = [word for word in wanted if word != -100]
        hits += row[: len(wanted)] == wanted
    return hits / 300


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "longest", "steps"),
    [
        ("t5", 1, 50),
        pytest.param("bart", 3, 220, marks=pytest.mark.campaign),
        pytest.param("t5", 3, 220, marks=pytest.mark.campaign),
    ],
)
def test_it_learns_to_write_backwards(kind: str, longest: int, steps: int) -> None:
    torch.manual_seed(0)
    assert exact_matches(MODELS[kind](), longest=longest, steps=steps) > 0.95


@pytest.mark.campaign
@pytest.mark.parametrize("kind", MODELS)
def test_longer_lists_and_a_model_that_cannot(kind: str) -> None:
    """A control: without attention to the input the words can only be guessed."""
    torch.manual_seed(0)
    assert exact_matches(MODELS[kind](), longest=6, steps=700) > 0.95
    torch.manual_seed(0)
    blind = MODELS[kind]()
    for layer in blind.model.decoder.layer:
        layer.around_cross.forward = lambda x, sublayer: x
    assert exact_matches(blind, longest=6, steps=200) < 0.3
