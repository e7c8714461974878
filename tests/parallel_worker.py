"""One rank of a tiny parallel run, which ``test_parallel.py`` starts by ``torch.distributed.run``.

``parallel_worker.py FOLDER MODE:SCENARIO ...`` runs scenarios one after another; rank 0 writes what came out to
``FOLDER/MODE/out``.
"""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from bertkit.batch import Batch
from bertkit.errors import BertkitError
from bertkit.model.models import BertForSequenceClassification
from bertkit.optim import adamw, lamb, linear_schedule, parameter_groups
from bertkit.system.interrupts import Interrupted
from bertkit.training.trainer import gradient_sums
from bertkit.training.trainer.batch_plan import EpochPlan
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import LoopOptions
from bertkit.training.trainer.parallel import SINGLE, Parallel, parallel_from_environment
from bertkit.training.trainer.snapshot import Snapshot, save_snapshot
from training_helpers import TINY, ToyData

DATA = ToyData(17)
NUM_STEPS = 10


def make_trainer(
    parallel: Parallel = SINGLE, folder: Path | None = None, p: float = 0.0, **options: Any
) -> Trainer[Batch]:
    """17 rows in steps of 4: the last step of an epoch has one row, so rank 1 has none, and rank 0 more to do."""
    seed_generators(0)
    model = BertForSequenceClassification(TINY.replace(hidden_dropout_prob=p, attention_probs_dropout_prob=p))
    if parallel.rank == 1:
        with torch.no_grad():  # rank 0's weights are what counts
            model.classifier.weight.zero_()
    parallel.prepare(model)
    rank, num_ranks = parallel.rank, parallel.num_ranks
    plan = EpochPlan(DATA.lengths, DATA.batch, step_size=4, max_tokens=12, seed=0, rank=rank, num_ranks=num_ranks)
    # A large eps: Adam's update of a gradient that is all rounding is not of the size of the rate.
    optimizer = adamw(parameter_groups(model), learning_rate=3e-3, eps=1e-3)

    def evaluate(check: Any) -> dict[str, float]:
        check()
        return DATA.accuracy(model)

    return Trainer(
        model,
        plan,
        optimizer,
        linear_schedule(NUM_STEPS),
        LoopOptions(
            NUM_STEPS,
            3e-3,
            max_grad_norm=0.5,
            monitor="accuracy",
            folder=folder,
            identity={"rows": 17},
            **options,
        ),
        evaluate=evaluate,
        parallel=parallel,
    )


#: For runs with dropout: rows, rows a step, steps, and those at the end whose losses are averaged (an epoch).
MORE_DATA, MORE_ROWS, MORE_STEPS, LAST_STEPS = ToyData(120), 8, 90, 15


def last_losses(parallel: Parallel, p: float) -> list[float]:
    """Of three runs that differ by their dropout alone, the mean loss of the last epoch."""
    found = []
    for seed in range(3):
        seed_generators(0)
        model = BertForSequenceClassification(TINY.replace(hidden_dropout_prob=p, attention_probs_dropout_prob=p))
        parallel.prepare(model)
        plan = EpochPlan(
            MORE_DATA.lengths, MORE_DATA.batch, step_size=MORE_ROWS, max_tokens=60, seed=0, rank=parallel.rank,
            num_ranks=parallel.num_ranks,
        )  # fmt: skip
        seed_generators(100 + seed)  # the trainer gives each rank a state of its own
        optimizer = adamw(parameter_groups(model), learning_rate=3e-3, eps=1e-3)
        options = LoopOptions(MORE_STEPS, 3e-3)
        trainer = Trainer(model, plan, optimizer, linear_schedule(MORE_STEPS), options, parallel=parallel)
        losses = [trainer.train_step().loss for _ in range(MORE_STEPS)]
        found.append(sum(losses[-LAST_STEPS:]) / LAST_STEPS)
    return found


