"""bf16 and fp16: near fp32, the published scaling rule, exact resume, and what happens when numbers overflow."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import ConfigError, TrainingError
from bertkit.model.models import BertForPreTraining
from bertkit.system.processor import Processor, find_processor
from bertkit.training.trainer import precision as module
from bertkit.training.trainer.loop_options import Progression
from bertkit.training.trainer.precision import (
    autocast,
    bf16_speedup,
    check_precision,
    fastest_precision,
    float32_products_in,
    overflowed,
    plain_precision,
    update_loss_scale,
)
from training_helpers import TINY, ToyData, no_dropout, tiny_model, toy_trainer, weights

DATA = ToyData()
HALF = ("bf16", "fp16")


@pytest.mark.parametrize(("precision", "bits"), [("bf16", 8), ("fp16", 11)])
def test_losses_are_near_those_of_fp32_but_not_equal(precision: str, bits: int) -> None:
    trainers = [toy_trainer(no_dropout(), DATA, precision=name) for name in ("fp32", precision)]
    exact, half = ([trainer.train_step() for _ in range(5)] for trainer in trainers)
    for one, other in zip(exact, half, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=4 * 2.0**-bits)
        assert other.grad_norm == pytest.approx(one.grad_norm, rel=16 * 2.0**-bits)
    assert [step.loss for step in exact] != [step.loss for step in half]  # control: it was computed in less than fp32


@pytest.mark.slow
@pytest.mark.parametrize("precision", HALF)
def test_weights_gradients_and_optimizer_stay_fp32_and_training_learns(precision: str) -> None:
    trainer = toy_trainer(tiny_model(), DATA, num_steps=60, precision=precision)
    at = trainer.run()
    assert at.epochs[-1]["train_loss"] < 0.7 * at.epochs[0]["train_loss"]
    for p in trainer.trained:
        assert p.dtype == torch.float32
        assert {value.dtype for value in trainer.optimizer.state[p].values()} == {torch.float32}


@pytest.mark.parametrize("precision", HALF)
def test_the_pretraining_loss_is_summed_in_fp32(precision: Any) -> None:
    torch.manual_seed(0)
    model = BertForPreTraining(TINY)
    batch = DATA.batch(list(range(20)))
    labels = batch.input_ids.clone()
    batch = batch.with_target("labels", labels).with_target("next_sentence_label", torch.zeros(20, dtype=torch.int64))
    with autocast(precision, torch.device("cpu")):
        terms = model.forward_packed(batch).loss_terms
    assert terms is not None
    assert {term.total.dtype for term in terms.values()} == {torch.float32}


@pytest.mark.slow
@pytest.mark.parametrize("precision", HALF)
def test_resume_is_bit_for_bit_in_training_mode(tmp_path: Path, precision: str) -> None:
    def trainer(folder: str, seed: int | None = 0) -> Any:
        # 2**127 overflows at once, so the scale, the skipped steps and the count are a part of the state.
        made = toy_trainer(tiny_model(), DATA, folder=tmp_path / folder, seed=seed, precision=precision)
        made.at.loss_scale = 2.0**127
        return made

    whole = trainer("whole")
    whole.run()
    first = trainer("parts")
    for _ in range(10):
        first.train_step()
        if first._epoch_ended():
            first._end_epoch(lambda: None)
    first.save()
    torch.manual_seed(99)
    second = trainer("parts", seed=7)
    assert second.resume()
    second.run()
    assert second.at.num_skipped == whole.at.num_skipped
    assert (whole.at.num_skipped > 0) == (precision == "fp16")
    assert second.at.loss_scale == whole.at.loss_scale
    for name, p in second.model.named_parameters():
        assert torch.equal(p, dict(whole.model.named_parameters())[name]), name


def test_the_scale_follows_the_rule_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWTH_INTERVAL", 3)
    oracle = torch.amp.GradScaler("cpu", init_scale=65536.0, growth_interval=3)  # type: ignore[attr-defined]
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    at = Progression()
    outcomes = [True, False, False, False, True, True, False, False, True, *[False] * 8]
    for bad in outcomes:
        oracle.scale(weight.sum()).backward()
        assert weight.grad is not None
        if bad:
            weight.grad.fill_(math.inf)
        oracle.step(optimizer)
        oracle.update()
        weight.grad = None
        update_loss_scale(at, "fp16", skipped=bad)
        assert at.loss_scale == oracle.get_scale()
    assert at.num_skipped == sum(outcomes)


def test_an_overflow_skips_the_step_and_is_logged() -> None:
    records: list[dict[str, Any]] = []
    model = tiny_model()
    trainer = toy_trainer(model, DATA, num_steps=3, evaluate=False, precision="fp16")
    trainer.log = records.append
    before = weights(model)
    hook = model.classifier.weight.register_hook(lambda grad: grad * math.inf)
    result = trainer.train_step()
    hook.remove()
    assert result.skipped
    assert math.isfinite(result.loss)
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert not trainer.optimizer.state
    assert trainer.run().num_skipped == 1
    assert [record.get("skipped", False) for record in records if "lr" in record] == [True, False, False]
    assert records[0]["grad_norm"] is None
    assert [record["loss_scale"] for record in records if "lr" in record] == [32768.0] * 3


def test_gradients_are_clipped_by_their_true_norm() -> None:
    norms = []
    for scale in (1.0, 2.0**15):
        model = no_dropout()
        trainer = toy_trainer(model, DATA, max_grad_norm=1e-3, precision="fp16")
        trainer.at.loss_scale = scale
        step = trainer.optimizer.step
        trainer.optimizer.step = lambda step=step, model=model: (  # type: ignore[method-assign]
            norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()),
            step(),
        )
        assert trainer.train_step().grad_norm > 1e-2
    assert norms == pytest.approx([1e-3, 1e-3], rel=1e-3)


@pytest.mark.parametrize("precision", HALF)
def test_a_loss_that_is_not_finite_still_stops_before_the_step(tmp_path: Path, precision: str) -> None:
    model = tiny_model()
    trainer = toy_trainer(model, DATA, folder=tmp_path, precision=precision)
    trainer.train_step()
    before = weights(model)
    model.classifier.register_forward_hook(lambda module, args, out: out * math.nan)
    with pytest.raises(TrainingError, match="step 2 of 20: the loss is nan"):
        trainer.run()
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    assert (tmp_path / "failed-step-00000002.json").exists()


def test_gradients_that_overflow_at_every_scale_stop_the_run() -> None:
    model = tiny_model()
    trainer = toy_trainer(model, DATA, num_steps=1000, evaluate=False, precision="fp16")
    model.classifier.weight.register_hook(lambda grad: grad * math.inf)
    with pytest.raises(TrainingError, match=r"gradient norm (nan|inf)"):
        trainer.run()
    assert trainer.at.num_skipped == 30
    assert not overflowed(1.0, math.inf, "bf16", Progression())  # without a scale there is nothing to halve


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ConfigError, match="fp32, tf32, bf16 or fp16, got 'fp8'"):
        check_precision("fp8", torch.device("cpu"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instruction_sets", "speedup", "device", "expected"),
    [
        (("AVX2", "AVX-512", "AVX-512 BF16"), 2.0, None, "bf16"),
        (("NEON", "BF16"), 1.4, "cpu", "bf16"),
        (("AVX2", "AVX-512", "AVX-512 BF16"), 0.5, "cpu", "fp32"),
        (("AVX2", "AVX-512"), 2.0, "cpu", "fp32"),
        (("AVX-512 BF16",), 2.0, "mps", "fp32"),
    ],
)
def test_bf16_is_the_default_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, instruction_sets: tuple[str, ...], speedup: float, device: str, expected: str
) -> None:
    processor = Processor("stand-in", 2, instruction_sets, None)
    monkeypatch.setattr(module, "find_processor", lambda: processor)
    monkeypatch.setattr(module, "bf16_speedup", lambda: speedup)
    monkeypatch.setattr(module, "find_device", lambda device, default: torch.device(device or default))
    assert fastest_precision(device) == expected


def test_the_speed_of_bf16_is_measured_and_decides() -> None:
    measured = bf16_speedup()
    assert 0.001 < measured < 100
    assert bf16_speedup() == measured  # once a process
    expected = "bf16" if find_processor().has_bf16 and measured >= module.WORTH_BF16 else "fp32"
    assert fastest_precision(None) == expected


@pytest.mark.parametrize(
    ("capability", "has_bf16", "expected"),
    [
        ((9, 0), True, "bf16"),
        ((8, 0), True, "bf16"),
        ((7, 5), False, "fp16"),
        ((7, 0), False, "fp16"),
        ((6, 1), False, "fp32"),
    ],
)
def test_on_a_gpu_its_capability_decides(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], has_bf16: bool, expected: str
) -> None:
    monkeypatch.setattr(module, "find_device", lambda device, default: torch.device(device or default))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert fastest_precision("cuda") == expected
    assert plain_precision("cuda") == ("tf32" if has_bf16 else "fp32")


def test_tf32_is_for_a_gpu_and_ends_with_the_run() -> None:
    with pytest.raises(ConfigError, match=r"tf32 is for NVIDIA GPUs.*use fp32"):
        check_precision("tf32", torch.device("cpu"))
    before = torch.backends.cuda.matmul.allow_tf32
    for precision, allowed in (("tf32", True), ("fp32", False)):
        with float32_products_in(precision):  # type: ignore[arg-type]
            assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cuda.matmul.allow_tf32 is before
