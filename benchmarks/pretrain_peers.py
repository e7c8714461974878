"""Three implementations of the same pre-training steps, for pretrain_step.py and gpu_all.py.

bertkit's Trainer on packed batches, transformers' Trainer with its ``BertForPreTraining``, and a hand-written loop
around the same transformers model with the output layer computed at masked positions only. All see the same examples
in the same batches, from the same weights, with the same AdamW, clipping and constant rate. bertkit assembles and
masks its batches within the measured time, as ``bertkit pretrain`` does; the others get prepared examples and only pad
them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.model.models import BertForPreTraining
from bertkit.optim import adamw, parameter_groups
from bertkit.system.memory import freed_memory_kept
from bertkit.training.trainer.batch_plan import Prefetched
from bertkit.training.trainer.compiling import compiled
from bertkit.training.trainer.determinism import repeatable
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from pretrain_work import Clock, Precision

RATE, DECAY, EPS, CLIP = 1e-4, 0.01, 1e-6, 1.0
#: Untimed steps at the start of a turn.
WARM = 2


class Examples(PretrainData):
    """The first epoch of :class:`PretrainData` in steps of exactly ``batch_size`` examples, as in Trainer."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.steps_per_epoch = 1 << 40  # an example is the same each time it is used

    def rows(self, step: int) -> list[int]:
        """Indices of the examples of a step, wrapping around after the last."""
        count = len(self.index(0))
        return [number % count for number in range(step * self.batch_size, (step + 1) * self.batch_size)]

    def batch(self, rows: list[int]) -> Batch:
        """The examples with the given numbers."""
        numbers = np.asarray(rows, np.int64)
        return self.pack(numbers, self.index(0).take(numbers), 0)

    def plain(self, steps: range) -> list[dict[str, Any]]:
        """The examples of the given steps one by one, as plain Python values."""
        return [one_example(self.batch([row])) for step in steps for row in self.rows(step)]

    def lengths(self, steps: range) -> list[int]:
        """Number of tokens of each example of the given steps."""
        return [length for step in steps for length in self.batch(self.rows(step)).layout.lengths]


@dataclass(frozen=True)
class Job:
    """The training job of all systems.

    folder: checkpoint with the initial weights.
    """

    folder: Path
    data: Examples
    device: torch.device
    precision: Precision = "fp32"


@dataclass
class Turn:
    """Consecutive steps of one system: the loss of each, and the seconds of those after the first ``WARM``.

    first_seconds: of those first ones, in which variants of bertkit compile; None of peers.
    """

    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    first_seconds: float | None = None


class System(Protocol):
    """One system. Its weights carry over from turn to turn."""

    name: str

    def train(self, steps: range) -> Turn: ...


class Bertkit:
    """The Trainer of bertkit, packed.

    compiler: of ``torch.compile``, or None; ``deterministic`` as in :class:`LoopOptions`.
    """

    def __init__(self, job: Job, *, compiler: str | None = None, deterministic: bool = False) -> None:
        self.name = "bertkit" + (", compiled" if compiler else "") + (", deterministic" if deterministic else "")
        self.job, self.deterministic = job, deterministic
        model = BertForPreTraining.from_pretrained(job.folder).to(job.device)
        model.train()
        self.open = ExitStack()  # as in Trainer.run, but for as long as the system lives: a turn does not compile again
        self.open.enter_context(compiled(model, enabled=compiler is not None, backend=compiler or "inductor"))
        groups = parameter_groups(model, weight_decay=DECAY)
        options = LoopOptions(1 << 30, RATE, max_grad_norm=CLIP, **_precision(job.precision))
        optimizer = adamw(groups, learning_rate=RATE, eps=EPS)
        self.trainer = Trainer(model, job.data, optimizer, lambda step: 1.0, options)

    def train(self, steps: range, watched: Callable[[int], Any] = lambda number: None) -> Turn:
        """See :class:`System`. ``watched`` is told of each step, with its number in the turn, before it begins."""
        turn, clock = Turn(), Clock(self.job.device)
        # With a GPU a thread prepares the next batches; on a CPU all cores are busy with the model.
        num_workers = 1 if self.job.device.type == "cuda" else 0
        with (
            freed_memory_kept(enabled=self.job.device.type == "cpu"),  # as in Trainer.run
            repeatable(enabled=self.deterministic),
            Prefetched(self.job.data, num_workers=num_workers, end=steps.stop) as self.trainer.plan,
        ):
            self.trainer.log = lambda record: turn.losses.append(record["loss"])  # on a GPU many steps at a time
            clock.start()
            for number, step in enumerate(steps):
                if number == WARM:
                    turn.first_seconds = round(clock.stop(), 2)
                    clock.start()
                watched(number)
                self.trainer.at.step = step
                self.trainer.train_step()
            self.trainer.read()
            turn.seconds = clock.stop()
        return turn


