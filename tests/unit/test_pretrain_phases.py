"""Two lengths in one run: which step sees what, and a resume across the switch."""

from __future__ import annotations

import json

import pytest
import torch

from bertkit.errors import ConfigError
from bertkit.training.interrupts import Interrupted
from bertkit.training.pretrain import pretrain
from bertkit.training.pretrain_data import mask_vocabulary, training_data
from bertkit.training.pretrain_settings import PretrainConfig
from pretrain_runs import SETTINGS, SHAPE, interrupt_after, weights

TWO = SETTINGS.replace(
    max_seq_length=48, short_seq_length=16, short_share=0.75, max_predictions_per_seq=7, short_seq_prob=0.0
)


def test_each_step_is_that_of_its_phase(stores) -> None:
    """Against the data of each length alone."""
    vocabulary = mask_vocabulary(stores[0].tokenizer())
    plan = training_data(stores[0], vocabulary, TWO)
    short = training_data(
        stores[0], vocabulary, TWO.replace(max_seq_length=16, short_seq_length=None, max_predictions_per_seq=3)
    )
    long = training_data(stores[0], vocabulary, TWO.replace(short_seq_length=None))
    for step in range(12):
        alone, own_step = (short, step) if step < 9 else (long, step - 9)
        assert plan.rows(step) == alone.rows(own_step)
        assert plan.size(step) == alone.size(own_step)
        mine, theirs = plan.micro_batches(step), alone.micro_batches(own_step)
        assert [batch.layout for batch in mine] == [batch.layout for batch in theirs]
        assert all(torch.equal(a.input_ids, b.input_ids) for a, b in zip(mine, theirs, strict=True))
        assert (max(batch.layout.max_seqlen for batch in mine) > 16) == (step >= 9)


def test_the_published_numbers() -> None:
    config = PretrainConfig(max_steps=1_000_000, max_seq_length=512, short_seq_length=128, max_predictions_per_seq=77)
    assert config.phases == [(128, 20, 900_000), (512, 77, 100_000)]
    assert PretrainConfig(max_steps=5).phases == [(128, None, 5)]


def test_a_run_goes_on_bit_for_bit_across_the_switch(stores, tmp_path, monkeypatch) -> None:
    config = TWO.replace(max_steps=8)  # 6 short steps, 2 long ones
    pretrain(stores[0], tmp_path / "whole", config, model=SHAPE)
    interrupt_after(monkeypatch, 5, 6, 7)
    for _ in range(3):
        with pytest.raises(Interrupted):
            pretrain(stores[0], tmp_path / "parts", config, model=SHAPE)
    pretrain(stores[0], tmp_path / "parts", config, model=SHAPE)
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    lines = (tmp_path / "parts" / "log.jsonl").read_text().splitlines()
    rates = [record["lr"] for record in map(json.loads, lines) if "event" not in record]
    assert rates[1:] == sorted(rates[1:], reverse=True)  # one schedule over both phases


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"short_seq_length": 129}, "at most max_seq_length=128"),
        ({"short_seq_length": 64, "max_seconds": 60.0}, "time budget"),
        ({"short_seq_length": 64, "max_steps": 1}, "at least 2"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, told) -> None:
    with pytest.raises(ConfigError, match=told):
        PretrainConfig(**changes).check()
