"""Optimizer steps on questions against a loop written by hand over ``transformers.BertForMultipleChoice``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit.batch import collate_groups
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.model.models import BertForMultipleChoice
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.ragged import GroupSet, Ragged, boundaries_of
from bertkit.tasks.choices.task import SWAG
from bertkit.tasks.choices.workflow import ChoiceWorkflow
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from training_helpers import TINY

transformers = pytest.importorskip("transformers")

RATE, STEPS, CHOICES = 3e-3, 4, 3


def questions(count: int = 24) -> GroupSet:
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, 15, size=count * CHOICES)
    boundaries = boundaries_of(lengths)
    ids = generator.integers(1, 101, size=boundaries[-1]).astype(np.int32)
    types = (np.arange(boundaries[-1]) - np.repeat(boundaries[:-1], lengths) >= 2).astype(np.int8)
    return GroupSet(
        Ragged(ids, boundaries, types, lengths),
        np.arange(0, count * CHOICES + 1, CHOICES),
        lengths.reshape(count, CHOICES).sum(axis=1),
        np.zeros(count, dtype=np.bool_),
        generator.integers(0, CHOICES, size=count),
    )


def padded(found: GroupSet, rows: list[int]) -> dict[str, torch.Tensor]:
    sequences = found.sequences_of(rows).tolist()
    width = int(found.sequences.lengths[sequences].max())
    made = {
        name: torch.zeros(len(sequences), width, dtype=torch.long)
        for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    for number, sequence in enumerate(sequences):
        ids, types = found.sequences[sequence], found.sequences.types(sequence)
        size = len(ids)
        made["input_ids"][number, :size] = torch.from_numpy(ids.astype(np.int64))
        made["token_type_ids"][number, :size] = torch.from_numpy(types.astype(np.int64))
        made["attention_mask"][number, :size] = 1
    return {name: value.view(len(rows), CHOICES, width) for name, value in made.items()}


@pytest.mark.parametrize("max_tokens", [10_000, 60])
def test_steps_and_logits_equal_a_hand_written_loop(tmp_path: Path, max_tokens: int) -> None:
    torch.manual_seed(0)
    found = questions()
    ours = BertForMultipleChoice(TINY.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    ours.save_pretrained(tmp_path)
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path, attn_implementation="eager").train()
    plan = EpochPlan(
        found.lengths.tolist(), lambda rows: collate_groups(found, rows, labelled=True), step_size=8,
        max_tokens=max_tokens, seed=0,
    )  # fmt: skip
    schedule = linear_schedule(STEPS)
    trainer = Trainer(ours.train(), plan, adamw(parameter_groups(ours), learning_rate=RATE), schedule,
                      LoopOptions(STEPS, RATE))  # fmt: skip
    named = list(theirs.named_parameters())
    spared = [p for name, p in named if "bias" in name or "LayerNorm" in name]
    kept = [p for _, p in named if not any(p is q for q in spared)]
    groups = [{"params": kept, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    for step in range(STEPS):
        rows = plan.rows(step)
        assert found.labels is not None
        loss = theirs(**padded(found, rows), labels=torch.from_numpy(found.labels[rows])).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0).item()
        for group in optimizer.param_groups:
            group["lr"] = RATE * schedule(step)
        optimizer.step()
        optimizer.zero_grad()
        result = trainer.train_step()
        assert result.loss == pytest.approx(loss.item(), abs=1e-5)
        assert result.grad_norm == pytest.approx(norm, rel=1e-4)
    theirs.eval()
    with torch.no_grad():
        expected = theirs(**padded(found, list(range(len(found))))).logits.numpy()
    logits = ChoiceWorkflow(SWAG).outputs(InferenceEngine.for_scoring(ours), found, check=lambda: None, label="scoring")
    # The bias moves all choices alike, so its gradient is rounding alone, and Adam makes a step of it.
    logits, expected = (x - x.mean(axis=1, keepdims=True) for x in (logits, expected))
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    assert np.abs(logits - logits[::-1]).max() > 1e-3, "control: questions differ"
