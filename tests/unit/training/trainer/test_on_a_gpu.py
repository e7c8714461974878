"""On a real GPU only: what the other tests of training pretend to have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from bertkit.batch import Fill, Layout
from bertkit.model.attention import attend_reference
from bertkit.model.kernels.varlen_attention import attend_varlen
from bertkit.training.trainer import unread
from training_helpers import ToyData, no_dropout, tiny_model, toy_trainer, weights

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0), reason="needs a GPU of 8.0 or newer"
)
GPU, DATA = torch.device("cuda"), ToyData()
RAGGED = (5, 1, 9, 9, 130, 2, 64)


@pytest.fixture
def waits_allowed_again() -> Iterator[None]:
    """What a test forbids ends with it."""
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("width", [32, 26])
@pytest.mark.parametrize("fills", [False, True])
def test_the_kernel_computes_what_the_reference_does(width: int, fills: bool) -> None:
    plain = Layout(RAGGED)
    layout = plain.with_offsets(Fill(plain.num_tokens + 100, 20, 192)) if fills else plain.with_offsets()
    assert layout.offsets is not None
    layout = replace(layout, offsets=layout.offsets.to(GPU))
    qkv = torch.randn(plain.num_tokens, 3, 2, width, device=GPU)
    direction = torch.randn(plain.num_tokens, 2, width, device=GPU)
    exact, half = qkv.clone().requires_grad_(), qkv.bfloat16().requires_grad_()
    wanted = attend_reference(exact, plain, 0.0)
    found = attend_varlen(F.pad(half, (0, 0, 0, 0, 0, 0, 0, layout.num_fillers)), layout, 0.0)[: plain.num_tokens]
    wanted.mul(direction).sum().backward()
    found.float().mul(direction).sum().backward()
    assert exact.grad is not None
    assert half.grad is not None
    assert (found.float() - wanted).abs().max() < 0.05
    assert F.cosine_similarity(half.grad.float().flatten(), exact.grad.flatten(), dim=0) > 0.999


def test_dropout_keeps_the_mean_and_drops_the_share() -> None:
    """Keys that all score alike, values of 1: each output is the kept share over 0.9."""
    layout, p = Layout((512,) * 8), 0.1
    qkv = torch.zeros(layout.num_tokens, 3, 4, 32, device=GPU, dtype=torch.bfloat16)
    qkv[:, 2] = 1.0
    out = attend_varlen(qkv, layout, p)[..., 0].float()
    assert abs(float(out.mean()) - 1.0) < 0.005
    expected = (p / (1 - p) / 512) ** 0.5
    assert 0.8 * expected < float(out.std()) < 1.3 * expected


def test_no_step_waits(waits_allowed_again: None) -> None:
    """The first step is read, the next ones are not."""
    trainer = toy_trainer(tiny_model().to(GPU), DATA, num_steps=40, evaluate=False, precision="bf16")
    trainer.train_step()
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(unread.READ_EVERY - 1):
        trainer.train_step()


def test_training_is_near_that_of_a_cpu() -> None:
    runs = [toy_trainer(no_dropout().to(device), DATA, num_steps=30, evaluate=False, precision=precision)
            for device, precision in (("cpu", "fp32"), ("cuda", "fp32"), ("cuda", "bf16"))]  # fmt: skip
    losses = [trainer.run().epochs[-1]["train_loss"] for trainer in runs]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[2] == pytest.approx(losses[0], rel=0.1)


def test_deterministic_runs_are_the_same_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found = []
    for _ in range(2):
        trainer = toy_trainer(
            tiny_model().to(GPU), DATA, num_steps=20, evaluate=False, precision="bf16", deterministic=True
        )
        trainer.run()
        found.append(weights(trainer.model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