def finish(trainer: Trainer[Batch]) -> dict[str, Any]:
    """Run to the end; the losses, the whole weights and the evaluations, on rank 0."""
    results = []
    step = trainer.train_step
    trainer.train_step = lambda: results.append(step()) or results[-1]  # type: ignore[method-assign, func-returns-value]
    at = trainer.run()
    last = whole_weights(trainer)
    trainer.restore_best()
    return {
        "weights": last,
        "best_weights": whole_weights(trainer),
        "losses": [result.loss for result in results],
        "norms": [result.grad_norm for result in results if not result.skipped],
        "epochs": at.epochs,
        "best": [at.best_step, at.best_score],
    }


def whole_weights(trainer: Trainer[Batch]) -> dict[str, torch.Tensor]:
    whole = trainer.parallel.whole_model(trainer.model)
    return {} if whole is None else {name: p.detach().clone() for name, p in whole.named_parameters()}


def seven_steps(trainer: Trainer[Batch]) -> None:
    """An epoch, its evaluation, and two steps more, so that the best weights are not the present ones."""
    for _ in range(7):
        trainer.train_step()
        if trainer._epoch_ended():
            trainer._end_epoch(lambda: None)
    trainer.save()


def scenario_plain(parallel: Parallel, folder: Path) -> dict[str, Any]:
    trainer = make_trainer(parallel)
    sizes = [len(trainer.plan.micro_batches(step)) for step in range(5)]
    return {**finish(trainer), "micro_batches": parallel.gather(sizes)}


