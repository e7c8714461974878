"""Two lengths in one run: which step sees what, and a resume across the switch."""

from __future__ import annotations

import json

import pytest
import torch

from bertkit.data.examples.masking import MaskVocabulary
from bertkit.errors import ConfigError
from bertkit.system.interrupts import Interrupted
from bertkit.training.pretraining.pretrain import pretrain
from bertkit.training.pretraining.pretrain_data import TimedPhases, training_data
from bertkit.training.pretraining.pretrain_settings import PretrainConfig
from pretrain_runs import SETTINGS, SHAPE, interrupt_after, weights

TWO = SETTINGS.replace(
    max_seq_length=48, short_seq_length=16, short_share=0.75, max_predictions_per_seq=7, short_seq_prob=0.0
)


def test_each_step_is_that_of_its_phase(stores) -> None:
    """Against the data of each length alone."""
    vocabulary = MaskVocabulary.of_tokenizer(stores[0].tokenizer())
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
    assert config.phases == [(128, 20, 256, 900_000), (512, 77, 256, 100_000)]
    assert PretrainConfig(max_steps=5).phases == [(128, None, 256, 5)]
    # LAMB (You et al. 2020) halves the batch where the examples become longer.
    config = config.replace(batch_size=32768, short_batch_size=65536)
    assert [phase.batch_size for phase in config.phases] == [65536, 32768]


def test_a_clock_ends_the_first_phase(stores) -> None:
    """Whatever is asked for ahead of the clock, and again after it: what was told of a step stays true."""
    config = TWO.replace(max_seconds=100.0, max_steps=None, short_batch_size=3)
    seconds = 0.0
    vocabulary = MaskVocabulary.of_tokenizer(stores[0].tokenizer())
    plan = training_data(stores[0], vocabulary, config, clock=lambda: seconds)
    long = training_data(stores[0], vocabulary, config.replace(short_seq_length=None, short_batch_size=None))

    def is_long(step: int) -> bool:
        return max(batch.layout.max_seqlen for batch in plan.micro_batches(step)) > 16

    assert not any(is_long(step) for step in (0, 1, 5))
    assert len(plan.rows(0)) == 3
    seconds = 75.0
    assert [is_long(step) for step in (2, 5, 6, 3, 7)] == [False, False, True, False, True]
    assert plan.rows(6) == long.rows(6)
    resumed = training_data(stores[0], vocabulary, config, clock=lambda: seconds)
    assert resumed.rows(20) == plan.rows(20) == long.rows(20)


def test_steps_end_the_first_phase_where_they_do_so_before_the_clock(stores) -> None:
    config = TWO.replace(max_seconds=100.0, max_steps=8)
    plan = training_data(stores[0], MaskVocabulary.of_tokenizer(stores[0].tokenizer()), config)
    lengths = [max(batch.layout.max_seqlen for batch in plan.micro_batches(step)) for step in range(8)]
    assert [length > 16 for length in lengths] == [False] * 6 + [True] * 2


def test_several_processes_cannot_follow_one_clock(stores) -> None:
    config = TWO.replace(max_seconds=100.0, max_steps=None)
    with pytest.raises(ConfigError, match="does not work with 2 processes"):
        training_data(stores[0], MaskVocabulary.of_tokenizer(stores[0].tokenizer()), config, rank=0, num_ranks=2)


@pytest.mark.campaign
@pytest.mark.slow
def test_a_run_of_two_lengths_under_a_time_budget(stores, tmp_path, monkeypatch) -> None:
    seen = []

    def locate(self, step):
        plan, own_step = TimedPhases.locate(self, step)
        seen.append(plan.rules.max_seq_length)
        return plan, own_step

    timed = type("Seen", (TimedPhases,), {"locate": locate})
    monkeypatch.setattr("bertkit.training.pretraining.pretrain_data.TimedPhases", timed)
    config = TWO.replace(max_seconds=4.0, short_share=0.5, max_steps=None)
    result = pretrain(stores[0], tmp_path / "run", config, model=SHAPE)
    assert result.progression.seconds >= 4.0
    assert set(seen) == {16, 48}
    assert seen == sorted(seen)


@pytest.mark.slow
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
        ({"short_batch_size": 64}, "short_seq_length"),
        ({"short_seq_length": 64, "max_steps": 1}, "at least 2"),
    ],
)
def test_what_has_no_meaning_is_refused(changes, told) -> None:
    with pytest.raises(ConfigError, match=told):
        PretrainConfig(**changes).check()