class HuggingFace:
    """The Trainer of transformers, padded, output layer at all positions."""

    name = "transformers Trainer"

    def __init__(self, job: Job) -> None:
        import transformers

        self.job = job
        self.model = transformers.BertForPreTraining.from_pretrained(job.folder)

    def train(self, steps: range) -> Turn:
        """See :class:`System`."""
        import transformers

        turn, clock = Turn(), Clock(self.job.device)

        class Watched(transformers.Trainer):
            def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
                if len(losses) == WARM:
                    clock.start()
                losses.append(super().training_step(*args, **kwargs))
                return losses[-1]

        class AtTheEnd(transformers.TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
                if state.global_step == len(steps):
                    turn.seconds = clock.stop()

        losses: list[torch.Tensor] = []
        with tempfile.TemporaryDirectory() as scratch:
            arguments = transformers.TrainingArguments(
                output_dir=scratch, max_steps=len(steps), per_device_train_batch_size=self.job.data.batch_size,
                learning_rate=RATE, lr_scheduler_type="constant", weight_decay=DECAY, adam_epsilon=EPS,
                max_grad_norm=CLIP, train_sampling_strategy="sequential", use_cpu=self.job.device.type == "cpu",
                bf16=self.job.precision == "bf16", report_to=[], disable_tqdm=True, logging_strategy="no",
                save_strategy="no", dataloader_pin_memory=False,
            )  # fmt: skip
            trainer = Watched(
                model=self.model, args=arguments, data_collator=padded, train_dataset=self.job.data.plain(steps),
                callbacks=[AtTheEnd()],
            )  # fmt: skip
            trainer.train()
        turn.losses = [float(loss) for loss in losses]
        return turn


class ByHand:
    """A plain loop around transformers' model: padded, output layer at masked positions only."""

    name = "transformers, hand-written loop"

    def __init__(self, job: Job) -> None:
        import transformers

        self.job = job
        self.model = transformers.BertForPreTraining.from_pretrained(job.folder).to(job.device)
        self.model.train()
        groups = [
            {key: group[key] for key in ("params", "weight_decay")}
            for group in parameter_groups(self.model, weight_decay=DECAY)
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, eps=EPS, fused=True)

    def train(self, steps: range) -> Turn:
        """See :class:`System`."""
        size = self.job.data.batch_size
        examples = self.job.data.plain(steps)
        losses, clock = [], Clock(self.job.device)
        for number in range(len(steps)):
            if number == WARM:
                clock.start()
            batch = padded(examples[number * size : (number + 1) * size])
            loss = self.loss({key: value.to(self.job.device) for key, value in batch.items()})
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad()
            losses.append(loss.detach())
        seconds = clock.stop()
        return Turn([float(loss) for loss in losses], seconds)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Masked-LM plus next-sentence loss."""
        half = self.job.precision == "bf16"
        with torch.autocast(self.job.device.type, torch.bfloat16) if half else nullcontext():
            inputs = {key: batch[key] for key in ("input_ids", "attention_mask", "token_type_ids")}
            encoded = self.model.bert(**inputs)
            chosen = batch["labels"] != -100
            scores = self.model.cls.predictions(encoded.last_hidden_state[chosen])
            follows = self.model.cls.seq_relationship(encoded.pooler_output)
        return F.cross_entropy(scores.float(), batch["labels"][chosen]) + F.cross_entropy(
            follows.float(), batch["next_sentence_label"]
        )


Make = Callable[[Job], System]
TRAINER_NEEDS = ("transformers", "accelerate")
#: Peers, and the packages without which each is left out.
PEERS: tuple[tuple[type[HuggingFace | ByHand], tuple[str, ...]], ...] = (
    (HuggingFace, TRAINER_NEEDS),
    (ByHand, ("transformers",)),
)


def absent(packages: Sequence[str]) -> list[str]:
    """Those of some packages that are not installed."""
    return [name for name in packages if find_spec(name) is None]


def runnable() -> tuple[Make, ...]:
    """bertkit, and the peers that can run here."""
    return (Bertkit, *(peer for peer, packages in PEERS if not absent(packages)))


def left_out() -> dict[str, str]:
    """The peers that cannot, each with what it lacks."""
    return {peer.name: f"needs {', '.join(absent(packages))}" for peer, packages in PEERS if absent(packages)}


def compiled_by(compiler: str) -> Make:
    """The Trainer of bertkit with ``torch.compile``."""
    return partial(Bertkit, compiler=compiler)


def one_example(batch: Batch) -> dict[str, Any]:
    """A packed batch of one example as plain Python values."""
    return {
        "input_ids": batch.input_ids.tolist(),
        "token_type_ids": batch.token_type_ids.tolist(),
        "labels": batch.targets["labels"].tolist(),
        "next_sentence_label": int(batch.targets["next_sentence_label"]),
    }


def padded(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Batch examples, padded to the longest: tensors ``(B, S)``, and ``next_sentence_label`` ``(B,)``."""
    width = max(len(example["input_ids"]) for example in examples)
    fill = {"input_ids": 0, "token_type_ids": 0, "labels": -100}
    batch = {
        key: torch.tensor([example[key] + [value] * (width - len(example[key])) for example in examples])
        for key, value in fill.items()
    }
    lengths = torch.tensor([len(example["input_ids"]) for example in examples])
    batch["attention_mask"] = (torch.arange(width) < lengths[:, None]).long()
    batch["next_sentence_label"] = torch.tensor([example["next_sentence_label"] for example in examples])
    return batch


def compare(job: Job, rounds: int, num_steps: int, tolerance: float, scratch: Path) -> dict[str, Any]:
    """Check that all systems take the same steps, then time them alternately.

    The check trains ``WARM + 1`` steps with dropout off: equal losses there require equal examples, forward passes,
    gradients, clipping and updates.
    """
    worst = difference_of_losses(without_dropout(job, scratch / "no-dropout"), tolerance)
    timed = train_in_turns(job, runnable(), rounds, num_steps)
    return {"largest_difference_of_losses": worst, "left_out": left_out(), **timed}


def train_in_turns(job: Job, makes: Sequence[Make], rounds: int, num_steps: int) -> dict[str, Any]:
    """Time systems over the same steps, in the other order each round; the first one is what others are compared to."""
    systems = [make(job) for make in makes]
    ours = systems[0].name
    times: dict[str, list[float]] = {system.name: [] for system in systems}
    first: dict[str, float | None] = {}
    last: dict[str, float] = {}
    lengths: list[int] = []
    for number in range(rounds):
        steps = range(number * (WARM + num_steps), (number + 1) * (WARM + num_steps))
        for system in systems if number % 2 == 0 else systems[::-1]:
            turn = system.train(steps)
            times[system.name].append(turn.seconds / num_steps)
            first.setdefault(system.name, turn.first_seconds)
            last[system.name] = turn.losses[-1]
            tell(f"round {number + 1}  {system.name:<28} {turn.seconds / num_steps:8.4f} s per step")
        lengths += job.data.lengths(steps[WARM:])
    tokens = sum(lengths) / (rounds * num_steps)
    return {
        "tokens_a_step": round(tokens, 1),
        "padding_share": round(1 - sum(lengths) / (len(lengths) * max(lengths)), 4),
        "lengths": lengths,
        "systems": {
            name: {
                "step_s": [round(value, 5) for value in seconds],
                "tokens_per_s": round(tokens / statistics.median(seconds)),
                "bertkit_is_faster_by": round(
                    statistics.median(a / b for a, b in zip(seconds, times[ours], strict=True)), 3
                ),
                "first_steps_s": first[name],
                "last_loss": round(last[name], 4),
            }
            for name, seconds in times.items()
        },
    }


def difference_of_losses(calm: Job, tolerance: float) -> float:
    """The largest between bertkit's losses and a peer's, of a job without dropout; SystemExit if it is too large."""
    checked = {}
    for make in runnable():
        system = make(calm)
        checked[system.name] = system.train(range(WARM + 1)).losses
    tell(f"losses without dropout: {checked}")
    ours, *others = checked.values()
    worst = max((abs(a - b) for losses in others for a, b in zip(losses, ours, strict=True)), default=0.0)
    if not worst <= tolerance:
        raise SystemExit(f"the losses differ by {worst:.2e}, tolerance {tolerance:.0e}; no result is printed")
    return worst


def without_dropout(job: Job, folder: Path) -> Job:
    """The same job with all dropout rates 0."""
    model = BertForPreTraining.from_pretrained(job.folder)
    calm = BertForPreTraining(model.config.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    calm.load_state_dict(model.state_dict())
    calm.save_pretrained(folder)
    return Job(folder, job.data, job.device, job.precision)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _precision(precision: Precision) -> dict[str, Any]:
    return {} if precision == "fp32" else {"precision": precision}
