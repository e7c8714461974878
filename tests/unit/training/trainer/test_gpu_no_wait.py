"""A training step on a pretended GPU: nothing in it waits for the device, and few shapes reach the kernels.

The device ``meta`` stands for a GPU: torch's operators check shapes and types there, its autograd engine runs as
always, and to read a value is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from bertkit.batch import Batch, Layout
from bertkit.model.kernels import varlen_attention
from bertkit.model.kernels.varlen_attention import cu_seqlens_on
from bertkit.model.models import BertForPreTraining, BertForQuestionAnswering, BertForTokenClassification
from bertkit.optim import adamw, linear_schedule, parameter_groups
from bertkit.training.trainer import loop, precision
from bertkit.training.trainer.feeding import MAX_SIZES, Feed, Sizes, _changed
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from no_wait import NoNewTensor, NoWait, WaitError, without_values
from training_helpers import TINY, ToyData, tiny_model

DATA = ToyData()


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The device ``meta`` passes for a GPU with everything; the numbers of steps that were read at a time."""
    monkeypatch.setattr(varlen_attention, "varlen_capability", lambda device: {"meta": (9, 0)}.get(device.type))
    monkeypatch.setattr(precision, "varlen_capability", varlen_attention.varlen_capability)
    base = sys.modules[torch.optim.Optimizer.__module__]  # torch.optim deletes the names of its modules
    monkeypatch.setattr(base, "_get_fused_kernels_supported_devices", lambda: ["cpu", "meta"])
    monkeypatch.setattr(torch, "_fused_adamw_", lambda *args, **settings: updates.append(settings["found_inf"]))
    updates: list[Tensor] = []
    counted = []

    def read(steps):
        counted.append(len(steps))
        return [(each, dict.fromkeys(each.num_targets, 1.0), 1.0) for each in steps]

    monkeypatch.setattr(loop, "read", read)
    return counted


def with_words(batch: Batch) -> Batch:
    """Masked words and pairs."""
    labels = torch.where(torch.arange(batch.layout.num_tokens) % 3 == 0, batch.input_ids, -100)
    batch = batch.with_target("labels", labels)
    batch = batch.with_target("next_sentence_label", torch.zeros(batch.layout.num_sequences, dtype=torch.int64))
    rows = (labels != -100).nonzero().squeeze(1)
    return Batch(batch.input_ids, batch.token_type_ids, batch.position_ids, batch.layout, batch.targets, rows)


def with_tags(batch: Batch) -> Batch:
    return batch.with_target("labels", batch.input_ids % 3)


def with_spans(batch: Batch) -> Batch:
    places = torch.ones(batch.layout.num_sequences, dtype=torch.int64)
    return Batch(
        batch.input_ids, batch.token_type_ids, batch.position_ids, batch.layout,
        {"start_positions": places, "end_positions": places},
    )  # fmt: skip


def with_weights(batch: Batch) -> Batch:
    return batch.with_target("row_weights", torch.ones(batch.layout.num_sequences))


def gpu_trainer(model: nn.Module, change: Any, data: ToyData = DATA, **options: Any) -> Trainer[Batch]:
    trainer_plan = data.plan(max_tokens=options.pop("max_tokens", 10_000), step_size=options.pop("step_size", 8))
    collate = trainer_plan.collate
    trainer_plan.collate = lambda rows: change(collate(rows))
    model.to("meta").train()
    optimizer = adamw(parameter_groups(model), learning_rate=1e-3)
    num_steps = options.pop("num_steps", 45)
    settings = LoopOptions(num_steps, 1e-3, precision="bf16", **options)
    return Trainer(model, trainer_plan, optimizer, linear_schedule(num_steps), settings)


CASES = {
    "pre-training": (BertForPreTraining, with_words),
    "classification": (type(tiny_model()), with_weights),
    "tagging": (BertForTokenClassification, with_tags),
    "questions": (BertForQuestionAnswering, with_spans),
}


@pytest.mark.parametrize("case", CASES)
def test_no_step_waits_for_the_device_but_those_that_are_read(pretended: list[int], case: str) -> None:
    """Whole steps, forward, backward and update: of 11 of pre-training the first, the 6th and the 11th are read."""
    kind, change = CASES[case]
    trainer = gpu_trainer(kind(TINY), change)
    trainer.reads_every = 5
    with NoWait(), NoNewTensor():
        for _ in range(11 if case == "pre-training" else 3):
            trainer.train_step()
    assert pretended == ([1, 5, 5] if case == "pre-training" else [1])


