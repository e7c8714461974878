"""The training loop. Read it from top to bottom: :meth:`Trainer.run`, then :meth:`Trainer.train_step`.

Fine-tuning, a head on frozen features and pre-training differ only in the model's loss and in the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Generic, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer

from bertkit.errors import ResourceError, TrainingError
from bertkit.optim import Schedule, set_learning_rate
from bertkit.system.console import clock, say
from bertkit.system.device import runs_ahead
from bertkit.system.interrupts import Interrupted, Interrupts
from bertkit.system.json_files import as_stored
from bertkit.system.memory import freed_memory_kept
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.compiling import check_compiling, compiled
from bertkit.training.trainer.determinism import repeatable
from bertkit.training.trainer.failed_batch import explain_failure, save_failed_batch
from bertkit.training.trainer.feeding import Feed
from bertkit.training.trainer.gradient_sums import gradient_sums
from bertkit.training.trainer.loop_options import (
    BatchT,
    Evaluate,
    LoopOptions,
    Progression,
    Record,
    StepResult,
    Trainable,
)
from bertkit.training.trainer.parallel import SINGLE, Parallel
from bertkit.training.trainer.precision import (
    autocast,
    check_precision,
    contexts,
    float32_products_in,
    has_copies,
    has_varlen,
    loss_scale,
    unscale,
    update_loss_scale,
)
from bertkit.training.trainer.records import progress, show, step_record
from bertkit.training.trainer.snapshot import (
    Snapshot,
    changing,
    check_identity,
    copy_into,
    drop_old,
    newest_whole,
    restore_snapshot,
    save_snapshot,
    shared_snapshot,
    step_name,
    take_snapshot,
    trained_parameters,
)
from bertkit.training.trainer.unread import READ_EVERY, Unread, add_to, can_skip, read, skip_if_failed
from bertkit.training.trainer.within_memory import MemoryLimit


class Trainer(Generic[BatchT]):
    """Train a model on a plan of batches.

    model: an ``nn.Module`` that is :class:`Trainable`; updated in place.
    evaluate: called after each epoch and at the end, in eval mode without gradients.
    log: called with one flat record per step and epoch.
    parallel: the ranks of the run; call every method on all of them. Only rank 0 writes.
    reads_every: steps whose results are read and logged together; 1 where each must be known before the next.
    """

    def __init__(
        self,
        model: nn.Module,
        plan: Plan[BatchT],
        optimizer: Optimizer,
        schedule: Schedule,
        options: LoopOptions,
        *,
        evaluate: Evaluate | None = None,
        log: Callable[[Record], None] = lambda record: None,
        parallel: Parallel = SINGLE,
    ) -> None:
        self.model = model
        self.plan = plan
        self.optimizer = optimizer
        self.schedule = schedule
        self.options = options
        self.evaluate = evaluate
        self.log = log
        self.folder = options.folder
        self.identity = as_stored(options.identity)
        self.parallel = parallel
        self.at = Progression()
        self.best: dict[str, Tensor] | None = None
        self.trained = trained_parameters(optimizer)
        self._gradient_sums = gradient_sums(model, self.trained, parallel)
        self._memory = MemoryLimit(optimizer, self.device, parallel)
        self._damaged: tuple[Path, ...] = ()  # checkpoints that were passed over
        self._saved_at = time.monotonic()
        check_precision(options.precision, self.device)
        self._copies = has_copies(model, options.precision, self.device, parallel)
        self.feed = Feed(plan, model, self.device, fills=has_varlen(options.precision, self.device))
        waits = not runs_ahead(self.device) or options.precision == "fp16" or not can_skip(optimizer)
        self.reads_every = 1 if waits else READ_EVERY
        self._unread: list[Unread] = []
        self._last: StepResult | None = None
        self._failed: Tensor | None = None
        self._read_since = 0.0  # when the first of the unread steps began
        if options.compile:
            check_compiling(self.device, sharded=parallel.is_sharded)
        parallel.check_optimizer(optimizer)
        parallel.spread_generators()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.trained[0].device

    def run(self) -> Progression:
        """Train from the state :attr:`at` to the end.

        Raises:
            TrainingError: a loss or gradient is not finite; the step was not taken and its batch was saved.
            Interrupted: Ctrl-C or SIGTERM; the state was saved (a ``KeyboardInterrupt`` with an exit code).
            ResourceError: the disk is full; the previous checkpoint is intact.
        """
        at, parallel, options = self.at, self.parallel, self.options
        at.stopped_by_time = options.time_is_up(at.seconds)
        self._saved_at = time.monotonic()
        self.model.train()
        with (
            Interrupts(launched=parallel.num_ranks > 1) as signals,
            progress(options, at) as shown,
            parallel.explained(),
            compiled(self.model, enabled=options.compile),
            repeatable(enabled=options.deterministic),
            float32_products_in(options.precision),
            freed_memory_kept(enabled=self.device.type == "cpu"),
        ):
            try:
                while True:
                    if self._epoch_ended():
                        self._end_epoch(lambda: self._check(signals))
                    if self._finished():
                        break
                    self._check(signals)
                    began = time.monotonic()
                    result = self.train_step()
                    # One clock for all ranks, which must agree on the learning rate, the end, and when to save.
                    due = self.folder is not None and time.monotonic() - self._saved_at >= options.checkpoint_every_s
                    at.seconds, save = parallel.from_first((at.seconds + time.monotonic() - began, due))
                    at.stopped_by_time = options.time_is_up(at.seconds)
                    show(shown, options, at, result)
                    if save:
                        self.save()
            except Interrupted as stop:
                done = f"{stop} after step {self._position} ({clock(at.seconds)})"
                if self.folder is None:
                    message = f"{done}; nothing was saved, because this run has no folder"
                else:
                    message = f"{done}; saved in {self.save()}. {options.how_to_resume}"
                raise Interrupted(message, stop.signum) from None
        return at

    def _check(self, signals: Interrupts) -> None:
        """Stop when any rank has received a signal; all ranks stop at the same point."""
        # Only what was gathered decides: a signal that arrives later counts next time.
        if found := [signum for signum in self.parallel.gather(signals.signum) if signum is not None]:
            signals.signum = max(found)
            signals.check()

    def _finished(self) -> bool:
        return self.at.step >= self.options.num_steps or self.at.stopped_early or self.at.stopped_by_time

    def train_step(self) -> StepResult:
        """One optimizer step over all micro-batches of the plan's next batch; the result of the last one that was read.

        Each term of the loss is summed over the micro-batches and divided by its number of targets in the whole batch,
        which is known in advance, so the split into micro-batches only affects rounding.
        """
        self._read_since = time.perf_counter() if not self._unread else self._read_since
        step, scale = self.at.step, loss_scale(self.at, self.options.precision)
        batches = self.plan.micro_batches(step)
        num_targets, num_batches = self._count(batches)  # on the host, where they still are
        sums = self._memory.within(
            lambda batches: self._backward(batches, num_batches, num_targets, scale), batches, self.plan, step
        )
        if self._gradient_sums is not None:
            self._gradient_sums.finish()
        norm = self.parallel.norm([p.grad for p in self.trained if p.grad is not None]) / scale
        values = torch.cat([self.parallel.add(sums), norm[None]])
        rate = self.options.learning_rate * self.schedule(step)
        self._unread.append(Unread(step, values, num_targets, rate))
        if self.reads_every == 1:
            self.read(lambda result: self._update(result, norm, scale))
        else:
            self._failed = skip_if_failed(self.optimizer, self._failed, values)
            clip_grads_with_norm_(self.trained, self.options.max_grad_norm, norm)
            set_learning_rate(self.optimizer, rate)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.at.step = step + 1
            if self._last is None or len(self._unread) >= self.reads_every:
                self.read()
        assert self._last is not None
        return self._last

    def _update(self, result: StepResult, norm: Tensor, scale: float) -> None:
        """Update the weights by gradients that are known to be finite, or skip the step."""
        if not result.skipped:
            unscale(self.trained, scale)
            if result.grad_norm > self.options.max_grad_norm:
                clip_grads_with_norm_(self.trained, self.options.max_grad_norm, norm)
            set_learning_rate(self.optimizer, result.learning_rate)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        update_loss_scale(self.at, self.options.precision, skipped=result.skipped)
        self.at.step = result.step + 1

    def read(self, update: Callable[[StepResult], None] = lambda result: None) -> None:
        """Wait for the device, then check and log the steps that were not yet read; ``update`` takes what is checked.

        Raises:
            TrainingError: a loss or gradient is not finite.
        """
        steps, self._unread = self._unread, []
        if not steps:
            return
        found = list(read(steps))  # the only wait for the device
        seconds = (time.perf_counter() - self._read_since) / len(found)
        for unread, loss_sums, grad_norm in found:
            result = unread.result(loss_sums, grad_norm, self.options.precision, self.at)
            if not (result.skipped or (math.isfinite(result.loss) and math.isfinite(grad_norm))):
                self._refuse(result)
            update(result)
            self._last = result
            add_to(self.at.epoch_loss_sums, loss_sums)
            add_to(self.at.epoch_num_targets, result.num_targets)
            if self.parallel.is_first:
                self.log(step_record(result, self.at, self.options, self.plan, seconds))

    def _count(self, batches: Sequence[BatchT]) -> tuple[dict[str, float], int]:
        """Targets of each term of the loss over all ranks, and the largest number of micro-batches of a rank."""
        own: dict[str, float] = {}
        for batch in batches:
            add_to(own, cast(Trainable[BatchT], self.model).num_targets(batch))
        total: dict[str, float] = {}
        counted = self.parallel.gather((own, len(batches)))
        for targets, _ in counted:
            add_to(total, targets)
        return total, max(number for _, number in counted)

    def _backward(
        self, batches: Sequence[BatchT], num_batches: int, num_targets: Mapping[str, float], scale: float
    ) -> Tensor:
        """Compute gradients of ``scale`` times this rank's share of the loss; return the sum of each term."""
        sums = torch.zeros(len(num_targets), device=self.device)
        passes = [(self.feed(batch), 1.0) for batch in batches]
        if self.parallel.is_sharded:
            # Every pass gathers weights, so all ranks must make equally many; some repeat one with weight 0.
            spare = passes[0][0] if passes else self.feed(self.plan.micro_batches(0)[0])
            passes += [(spare, 0.0)] * (num_batches - len(batches))
        for number, (batch, weight) in enumerate(passes, start=1):
            self.parallel.begin_micro_batch(self.model, last=number == len(passes))
            if self._gradient_sums is not None:
                self._gradient_sums.begin(last=number == len(passes))
            whole, forward = contexts(self.model, self.options.precision, self.device, copies=self._copies)
            with whole:
                with forward:
                    terms = cast(Trainable[BatchT], self.model).forward_packed(batch).loss_terms
                assert terms, "the plan made a batch without targets"
                shares = [term.total * (weight * scale) / num_targets[name] for name, term in terms.items()]
                torch.stack(shares).sum().backward()
            for place, name in enumerate(num_targets):
                if weight and name in terms:
                    sums[place] += terms[name].total.detach()
        return sums

    def _refuse(self, result: StepResult) -> None:
        rows, batches = self.plan.rows(result.step), self.plan.micro_batches(result.step)
        self.optimizer.zero_grad(set_to_none=True)
        self.at.step = result.step  # steps after it, that were asked for before this was known, changed nothing
        where = None
        try:
            where = self.folder and save_failed_batch(self.folder, result, rows, batches, self.parallel.rank)
        except (ResourceError, OSError) as error:
            say(f"the failed batch could not be saved: {error}")
        position = self.options.position(result.step + 1, self.at.seconds)
        raise TrainingError(f"step {position}: {explain_failure(result, rows, where)}")

    def _epoch_ended(self) -> bool:
        at = self.at
        every = self.options.evaluate_every_steps or self.plan.steps_per_epoch
        return at.step > at.evaluated_step and (at.step % every == 0 or self._finished())

    def _end_epoch(self, check: Callable[[], None]) -> None:
        """Evaluate, keep the best weights, decide whether to stop; no state changes before the evaluation is done."""
        self.read()
        at = self.at
        scores: dict[str, float] = {}
        if self.evaluate is not None:
            self.model.eval()
            # Sharded weights gathered in inference mode could not be used in the next step.
            without = torch.no_grad() if self.parallel.is_sharded else torch.inference_mode()
            try:
                with without, autocast(self.options.precision, self.device):
                    scores = self.parallel.from_first({k: float(v) for k, v in self.evaluate(check).items()})
            finally:
                self.parallel.end_evaluation(self.model)
            self.model.train()
        record: dict[str, float] = {
            "step": at.step,
            "epoch": math.ceil(at.step / self.plan.steps_per_epoch),
            "train_loss": sum(value / at.epoch_num_targets[name] for name, value in at.epoch_loss_sums.items()),
            **{f"dev_{name}": value for name, value in scores.items()},
        }
        at.epochs.append({key: value if math.isfinite(value) else None for key, value in record.items()})
        at.evaluated_step = at.step
        at.epoch_loss_sums, at.epoch_num_targets = {}, {}
        if self.options.monitor is None:
            at.best_step = at.step
        elif at.is_best(scores[self.options.monitor], scores.get("loss", math.nan), self.options.patience):
            self.best = self._weights()
        if self.parallel.is_first:
            self.log({"event": "epoch", **at.epochs[-1], "seconds": round(at.seconds, 1)})

    def stop(self) -> None:
        """End the run after the current step, as early stopping does."""
        self.at.stopped_early = True

    def _weights(self) -> dict[str, Tensor]:
        return {name: p.detach().clone() for name, p in changing(self.model).items()}

    def restore_best(self) -> None:
        """Restore the weights of the best evaluation; without a monitored score, they are the last ones."""
        if self.best is not None:
            copy_into(self.model, self.best)

    def state_dict(self) -> Snapshot:
        """Everything that :meth:`load_state_dict` needs to resume bit for bit."""
        self.read()
        best = None if self.at.best_step == self.at.step else self.best
        values = self._memory.state() | {"progression": asdict(self.at), "identity": self.identity}
        return take_snapshot(self.model, self.optimizer, values, best=best, parallel=self.parallel)

    def load_state_dict(self, snapshot: Snapshot, source: str = "the checkpoint") -> None:
        """Continue from a snapshot; a CheckpointError if it belongs to other settings, other data or another model."""
        self.at = Progression.read(snapshot.values.get("progression"), source)
        check_identity(self.identity, snapshot.values.get("identity"), source)
        best = restore_snapshot(snapshot, self.model, self.optimizer, parallel=self.parallel, source=source)
        self._memory.restore(self.plan, snapshot.values, source)
        if self.options.monitor is not None:  # otherwise the last weights are the best
            self.best = self._weights() if self.at.best_step == self.at.step else best or None

    def save(self) -> Path:
        """Write a checkpoint, then delete damaged ones and all but the newest ``options.keep`` others."""
        assert self.folder is not None, "save() needs a folder"
        folder, snapshot = self.folder, self.state_dict()  # on all ranks

        def write() -> Path:
            advice = f"Make room. {self.options.how_to_resume}"
            path = save_snapshot(folder, step_name(self.at.step), snapshot, advice=advice)
            drop_old(folder, keep=self.options.keep, damaged=self._damaged)
            return path

        path = self.parallel.on_first(write)
        self._damaged, self._saved_at = (), time.monotonic()
        return path

    def resume(self) -> bool:
        """Load and report the newest intact checkpoint of :attr:`folder`, read by rank 0; False if there is none."""
        assert self.folder is not None, "resume() needs a folder"
        folder = self.folder
        with self.parallel.explained():
            found = self.parallel.on_first(lambda: newest_whole(folder))
            for reason in found.skipped:
                say(f"skipped a damaged checkpoint: {reason}")
            self._damaged = found.damaged
            if found.path is None:
                return False
            snapshot = shared_snapshot(found.path, self.parallel)
        self.load_state_dict(snapshot, str(found.path))
        say(f"resumed {self.options.label} after step {self._position} ({found.path})")
        return True

    @property
    def _position(self) -> str:
        return self.options.position(self.at.step, self.at.seconds)
