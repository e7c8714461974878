"""What training does on a GPU, computed on a CPU: results that are read later, 16-bit weights, little memory."""

from __future__ import annotations

import copy
import math
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.config.families import FAMILIES
from bertkit.errors import CheckpointError, ResourceError, TrainingError
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.models import BertForPreTraining, BertForSequenceClassification
from bertkit.training.trainer import assembly
from bertkit.training.trainer.assembly import RunOptions, batches_made_ahead, run_trainer
from bertkit.training.trainer.batch_plan import Prefetched
from bertkit.training.trainer.callbacks import Callback
from bertkit.training.trainer.determinism import is_repeatable
from bertkit.training.trainer.half_weights import half_weights
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.parallel import Parallel
from bertkit.training.trainer.precision import has_copies
from bertkit.training.trainer.within_memory import MemoryLimit
from training_helpers import TINY, ToyData, no_dropout, tiny_model, toy_trainer, weights

DATA = ToyData()
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "num_labels",
)  # fmt: skip


# Results are read later.


def deferred(trainer: Trainer[Batch], every: int) -> Trainer[Batch]:
    """The trainer with results read as on a GPU, every so many steps."""
    trainer.reads_every = every
    return trainer


def test_results_that_are_read_later_are_the_same(tmp_path: Path) -> None:
    """Bit for bit: weights, log, epochs, and what a checkpoint in between resumes to."""
    logs: list[list[dict[str, Any]]] = [[], []]
    whole = toy_trainer(tiny_model(), DATA, num_steps=21)
    whole.log = logs[0].append
    whole.run()
    first = deferred(toy_trainer(tiny_model(), DATA, num_steps=21, folder=tmp_path / "1"), 5)
    first.log = logs[1].append
    for _ in range(7):
        first.train_step()
    assert len(logs[1]) == 6  # the first step is read at once, so that there is something to show
    first.save()  # reads the seventh
    assert len(logs[1]) == 7
    resumed = deferred(toy_trainer(tiny_model(3), DATA, num_steps=21, folder=tmp_path / "1", seed=None), 5)
    resumed.log = logs[1].append
    assert resumed.resume()
    resumed.run()
    for one, other in zip(weights(whole.model).values(), weights(resumed.model).values(), strict=True):
        assert torch.equal(one, other)
    timed = {"rows_per_s", "tokens_per_s", "seconds"}
    plain = [[{k: v for k, v in each.items() if k not in timed} for each in log] for log in logs]
    assert plain[0] == plain[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_failed_step_that_is_read_later_changed_nothing(bad: float) -> None:
    """Nor did the steps after it; the error is about the first one, and the weights are those before it."""
    trainer = deferred(toy_trainer(tiny_model(), DATA, num_steps=20), 10)
    for _ in range(3):
        trainer.train_step()
    before, forward = weights(trainer.model), trainer.model.forward_packed
    moments = copy.deepcopy(trainer.optimizer.state_dict())

    def spoilt(batch: Batch) -> Any:
        out = forward(batch)
        out.loss_terms["loss"] = out.loss_terms["loss"]._replace(total=out.loss_terms["loss"].total * bad)
        return out

    trainer.model.forward_packed = spoilt
    trainer.train_step()
    trainer.model.forward_packed = forward
    trainer.train_step()
    with pytest.raises(TrainingError, match=r"step 4 of 20: the loss is .*the weights are those of step 3"):
        trainer.read()
    assert trainer.at.step == 3
    for name, weight in weights(trainer.model).items():
        assert torch.equal(weight, before[name])
    assert_close(trainer.optimizer.state_dict()["state"], moments["state"], rtol=0, atol=0)


# 16-bit weights.


def test_half_weights_compute_in_16_bits_and_train_float32() -> None:
    """Gradients near those of float32, also of tied weights; nothing stays on the model."""
    torch.manual_seed(0)
    model = BertForPreTraining(TINY.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    model.bert.embeddings.position_embeddings.weight.requires_grad_(False)
    batch = DATA.batch(list(range(20)))
    batch = Batch(batch.input_ids, batch.token_type_ids, batch.position_ids, batch.layout, {"labels": batch.input_ids})
    gradients = []
    for half in (False, True):
        model.zero_grad()
        if half:
            with half_weights(model, torch.bfloat16):
                out = model.forward_packed(batch)
                assert out.prediction_logits.dtype == torch.bfloat16
                out.loss_terms["masked_lm"].total.backward()
        else:
            model.forward_packed(batch).loss_terms["masked_lm"].total.backward()
        assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    assert "bert.embeddings.position_embeddings.weight" not in gradients[1]
    for name, exact in gradients[0].items():
        near = torch.nn.functional.cosine_similarity(exact.flatten(), gradients[1][name].flatten(), dim=0)
        assert near > 0.98, name
    assert all(type(p) is nn.Parameter and p.dtype == torch.float32 for p in model.parameters())
    assert (
        model.bert.embeddings.word_embeddings.weight
        is dict(model.named_parameters())["bert.embeddings.word_embeddings.weight"]
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_every_family_trains_with_half_weights(family: str, device: str) -> None:
    """No part of it mixes types; on a CPU the gradients are near those of float32."""
    own = {
        "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        "modernbert": {"pad_token_id": 0},
    }
    shape = {name: getattr(TINY, name) for name in SIZES} | {"initializer_range": 0.2} | own.get(family, {})
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(model_type=family, **shape)).train().to(device)
    for module in model.modules():
        if isinstance(module, Dropout):
            module.p = 0.0
    batch, gradients = DATA.batch(list(range(20))).to(device), []
    for half in (False, True):
        model.zero_grad()
        with half_weights(model, torch.bfloat16) if half else nullcontext():
            out = model.forward_packed(batch)
            assert out.loss_terms is not None
            total = out.loss_terms["loss"].total
            total.backward()
        assert out.logits is not None
        assert out.logits.dtype == (torch.bfloat16 if half else torch.float32)
        if device == "meta":
            assert total.dtype == torch.float32
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert gradients[0].shape == gradients[1].shape
    if device == "cpu":
        assert nn.functional.cosine_similarity(*gradients, dim=0) > 0.98


def test_a_model_with_parts_of_others_is_autocast() -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.ones(x.shape[-1])

    model, gpu = tiny_model(), torch.device("cuda")
    assert has_copies(model, "bf16", gpu)
    assert not has_copies(model, "fp16", gpu)
    assert not has_copies(model, "bf16", torch.device("cpu"))
    assert not has_copies(nn.Sequential(model, Own()), "bf16", gpu)


# No memory.


def test_without_memory_micro_batches_are_halved_and_the_step_is_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """A forward pass has memory for 30 tokens; the run is that of micro-batches which fit, to rounding."""
    trainers = [toy_trainer(no_dropout(), DATA, num_steps=12, evaluate=False, max_tokens=100) for _ in range(2)]
    limited, forward = trainers[1], trainers[1].model.forward_packed
    refused = []

    def with_little(batch: Batch) -> Any:
        if batch.layout.num_tokens > 30:
            refused.append(batch.layout.num_tokens)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...")
        return forward(batch)

    limited.model.forward_packed = with_little
    losses = [trainer.run().epochs[-1]["train_loss"] for trainer in trainers]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    for one, other in zip(weights(trainers[0].model).values(), weights(limited.model).values(), strict=True):
        assert_close(other, one, rtol=1e-4, atol=1e-5)
    told = capsys.readouterr().err
    assert "no memory left (CUDA out of memory)" in told
    assert "only rounding and dropout differ. To start so: --max-tokens 50" in told
    assert "--max-tokens 25" in told
    assert len(refused) == 2  # from then on the micro-batches are small


def test_dropout_of_a_repeated_step_is_that_of_the_step() -> None:
    """The pass that failed drew numbers; they are given back."""
    trainers = [toy_trainer(tiny_model(), DATA, num_steps=3, evaluate=False, max_tokens=40) for _ in range(2)]
    trainers[0].plan.halve()
    forward, calls = trainers[1].model.forward_packed, []

    def fails_late(batch: Batch) -> Any:
        calls.append(batch)
        out = forward(batch)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("out of memory")
        return out

    trainers[1].model.forward_packed = fails_late
    for trainer in trainers:
        torch.manual_seed(3)
        trainer.train_step()
    for one, other in zip(weights(trainers[0].model).values(), weights(trainers[1].model).values(), strict=True):
        assert torch.equal(one, other)


def test_where_no_batch_is_small_enough_the_error_says_what_to_lower() -> None:
    trainer = toy_trainer(tiny_model(), DATA, num_steps=3, max_tokens=40)

    def never(batch: Batch) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    trainer.model.forward_packed = never
    with pytest.raises(ResourceError, match=r"even for the smallest batch.*lower --max-tokens or the maximum length"):
        trainer.run()


def test_repeatable_kernels_are_asked_for_during_a_run_only() -> None:
    trainer, seen = toy_trainer(tiny_model(), DATA, num_steps=2, evaluate=False, deterministic=True), []
    trainer.log = lambda record: seen.append(torch.are_deterministic_algorithms_enabled())
    assert not torch.are_deterministic_algorithms_enabled()
    trainer.run()
    assert seen
    assert all(seen)
    assert not torch.are_deterministic_algorithms_enabled()
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert [is_repeatable(gpu, deterministic=flag) for flag in (False, True)] == [False, True]
    assert is_repeatable(cpu, deterministic=False)


def test_a_gpu_s_batches_are_made_ahead_and_the_plan_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = toy_trainer(tiny_model(), DATA, num_steps=5, evaluate=False)
    plan = trainer.plan
    with batches_made_ahead(trainer):
        assert trainer.plan is plan  # a CPU
    monkeypatch.setattr(assembly, "runs_ahead", lambda device: True)
    with batches_made_ahead(trainer):
        assert isinstance(trainer.plan, Prefetched)
        trainer.run()
    assert trainer.plan is plan
    alone = toy_trainer(tiny_model(), DATA, num_steps=5, evaluate=False)
    alone.run()
    for one, other in zip(weights(trainer.model).values(), weights(alone.model).values(), strict=True):
        assert torch.equal(one, other)


def test_batches_made_ahead_are_made_once_where_results_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "runs_ahead", lambda device: True)
    trainer = deferred(toy_trainer(tiny_model(), DATA, num_steps=40, evaluate=False), 20)
    made, collate = [], trainer.plan.collate
    trainer.plan.collate = lambda rows: made.append(rows) or collate(rows)
    run_trainer(trainer, RunOptions())
    assert len(made) == 40


@pytest.mark.parametrize("each_step", [False, True])
def test_a_callback_that_acts_on_each_step_is_told_before_the_next(each_step: bool) -> None:
    class Steps(Callback):
        def on_step(self, trainer: Any, record: Any) -> None:
            told.append((record["step"], trainer.at.step))

    told: list[tuple[int, int]] = []
    acts = type("Acts", (Steps,), {"each_step": each_step})
    trainer = deferred(toy_trainer(tiny_model(), DATA, num_steps=7, evaluate=False), 20)
    run_trainer(trainer, RunOptions(callbacks=[Steps(), acts()]))
    expected = [(step, step if each_step or step == 1 else 7) for step in range(1, 8) for _ in range(2)]
    assert told == expected


def test_micro_batches_are_as_small_after_a_resumption(tmp_path: Path) -> None:
    """A run that had no memory, stopped and resumed with dropout: the bits of one that was not stopped."""

    def refuses(trainer: Trainer[Batch]) -> Trainer[Batch]:
        forward = trainer.model.forward_packed

        def with_little(batch: Batch) -> Any:
            if trainer.at.step == 1 and batch.layout.num_tokens > 30:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return forward(batch)

        trainer.model.forward_packed = with_little
        return trainer

    options: Any = {"num_steps": 12, "evaluate": False, "max_tokens": 100}
    whole = refuses(toy_trainer(tiny_model(), DATA, **options))
    whole.run()
    first = refuses(toy_trainer(tiny_model(), DATA, folder=tmp_path / "1", **options))
    for _ in range(4):
        first.train_step()
    first.save()
    resumed = toy_trainer(tiny_model(3), DATA, folder=tmp_path / "1", **{**options, "seed": None})
    assert resumed.resume()
    assert resumed.plan.max_tokens == 25
    resumed.run()
    for one, other in zip(weights(whole.model).values(), weights(resumed.model).values(), strict=True):
        assert torch.equal(one, other)
    smaller = toy_trainer(tiny_model(3), DATA, folder=tmp_path / "1", **{**options, "max_tokens": 20})
    assert smaller.resume()
    assert smaller.plan.max_tokens == 20  # was asked for, and is small enough


def test_each_rank_goes_on_with_its_own_limit_and_others_with_the_smallest() -> None:
    for rank, num_ranks, expected in ((0, 2, 100), (1, 2, 25), (0, 1, 25), (2, 3, 25)):
        plan, limit = DATA.plan(max_tokens=100), MemoryLimit(None, torch.device("cpu"), Parallel(rank, num_ranks))
        limit.restore(plan, {"max_work": [None, 25]}, "it")
        assert plan.max_tokens == expected
    limit.restore(plan, {}, "it")  # a checkpoint of an earlier version
    assert (plan.max_tokens, limit.max_work) == (25, None)
    with pytest.raises(CheckpointError, match="it: max_work is damaged"):
        limit.restore(plan, {"max_work": ["a"]}, "it")


def test_memory_is_given_back_when_nothing_holds_the_pass_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, held, alive = toy_trainer(tiny_model(), DATA, num_steps=3, max_tokens=40), [], []
    forward = trainer.model.forward_packed

    def fails_once(batch: Batch) -> Any:
        activations = torch.ones(5)
        if not held:
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError("out of memory")
        return forward(batch)

    trainer.model.forward_packed = fails_once
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: alive.append(held[0]() is not None))
    trainer.train_step()
    assert alive == [False]