def test_what_waits_is_seen(pretended: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Controls: targets chosen by a mask, a copy that waits, boundaries made from the host's numbers, a value."""
    there = torch.ones(3, device="meta")
    for waiting in (
        lambda: there[there > 0],
        lambda: torch.ones(3).to("meta"),
        lambda: there.to("cpu"),
        lambda: torch.tensor([1, 2], device="meta"),
        lambda: (there > 0).nonzero(),
    ):
        with NoWait(), NoNewTensor(), pytest.raises(WaitError):
            waiting()
    trainer = gpu_trainer(BertForPreTraining(TINY), with_words)
    monkeypatch.setattr(Layout, "with_offsets", lambda layout, fill: layout)
    with NoWait(), NoNewTensor(), pytest.raises(WaitError, match="tensor on the device"):
        trainer.train_step()


@pytest.fixture
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The device ``cuda`` has the kernel. Copies to it, which are looked at on ``meta``, have been made."""
    monkeypatch.setattr(varlen_attention, "varlen_capability", lambda device: {"cuda": (9, 0)}.get(device.type))
    monkeypatch.setattr(varlen_attention, "sent", there)
    yield
    cu_seqlens_on.cache_clear()  # it would keep them for other tests


def there(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor without values."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def loss_on_cuda(case: str) -> tuple[NoWait, Tensor]:
    """The sum of the losses of a training pass with copies in bf16, and the operators on the way."""
    kind, change = CASES[case]
    device, mode = torch.device("cuda"), FakeTensorMode(allow_non_fake_inputs=True)
    batch = change(DATA.batch(list(range(8))))
    batch = replace(batch, layout=batch.layout.with_offsets())
    with mode:
        batch = _changed(batch, lambda tensor: there(tensor, device), Tensor)
    model = without_values(kind(TINY).train(), mode)
    whole, forward = precision.contexts(model, "bf16", device, copies=True)
    # No gradients: torch's engine needs a real device for these. Autograd's keys still take operators apart.
    with mode, NoWait("cuda") as watched, torch.no_grad(), whole, forward:
        terms = model.forward_packed(batch).loss_terms  # type: ignore[operator]
        return watched, torch.stack([term.total / 3 for term in terms.values()]).sum()


@pytest.mark.parametrize("case", [case for case in CASES if case != "questions"])  # Python's [...] asks for a driver
def test_no_operator_of_forward_pass_and_losses_waits_on_cuda(on_cuda: None, case: str) -> None:
    """What ``meta`` cannot show: what is decided by the name of the device. Operators have CUDA's rules, no values."""
    watched, loss = loss_on_cuda(case)
    assert loss.device.type == "cuda"
    assert loss.dtype == torch.float32
    assert watched.seen["_flash_attention_forward"] == TINY.num_hidden_layers
    assert watched.seen["bernoulli_"] > TINY.num_hidden_layers  # dropout is on


@pytest.mark.parametrize("name", ["choose", "read", "fetch"])
def test_what_waits_on_cuda_is_seen(on_cuda: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Controls: an operator of each kind, put into the pass."""
    waiting = {
        "choose": lambda labels: torch.masked_select(labels, labels != -100),
        "read": lambda labels: labels.sum().item(),
        "fetch": lambda labels: labels.cpu(),
    }[name]
    forward = BertForPreTraining.forward_packed

    def spoilt(self: BertForPreTraining, batch: Batch) -> Any:
        waiting(batch.targets["labels"])
        return forward(self, batch)

    monkeypatch.setattr(BertForPreTraining, "forward_packed", spoilt)
    with pytest.raises(WaitError):
        loss_on_cuda("pre-training")


class Shapes(TorchDispatchMode):
    """What reaches the kernel of attention: shapes of queries, keys and boundaries, and the longest sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()
        self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._flash_attention_forward.default:
            self.calls += 1
            self.seen.add((*(tuple(each.shape) for each in args[:5]), *args[5:8]))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("max_tokens", "num_steps", "cost"), [pytest.param(10_000, 1000, 0.1, marks=pytest.mark.campaign), (350, 100, 0.2)]
)
def test_few_shapes_reach_the_kernel(pretended: list[int], max_tokens: int, num_steps: int, cost: float) -> None:
    """Steps of 32 rows of 2 to 38 tokens, through an encoder; without filling up nearly each shape is another."""
    data, config = ToyData(3_000, longest=38), TINY.replace(num_hidden_layers=1)
    model = BertForPreTraining(config).bert.to("meta", torch.bfloat16).eval()
    plan = data.plan(step_size=32, max_tokens=max_tokens)
    counts = []
    for fills in (True, False):
        feed, num_tokens, num_fillers = Feed(plan, model, torch.device("meta"), fills=fills), 0, 0
        with torch.no_grad(), Shapes() as shapes:
            for step in range(num_steps if fills else 60):
                for batch in plan.micro_batches(step):
                    layout = feed(batch).layout
                    model.encoder(torch.empty(layout.num_tokens, 32, dtype=torch.bfloat16, device="meta"), layout)
                    num_tokens, num_fillers = num_tokens + layout.num_tokens, num_fillers + layout.num_fillers
        assert shapes.calls >= 60
        assert num_fillers < cost * num_tokens
        assert (num_fillers > 0) is fills
        counts.append(len(shapes.seen))
    assert counts[0] <= MAX_SIZES
    assert counts[1] > 40


def test_a_batch_larger_than_any_before_has_a_size_too() -> None:
    sizes = Sizes((64, 640), 128, 0.05)
    for tokens, expected in ((10, 64), (65, 640), (640, 640), (641, 768), (1000, 1152)):
        fill = sizes.fill(Layout((50,) * (tokens // 50) + ((tokens % 50,) if tokens % 50 else ())))
        assert fill is not None
        assert fill.tokens == expected
    assert sizes.fill(Layout((200,))).longest == 256  # type: ignore[union-attr]
    assert sizes.fill(Layout((1,) * 640)) is None  # more sequences than a kernel is told of
