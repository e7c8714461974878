"""Pre-training's loss has two terms with different numbers of targets; a step must weigh each by its own count."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from bertkit.batch import Batch, pack
from bertkit.model.loading import load_model
from bertkit.model.models import BertForPreTraining
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions

SEQUENCES, VOCAB = 12, 60


class Examples:
    """A plan of one step: ragged sequences, some tokens of each a masked-LM target, each with a pair label."""

    steps_per_epoch, unit = 1, "tokens"

    def __init__(self, parts: int) -> None:
        chance = torch.Generator().manual_seed(3)
        lengths = torch.randint(4, 20, (SEQUENCES,), generator=chance).tolist()
        self.ids = [torch.randint(5, VOCAB, (length,), generator=chance) for length in lengths]
        self.labels = []
        for row, ids in enumerate(self.ids):
            chosen = torch.rand(len(ids), generator=chance) < 0.1 + 0.05 * row  # micro-batches differ in their counts
            chosen[0] = True
            self.labels.append(torch.where(chosen, ids, -100))
        self.pair = torch.randint(0, 2, (SEQUENCES,), generator=chance)
        self.parts = parts

    def micro_batches(self, step: int) -> list[Batch]:
        return [self.batch(rows.tolist()) for rows in torch.arange(SEQUENCES).tensor_split(self.parts)]

    def batch(self, rows: list[int]) -> Batch:
        labels = torch.cat([self.labels[row] for row in rows])
        batch = pack(
            [self.ids[row] for row in rows], targets={"labels": labels, "next_sentence_label": self.pair[rows]}
        )
        return replace(batch, logit_rows=(labels != -100).nonzero().squeeze(1))

    def rows(self, step: int) -> list[int]:
        return list(range(SEQUENCES))

    def size(self, step: int) -> int:
        return sum(map(len, self.ids))


@pytest.fixture
def pair(tmp_path) -> tuple[BertForPreTraining, transformers.BertForPreTraining]:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.BertForPreTraining(config)
    theirs.save_pretrained(tmp_path)
    return load_model(BertForPreTraining, tmp_path), theirs


def trainer_of(model: BertForPreTraining, parts: int) -> Trainer[Batch]:
    options = LoopOptions(1, 1e-3, max_grad_norm=1e9)
    records: list[dict] = []
    optimizer = adamw(parameter_groups(model), learning_rate=1e-3)
    trainer = Trainer(model, Examples(parts), optimizer, linear_schedule(1), options, log=records.append)
    trainer.records = records  # type: ignore[attr-defined]
    return trainer


def their_step(model: transformers.BertForPreTraining, data: Examples) -> tuple[float, float]:
    """Loss of the whole batch, padded, and the norm of its gradient."""
    pad = torch.nn.utils.rnn.pad_sequence
    out = model(
        input_ids=pad(data.ids, batch_first=True),
        attention_mask=pad([torch.ones(len(ids), dtype=torch.int64) for ids in data.ids], batch_first=True),
        labels=pad(data.labels, batch_first=True, padding_value=-100),
        next_sentence_label=data.pair,
    )
    out.loss.backward()
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    return float(out.loss.detach()), float(norm.detach())


@pytest.mark.parametrize("parts", [1, 3, 5])
def test_step_equals_transformers_on_the_whole_batch(pair, parts: int) -> None:
    ours, theirs = pair
    trainer = trainer_of(ours, parts)
    loss, norm = their_step(theirs, Examples(1))
    result = trainer.train_step()
    assert result.loss == pytest.approx(loss, abs=1e-5)
    assert result.grad_norm == pytest.approx(norm, rel=1e-4)
    assert set(result.losses) == {"masked_lm", "next_sentence"}
    assert result.num_targets["next_sentence"] == SEQUENCES
    assert result.num_targets["masked_lm"] == sum(int((row != -100).sum()) for row in Examples(1).labels)
    [record] = trainer.records  # type: ignore[attr-defined]
    assert record["masked_lm_loss"] + record["next_sentence_loss"] == pytest.approx(record["loss"], abs=1e-9)


def test_a_mean_of_the_parts_means_would_differ(pair) -> None:
    """Control: the usual accumulation, the mean of each micro-batch's loss, is another number on this data."""
    ours, theirs = pair
    loss, _ = their_step(theirs, Examples(1))
    with torch.no_grad():
        means = [ours.forward_packed(batch).loss for batch in Examples(3).micro_batches(0)]
    assert abs(float(torch.stack(means).mean()) - loss) > 1e-3


def test_epoch_loss_is_the_sum_of_both_means(pair) -> None:
    trainer = trainer_of(pair[0], 3)
    loss, _ = their_step(pair[1], Examples(1))
    assert trainer.run().epochs[0]["train_loss"] == pytest.approx(loss, abs=1e-5)
