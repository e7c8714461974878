"""The callbacks of ``transformers`` on bertkit's training loop: what both trainers of other libraries share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any, ClassVar, TypeVar

from bertkit.habit_table import remedy
from bertkit.habits.trainer_callbacks import Callbacks, TrainerCallback, TrainerControl, TrainerState
from bertkit.habits.training_arguments import Arguments
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.loop_options import Record

ModelT = TypeVar("ModelT")


def called_with_trial(model_init: Callable[..., ModelT]) -> ModelT:
    """What ``model_init`` makes; one with an argument, for the trial of a search, gets None."""
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    parameters = signature(model_init).parameters.values()
    needs_one = any(each.default is Parameter.empty and each.kind not in optional for each in parameters)
    return model_init(None) if needs_one else model_init()


class FollowedTrainer:
    """A trainer with arguments, a state and callbacks; a subclass trains.

    entry: of :mod:`bertkit.habit_table`, for attributes that it does not have.
    """

    entry = "Trainer."
    args: Arguments
    model: Any
    processing_class: Any = None

    def __init__(self, callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None) -> None:
        self.callback_handler = Callbacks(callbacks or ())
        self.state = TrainerState()

    @property
    def control(self) -> TrainerControl:
        """What the callbacks have asked for."""
        return self.callback_handler.control

    def __getattr__(self, name: str) -> Any:
        known = [each for each in dir(type(self)) if not each.startswith("_")]
        raise AttributeError(f"{type(self).__name__} has no {name!r}{remedy(self.entry, name, known)}")

    def add_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """Follow the training by one more callback, given as an object or as its class."""
        self.callback_handler.listed.append(callback() if isinstance(callback, type) else callback)

    def pop_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Take out a callback, given as an object or as its class; None if it is not there."""
        return self.callback_handler.pop(callback)

    def remove_callback(self, callback: TrainerCallback | type[TrainerCallback]) -> None:
        """As :meth:`pop_callback`, without a result."""
        self.callback_handler.pop(callback)

    def call(self, event: str, **given: Any) -> None:
        """Tell the callbacks of an event."""
        tools = {"model": self.model, "processing_class": self.processing_class, "tokenizer": self.processing_class}
        self.callback_handler.call(event, self.args, self.state, **tools, **given)

    def log(self, logs: dict[str, float]) -> None:
        """Put ``logs`` into ``state.log_history``, with the epoch and the step, and tell the callbacks."""
        if self.state.epoch is not None:
            logs["epoch"] = self.state.epoch
        self.state.log_history.append({**logs, "step": self.state.global_step})
        self.call("on_log", logs=logs)

    def save_checkpoint(self, trainer: AnyTrainer) -> None:
        """Write the state of the training; a trainer that keeps none has nothing to do."""

    def evaluate_now(self) -> None:
        """Evaluate because a callback asked for it."""

    def saves_at(self, step: int, *, ends: bool) -> bool:
        """Whether a checkpoint is due, not counting those of epochs."""
        return False

    @property
    def is_best_now(self) -> bool:
        """Whether a checkpoint is due because no earlier weights were better."""
        return False


class Followed(Callback):
    """Calls the callbacks of a :class:`FollowedTrainer` as ``transformers`` does, and writes its log.

    ``losses``: of all steps so far, for the mean.
    """

    each_step: ClassVar[bool] = True  # a callback may stop, evaluate or save with the weights of the step

    def __init__(self, owner: FollowedTrainer) -> None:
        self.owner = owner
        self.losses: list[float] = []
        self._logged = 0
        self._evaluates = False
        self.began = time.monotonic()

    def on_begin(self, trainer: AnyTrainer) -> None:
        owner, state, args = self.owner, self.owner.state, self.owner.args
        state.max_steps = trainer.options.num_steps
        state.num_train_epochs = math.ceil(state.max_steps / trainer.plan.steps_per_epoch)
        state.logging_steps = _every(args.logging_steps, state.max_steps)
        state.global_step = trainer.at.step
        state.epoch = trainer.at.step / trainer.plan.steps_per_epoch
        self._logged = trainer.at.step
        owner.call("on_train_begin")
        self._obey(trainer)
        if trainer.at.step < state.max_steps:
            owner.call("on_epoch_begin")
            owner.call("on_step_begin")

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        owner, state, args = self.owner, self.owner.state, self.owner.args
        state.global_step = record["step"]
        state.epoch = record["step"] / trainer.plan.steps_per_epoch
        self.losses.append(record["loss"])
        control, evaluates = owner.control, self._evaluation_is_due(trainer)
        control.should_log = (args.logging_first_step and state.global_step == 1) or (
            args.logging_strategy == "steps" and state.global_step % max(1, state.logging_steps) == 0
        )
        control.should_evaluate = args.eval_strategy == "steps" and evaluates
        control.should_save = owner.saves_at(state.global_step, ends=self._ends(trainer))
        owner.call("on_step_end", optimizer=trainer.optimizer)
        self._obey(trainer)
        if owner.control.should_log:
            self._log(trainer, record)
        if self._epoch_ends(trainer):
            control = owner.control
            control.should_log = args.logging_strategy == "epoch"
            control.should_evaluate |= args.eval_strategy == "epoch"
            control.should_save |= args.save_strategy == "epoch"
            owner.call("on_epoch_end")
            self._obey(trainer)
            if owner.control.should_log:
                self._log(trainer, record)
        self._evaluates = trainer.evaluate is not None and self._evaluation_is_due(trainer)
        if not self._evaluates:
            self._end_step(trainer)

    def on_epoch(self, trainer: AnyTrainer, record: Record) -> None:
        if self._evaluates:
            self._end_step(trainer)

    def _log(self, trainer: AnyTrainer, record: Record) -> None:
        """The mean loss since it was last logged, once a step."""
        if self._logged == record["step"]:
            return
        recent = self.losses[self._logged - record["step"] :]
        self._logged = record["step"]
        rate = trainer.optimizer.param_groups[0]["lr"]  # of the step that was taken
        logs = {"loss": sum(recent) / len(recent), "grad_norm": record["grad_norm"], "learning_rate": rate}
        self.owner.log(logs)

    def _end_step(self, trainer: AnyTrainer) -> None:
        """What follows an evaluation, or a step without one."""
        owner = self.owner
        self._obey(trainer)
        if owner.control.should_evaluate and not self._evaluates:
            owner.evaluate_now()
            self._obey(trainer)
        if owner.control.should_save or owner.is_best_now:
            owner.save_checkpoint(trainer)
            owner.call("on_save")
        if not self._ends(trainer):
            if self._epoch_ends(trainer):
                owner.call("on_epoch_begin")
            owner.call("on_step_begin")
        trainer.model.train()  # a callback may have evaluated

    def _obey(self, trainer: AnyTrainer) -> None:
        if self.owner.control.should_training_stop:
            trainer.stop()

    def _ends(self, trainer: AnyTrainer) -> bool:
        return trainer.at.step >= trainer.options.num_steps or trainer.at.stopped_early

    def _epoch_ends(self, trainer: AnyTrainer) -> bool:
        return trainer.at.step % trainer.plan.steps_per_epoch == 0 or self._ends(trainer)

    def _evaluation_is_due(self, trainer: AnyTrainer) -> bool:
        every = trainer.options.evaluate_every_steps or trainer.plan.steps_per_epoch
        return trainer.at.step % every == 0 or self._ends(trainer)


def _every(steps: float, num_steps: int) -> int:
    return math.ceil(num_steps * steps) if 0 < steps < 1 else int(steps)
