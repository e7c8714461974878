"""Training of each kind of task, step by step, against a plain loop over ``transformers`` and ``torch.optim.AdamW``.

Both sides start from the same weights and see the same rows in the same order. Without dropout the losses and, after 50
steps, the weights agree: to 1e-5 in float64, the losses to 1e-4 in float32. With dropout on, the distributions of the
loss agree; see :func:`is_alike`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertkit.batch import Batch, pack
from bertkit.config.bert_config import BertConfig
from bertkit.model.models import (
    BertForMultipleChoice,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    HeadModel,
)
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from training_helpers import TINY

transformers = pytest.importorskip("transformers")

RATE, STEPS, ROWS, SIZE, CHOICES, LABELS = 1e-3, 50, 44, 8, 3, 4  # 44 rows: the last batch of an epoch has 4
IGNORED = -100
pad = torch.nn.utils.rnn.pad_sequence


@dataclass(frozen=True)
class Kind:
    """A kind of task: its model and the targets of its rows.

    of_tokens: the targets belong to tokens, not rows. width: sequences of a row.
    same_length: no padding, because transformers' span loss also normalizes over padded positions and bertkit's does
        not.
    """

    model: type[HeadModel]
    config: dict[str, Any]
    targets: Callable[[np.random.Generator, Sequence[int]], dict[str, Tensor]]
    of_tokens: bool = False
    width: int = 1
    same_length: bool = False


def classes(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    return {"labels": torch.from_numpy(generator.integers(LABELS, size=len(lengths)))}


def numbers(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    return {"labels": torch.from_numpy(generator.normal(2.0, 1.5, size=len(lengths)))}


def several(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    return {"labels": torch.from_numpy((generator.random((len(lengths), LABELS)) < 0.4).astype(np.float64))}


def tags(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    """The first piece of each word has a label; the special tokens and other pieces are ignored."""
    drawn = generator.integers(LABELS, size=sum(lengths))
    return {"labels": torch.from_numpy(np.where(generator.random(sum(lengths)) < 0.6, drawn, IGNORED))}


def spans(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    ends = [int(generator.integers(length)) for length in lengths]
    starts = [int(generator.integers(end + 1)) for end in ends]
    return {"start_positions": torch.tensor(starts), "end_positions": torch.tensor(ends)}


def choices(generator: np.random.Generator, lengths: Sequence[int]) -> dict[str, Tensor]:
    return {"labels": torch.from_numpy(generator.integers(CHOICES, size=len(lengths) // CHOICES))}


KINDS = {
    "text": Kind(BertForSequenceClassification, {"num_labels": LABELS}, classes),
    "regression": Kind(BertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}, numbers),
    "multi-label": Kind(
        BertForSequenceClassification, {"num_labels": LABELS, "problem_type": "multi_label_classification"}, several
    ),
    "tokens": Kind(BertForTokenClassification, {"num_labels": LABELS}, tags, of_tokens=True),
    "spans": Kind(BertForQuestionAnswering, {"num_labels": 2}, spans, same_length=True),
    "choices": Kind(BertForMultipleChoice, {}, choices, width=CHOICES),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
#: Where the kinds share all that is tested: the others in the campaign.
one_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=name, marks=[] if name == "text" else pytest.mark.campaign) for name, kind in KINDS.items()],
)


class Data:
    """Random sequences of mixed lengths and their targets, as a packed batch and as padded tensors."""

    def __init__(self, kind: Kind, dtype: torch.dtype) -> None:
        generator = np.random.default_rng(7)
        self.kind = kind
        shortest = 14 if kind.same_length else 3
        lengths = [int(generator.integers(shortest, 15)) for _ in range(ROWS * kind.width)]
        self.sequences = [torch.from_numpy(generator.integers(1, 101, size=length)) for length in lengths]
        self.types = [torch.arange(length) // (length // 2 + 1) for length in lengths]
        self.ends = np.cumsum([0, *lengths])
        made = kind.targets(generator, lengths)
        self.targets = {name: value.to(dtype) if value.is_floating_point() else value for name, value in made.items()}

    @property
    def lengths(self) -> list[int]:
        ends = self.ends[:: self.kind.width]
        return np.diff(ends).tolist()

    def numbers_of(self, rows: Sequence[int]) -> list[int]:
        return [row * self.kind.width + place for row in rows for place in range(self.kind.width)]

    def packed(self, rows: list[int]) -> Batch:
        chosen = self.numbers_of(rows)
        given = [self.sequences[n].tolist() for n in chosen], [self.types[n].tolist() for n in chosen]
        return pack(*given, targets={name: self.of_rows(value, rows) for name, value in self.targets.items()})

    def of_rows(self, value: Tensor, rows: Sequence[int]) -> Tensor:
        if not self.kind.of_tokens:
            return value[list(rows)]
        return torch.cat([value[self.ends[row] : self.ends[row + 1]] for row in rows])

    def padded(self, rows: Sequence[int]) -> dict[str, Tensor]:
        chosen = self.numbers_of(rows)
        sequences = [self.sequences[n] for n in chosen]
        made = {
            "input_ids": pad(sequences, batch_first=True),
            "token_type_ids": pad([self.types[n] for n in chosen], batch_first=True),
            "attention_mask": pad([torch.ones_like(ids) for ids in sequences], batch_first=True),
        }
        if self.kind.width > 1:
            made = {name: value.view(len(rows), self.kind.width, -1) for name, value in made.items()}
        targets = {name: self.of_rows(value, rows) for name, value in self.targets.items()}
        if self.kind.of_tokens:
            parts = targets["labels"].split([len(ids) for ids in sequences])
            targets["labels"] = pad(list(parts), batch_first=True, padding_value=IGNORED)
        return {**made, **targets}

    def plan(self, max_tokens: int = 10_000) -> EpochPlan[Batch]:
        return EpochPlan(self.lengths, self.packed, step_size=SIZE, max_tokens=max_tokens, seed=3)


def models(kind: Kind, folder: Path, dtype: torch.dtype, dropout: float) -> tuple[HeadModel, Any]:
    """The same weights in bertkit's class and in that of transformers, both in training mode."""
    torch.manual_seed(0)
    shape: BertConfig = TINY.replace(
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, initializer_range=0.1, **kind.config
    )
    ours = kind.model(shape)
    ours.save_pretrained(folder)
    peer = getattr(transformers, kind.model.__name__).from_pretrained(folder, attn_implementation="eager")
    return ours.to(dtype).train(), peer.to(dtype).train()


