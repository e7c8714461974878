"""``torch.compile`` in the loop: clear refusals, nothing left behind; and the same run (a campaign)."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from bertkit.errors import ConfigError
from bertkit.training.trainer.compiling import check_compiling, compiled
from training_helpers import ToyData, no_dropout, tiny_model, toy_trainer

DATA = ToyData()
CPU = torch.device("cpu")


def test_without_a_compiler_a_trainer_is_refused() -> None:
    from torch._inductor import config, cpp_builder

    cpp_builder.cpp_compiler_search.cache_clear()
    with (
        config.patch({"cpp.cxx": ("no-such-compiler",)}),
        pytest.raises(ConfigError, match=r"needs a C\+\+ compiler.*leave compile out"),
    ):
        toy_trainer(tiny_model(), DATA, compile=True)
    cpp_builder.cpp_compiler_search.cache_clear()


def test_sharded_weights_are_refused() -> None:
    with pytest.raises(ConfigError, match="use mode ddp"):
        check_compiling(CPU, sharded=True)


@pytest.mark.slow
def test_nothing_stays_on_the_model() -> None:
    model = tiny_model()
    before = [dict(layer.__dict__) for layer in model.bert.encoder.layer]
    with compiled(model, enabled=True):
        assert all("after_attention" in layer.__dict__ for layer in model.bert.encoder.layer)
    assert [dict(layer.__dict__) for layer in model.bert.encoder.layer] == before
    copy.deepcopy(model)


@pytest.mark.campaign
def test_compiled_training_is_the_same_to_rounding() -> None:
    runs = [toy_trainer(no_dropout(), DATA, num_steps=8, compile=flag, evaluate=False) for flag in (False, True)]
    losses = [trainer.run().epochs[-1]["train_loss"] for trainer in runs]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.campaign
def test_compiled_training_resumes_bit_for_bit_with_dropout(tmp_path: Path) -> None:
    whole = toy_trainer(tiny_model(), DATA, compile=True)
    whole.run()
    first = toy_trainer(tiny_model(), DATA, folder=tmp_path, compile=True)
    with compiled(first.model, enabled=True):
        for _ in range(10):
            first.train_step()
            if first._epoch_ended():
                first._end_epoch(lambda: None)
    first.save()
    second = toy_trainer(tiny_model(), DATA, folder=tmp_path, seed=5, compile=True)
    assert second.resume()
    second.run()
    for one, other in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