def scenario_saved(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Stop after step 7 for another number of ranks to go on."""
    seven_steps(make_trainer(parallel, folder / "by-two"))
    return {}


def scenario_resumed(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Go on from the checkpoint of one rank."""
    trainer = make_trainer(parallel, folder.parent / "by-one")
    assert trainer.resume()
    return finish(trainer)


def scenario_exact(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """With dropout: 10 steps, and 7 + 3 with a restart of everything; the same bits."""
    whole = finish(make_trainer(parallel, p=0.1))
    seven_steps(make_trainer(parallel, folder / "exact", p=0.1))
    second = make_trainer(parallel, folder / "exact", p=0.1)
    seed_generators(77)
    assert second.resume()
    parts = finish(second)
    masks = parallel.gather(torch.rand(()).item())
    return {**parts, "expected": whole["weights"], "expected_losses": whole["losses"], "draws": masks}


def scenario_signal(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """SIGTERM to rank 1 alone, in step 3."""
    trainer = make_trainer(parallel, folder / "signal")
    step = trainer.train_step

    def signalled() -> Any:
        if trainer.at.step == 2 and parallel.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)  # the launcher repeats it
        return step()

    trainer.train_step = signalled  # type: ignore[method-assign]
    return {"told": parallel.gather(end_of(trainer))}


def end_of(trainer: Any) -> str:
    """How a run of this rank ends."""
    try:
        trainer.run()
    except Interrupted as stop:
        return f"{stop.exit_code} {stop}"
    return "went on"


def scenario_late(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """SIGTERM to rank 0 alone, between the moment the ranks have agreed to go on and the next one they ask."""
    agreed: list[int] = []

    class Late(Parallel):
        def gather(self, value: Any) -> list[Any]:
            found = super().gather(value)
            if value is None and len(agreed) < 3:
                agreed.append(1)
                if len(agreed) == 3 and self.is_first:
                    os.kill(os.getpid(), signal.SIGTERM)
            return found

    trainer = make_trainer(Late(parallel.rank, parallel.num_ranks, parallel.device, parallel.mode), folder / "late")
    return {"told": parallel.gather(end_of(trainer))}


def in_small_buffers(parallel: Parallel) -> tuple[Trainer[Batch], gradient_sums.GradientSums]:
    """A trainer that sends its gradients by at most 100 numbers at once, and what sends them."""
    gradient_sums.BUFFER_NUMBERS = 100
    trainer = make_trainer(parallel)
    assert trainer._gradient_sums is not None
    return trainer, trainer._gradient_sums


def scenario_sent(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """How many buffers were sent when a backward pass had ended, and how many there are."""
    trainer, sums = in_small_buffers(parallel)
    sent: list[int] = []
    finish_sums = sums.finish
    sums.finish = lambda: sent.append(len(sums._sent)) or finish_sums()  # type: ignore[method-assign, func-returns-value]
    outcome = finish(trainer)
    return {**outcome, "sent": parallel.gather(sent), "buffers": len(sums._buffers)}


def scenario_full(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Rank 0 has no memory left in the middle of a backward pass, when a part of the gradients has been sent."""
    trainer, sums = in_small_buffers(parallel)
    told: list[int] = []
    arrived = sums._arrived

    def full(number: int, parameter: torch.nn.Parameter) -> None:
        arrived(number, parameter)
        if parallel.is_first and trainer.at.step == 1 and not told and len(sums._sent) > 5:
            told.append(len(sums._sent))
            raise torch.OutOfMemoryError("full")

    sums._arrived = full  # type: ignore[method-assign]
    return {**finish(trainer), "told": told}


def scenario_nan(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """A loss that is not a number on rank 1 alone."""
    trainer = make_trainer(parallel, folder / "nan")
    trainer.train_step()
    if parallel.rank == 1:
        trainer.model.classifier.register_forward_hook(lambda module, args, out: out * math.nan)
    told = "went on"
    try:
        trainer.run()
    except BertkitError as error:
        told = f"{type(error).__name__}: {error}"
    return {"told": parallel.gather(told), "steps": parallel.gather(trainer.at.step)}


def scenario_fp16(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Gradients of rank 1 overflow once: all ranks leave the step out."""
    trainer = make_trainer(parallel, precision="fp16")
    trainer.at.loss_scale = 2.0**127
    outcome = finish(trainer)
    at = trainer.at
    return {**outcome, "state": parallel.gather([at.num_skipped, at.loss_scale, at.seconds])}


def scenario_lean(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """bf16 with dropout: the same bits with and without gradient checkpointing."""
    expected = finish(make_trainer(parallel, p=0.1, precision="bf16"))
    lean = make_trainer(parallel, p=0.1, precision="bf16")
    lean.model.set_gradient_checkpointing()  # type: ignore[operator]
    return {"expected": expected["weights"], "weights": finish(lean)["weights"]}


def scenario_spread(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Runs with dropout, whose masks depend on the number of ranks."""
    return {"last_losses": last_losses(parallel, 0.1)}


def scenario_lamb(parallel: Parallel, folder: Path) -> dict[str, Any]:
    trainer = make_trainer(parallel)
    told = "accepted"
    try:
        parallel.check_optimizer(lamb(parameter_groups(trainer.model), learning_rate=1e-3))
    except BertkitError as error:
        told = str(error)
    return {"told": told}


def scenario_killed(parallel: Parallel, folder: Path) -> dict[str, Any]:
    """Rank 1 dies without a word; torchrun asks rank 0 to end as well, which says first what happened."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    trainer = make_trainer(parallel, folder / "killed")
    step = trainer.train_step

    def killed() -> Any:
        if trainer.at.step == 3 and parallel.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return step()

    trainer.train_step = killed  # type: ignore[method-assign]
    return finish(trainer)


def main() -> None:
    folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    parallel = SINGLE
    for mode, name in (scenario.split(":") for scenario in names):
        parallel = parallel_from_environment("cpu", mode, timeout_s=60)  # type: ignore[arg-type]
        outcome = globals()[f"scenario_{name}"](parallel, Path(folder) / mode)
        tensors = {
            f"{kind}/{at}": tensor
            for kind in ("weights", "best_weights", "expected")
            for at, tensor in outcome.pop(kind, {}).items()
        }
        if parallel.is_first:
            save_snapshot(Path(folder) / mode / "out", name, Snapshot(tensors, outcome))
    parallel.close()


if __name__ == "__main__":
    main()
