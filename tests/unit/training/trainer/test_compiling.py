"""``torch.compile`` in the loop: clear refusals, nothing left behind; and the same run (a campaign)."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import ConfigError
from bertkit.training.trainer.compiling import check_compiling, compiled, will_compile
from bertkit.training.trainer.half_weights import half_weights
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


@pytest.mark.parametrize("half", [pytest.param(False, marks=pytest.mark.campaign), True])
def test_one_graph_for_all_layers_and_numbers_of_tokens(half: bool) -> None:
    """Forward and backward of ragged steps, with weights in float32 or copies in 16 bits: the first layer compiles."""
    from torch._dynamo.backends.debugging import aot_eager
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    calls: list[int] = []  # of the compiler, by numbers of tokens; it is free to begin a graph again
    tokens: set[int] = set()

    def compiler(graph: Any, inputs: Any) -> Any:
        calls.append(next(len(each) for each in inputs if isinstance(each, torch.Tensor)))
        return aot_eager(graph, inputs)

    model = no_dropout().train()
    with compiled(model, enabled=True, backend=compiler):
        for step in range(12):
            for batch in DATA.plan().micro_batches(step):
                tokens.add(batch.layout.num_tokens)
                with half_weights(model, torch.bfloat16) if half else nullcontext():
                    terms = model.forward_packed(batch).loss_terms
                    assert terms is not None
                    terms["loss"].total.backward()
    assert len(tokens) > 8
    assert len(set(calls)) == 1
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["frames"]["total"] == 1
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("capability", "precision", "num_steps", "max_seconds", "expected"),
    [
        ((9, 0), "bf16", 100_000, None, True),
        ((9, 0), "bf16", 10**12, 3600.0, True),
        ((9, 0), "bf16", 1_000, None, False),
        ((9, 0), "bf16", 10**12, 600.0, False),
        ((9, 0), "fp32", 100_000, None, False),
        ((7, 5), "fp16", 100_000, None, False),
        (None, "bf16", 100_000, None, False),
    ],
)
def test_only_long_runs_in_16_bits_compile_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int] | None,
    precision: Any,
    num_steps: int,
    max_seconds: float | None,
    expected: bool,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr("bertkit.training.trainer.precision.varlen_capability", lambda device: capability)
    device = torch.device("cuda")
    assert will_compile("auto", device, precision, num_steps, max_seconds) is expected
    assert not will_compile("auto", device, precision, num_steps, max_seconds, fits=False)
    assert will_compile("on", device, precision, num_steps, max_seconds, fits=False)
    assert not will_compile("off", device, precision, num_steps, max_seconds)


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