def our_losses(model: HeadModel, data: Data, max_tokens: int) -> list[float]:
    optimizer = adamw(parameter_groups(model), learning_rate=RATE)
    trainer = Trainer(model, data.plan(max_tokens), optimizer, linear_schedule(STEPS), LoopOptions(STEPS, RATE))
    return [trainer.train_step().loss for _ in range(STEPS)]


def peer_losses(model: Any, data: Data, *, decay_everything: bool = False, shift: int = 0) -> list[float]:
    """Padded batches, AdamW with the two usual groups, gradients clipped to 1, linear schedule."""
    plan, schedule = data.plan(), linear_schedule(STEPS)
    spared = [name for name, _ in model.named_parameters() if ("bias" in name or "LayerNorm" in name)]
    named = dict(model.named_parameters())
    groups = [
        {"params": [p for name, p in named.items() if name not in spared], "weight_decay": 0.01},
        {"params": [named[name] for name in spared], "weight_decay": 0.01 if decay_everything else 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    losses = []
    for step in range(STEPS):
        loss = model(**data.padded(plan.rows(step + shift))).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * schedule(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def same_weights(ours: HeadModel, peer: Any, folder: Path, tolerance: float) -> None:
    """Compare through the files that both sides write."""
    ours.save_pretrained(folder)
    again = type(peer).from_pretrained(folder, dtype=torch.float64)
    expected, found = peer.state_dict(), again.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if value.is_floating_point():
            assert float((found[name] - value).abs().max()) < tolerance, name


@each_kind
def test_fifty_steps_in_float64(kind: Kind, tmp_path: Path) -> None:
    fifty_steps(kind, 40, tmp_path)


@one_kind
def test_fifty_steps_in_one_part_each(kind: Kind, tmp_path: Path) -> None:
    fifty_steps(kind, 10_000, tmp_path)


def fifty_steps(kind: Kind, max_tokens: int, tmp_path: Path) -> None:
    ours, peer = models(kind, tmp_path, torch.float64, 0.0)
    data = Data(kind, torch.float64)
    losses, expected = our_losses(ours, data, max_tokens), peer_losses(peer, data)
    assert losses == pytest.approx(expected, abs=1e-5)
    assert max(losses) - min(losses) > 0.05, "the steps change something"
    if kind.model is BertForMultipleChoice:  # its bias moves all choices alike: the gradient is rounding alone
        for model in (ours, peer):
            torch.nn.init.zeros_(model.classifier.bias)
    same_weights(ours, peer, tmp_path / "after", 1e-5)


@pytest.mark.campaign
@each_kind
def test_fifty_steps_in_float32(kind: Kind, tmp_path: Path) -> None:
    ours, peer = models(kind, tmp_path, torch.float32, 0.0)
    data = Data(kind, torch.float32)
    assert our_losses(ours, data, 40) == pytest.approx(peer_losses(peer, data), abs=1e-4)


def test_the_comparison_can_fail(tmp_path: Path) -> None:
    """Control: another order of the rows, or decay of biases and norms, is outside the tolerance."""
    kind = KINDS["text"]
    ours, peer = models(kind, tmp_path, torch.float64, 0.0)
    data = Data(kind, torch.float64)
    losses = our_losses(ours, data, 10_000)
    for change in ({"shift": 1}, {"decay_everything": True}):
        other = peer_losses(copy.deepcopy(peer), data, **change)
        assert max(abs(a - b) for a, b in zip(losses, other, strict=True)) > 1e-5, change


DRAWS = 200
Losses = np.ndarray[Any, Any]


def drawn_losses(kind: Kind, folder: Path, dropout: float) -> tuple[Callable[[], Losses], Callable[[], Losses]]:
    """What draws losses of one batch in training mode, with new masks each time: bertkit's, and transformers'."""
    ours, peer = models(kind, folder, torch.float32, dropout)
    data, rows = Data(kind, torch.float32), list(range(ROWS))
    batch, padded = data.packed(rows), data.padded(rows)

    def draw(loss: Callable[[], Any], seed: int) -> Losses:
        torch.manual_seed(seed)
        with torch.no_grad():
            return np.array([float(loss()) for _ in range(DRAWS)])

    return (
        lambda: draw(lambda: ours.forward_packed(batch).loss, 11),
        lambda: draw(lambda: peer(**padded).loss, 12),
    )


def is_alike(found: Losses, expected: Losses) -> bool:
    """Means within four standard errors of their difference, standard deviations within 25 %: what is drawn may differ
    from one processor to another, and each of several kinds has its draw."""
    error = math.sqrt((found.var(ddof=1) + expected.var(ddof=1)) / DRAWS)
    ratio = found.std(ddof=1) / expected.std(ddof=1)
    return bool(abs(found.mean() - expected.mean()) < 4 * error and 0.8 < ratio < 1.25)


@one_kind
def test_with_dropout_the_losses_have_the_same_distribution(kind: Kind, tmp_path: Path) -> None:
    ours, theirs = drawn_losses(kind, tmp_path, 0.1)
    assert is_alike(ours(), theirs())


@pytest.mark.campaign
def test_the_comparison_of_distributions_can_fail(tmp_path: Path) -> None:
    """Control: another dropout rate is outside the tolerance."""
    ours, _ = drawn_losses(KINDS["text"], tmp_path / "a", 0.1)
    _, theirs = drawn_losses(KINDS["text"], tmp_path / "b", 0.03)
    assert not is_alike(ours(), theirs())
