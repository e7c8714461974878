"""Ten optimizer steps against a loop written by hand over ``transformers`` and ``torch.optim.AdamW``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.model.models import BertForSequenceClassification
from bertkit.optim import linear_schedule
from training_helpers import ToyData, no_dropout, toy_trainer

transformers = pytest.importorskip("transformers")

RATE, STEPS = 3e-3, 10
DATA = ToyData(80)


def hand_loop(folder: Path, rows_of: Any, *, decay_everything: bool = False) -> tuple[list[float], list[float], Any]:
    """Padded batches, torch's AdamW with the two usual groups, clip at 1, linear schedule."""
    model = transformers.BertForSequenceClassification.from_pretrained(folder, attn_implementation="eager")
    model.train()
    named = list(model.named_parameters())
    spared = [p for name, p in named if ("bias" in name or "LayerNorm" in name) and not decay_everything]
    kept = [p for _, p in named if not any(p is q for q in spared)]
    groups = [{"params": kept, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    schedule = linear_schedule(STEPS)
    losses, norms = [], []
    for step in range(STEPS):
        rows = rows_of(step)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(DATA.sequences[row]) for row in rows], batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence(
            [torch.ones(len(DATA.sequences[row]), dtype=torch.long) for row in rows], batch_first=True
        )
        loss = model(input_ids=ids, attention_mask=mask, labels=DATA.labels[rows]).loss
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        for group in optimizer.param_groups:
            group["lr"] = RATE * schedule(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, norms, model


def our_loop(model: BertForSequenceClassification, max_tokens: int) -> tuple[list[float], list[float], Any]:
    trainer = toy_trainer(model, DATA, num_steps=STEPS, max_tokens=max_tokens, learning_rate=RATE, evaluate=False)
    model.train()
    results = [trainer.train_step() for _ in range(STEPS)]
    return [r.loss for r in results], [r.grad_norm for r in results], trainer


@pytest.mark.parametrize("max_tokens", [10_000, 25])
def test_ten_steps_equal_a_hand_written_loop(tmp_path: Path, max_tokens: int) -> None:
    model = no_dropout()
    model.save_pretrained(tmp_path)
    losses, norms, trainer = our_loop(model, max_tokens)
    expected_losses, expected_norms, theirs = hand_loop(tmp_path, trainer.plan.rows)
    assert losses == pytest.approx(expected_losses, abs=1e-5)
    assert norms == pytest.approx(expected_norms, rel=1e-4)
    model.eval(), theirs.eval()
    ids = torch.randint(1, 101, (8, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, theirs(input_ids=ids).logits, atol=1e-4, rtol=1e-4)


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Control: another order of the data, or decay of biases and norms, is outside the tolerance."""
    model = no_dropout()
    model.save_pretrained(tmp_path)
    losses, _, trainer = our_loop(model, 10_000)
    shifted, _, _ = hand_loop(tmp_path, lambda step: trainer.plan.rows(step + 1))
    assert max(abs(a - b) for a, b in zip(losses, shifted, strict=True)) > 1e-3
    decayed, _, _ = hand_loop(tmp_path, trainer.plan.rows, decay_everything=True)
    assert max(abs(a - b) for a, b in zip(losses, decayed, strict=True)) > 1e-7
