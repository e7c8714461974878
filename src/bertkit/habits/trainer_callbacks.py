"""What follows a training that is typed as for ``transformers``: ``TrainerCallback`` and what it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.errors import ConfigError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say
from bertkit.system.json_files import parsed, read_json

if TYPE_CHECKING:
    from bertkit.habits.training_arguments import Arguments

#: A record of ``state.log_history``, of a log or of an evaluation.
Logs = dict[str, float]


@dataclass
class TrainerState:
    """How far a training is, under the names of ``transformers``; saved as ``trainer_state.json``.

    epoch: passes over the data, with the part of the current one. log_history: what was logged, in order, each with its
    ``epoch`` and ``step``. best_metric: of the evaluations so far, where the arguments name a metric.
    """

    epoch: float | None = None
    global_step: int = 0
    max_steps: int = 0
    num_train_epochs: int = 0
    logging_steps: int = 500
    eval_steps: int = 500
    save_steps: int = 500
    train_batch_size: int | None = None
    total_flos: float = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    best_metric: float | None = None
    best_global_step: int | None = None
    best_model_checkpoint: str | None = None
    is_local_process_zero: bool = True
    is_world_process_zero: bool = True

    def save_to_json(self, json_path: str | Path) -> None:
        """Write it to a file."""
        write_atomically(Path(json_path), json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    @classmethod
    def load_from_json(cls, json_path: str | Path) -> TrainerState:
        """Read what :meth:`save_to_json` wrote; a CheckpointError if that is damaged."""
        return parsed(read_json(Path(json_path), dict), cls, str(json_path))


@dataclass
class TrainerControl:
    """What a callback may ask for by setting it to True: to stop, or to log, evaluate or save after this step."""

    should_training_stop: bool = False
    should_epoch_stop: bool = False
    should_save: bool = False
    should_evaluate: bool = False
    should_log: bool = False


class TrainerCallback:
    """Follow a training: override what you need; each method does nothing by default.

    Each gets the arguments, the state and the control, and by keyword ``model``, ``processing_class`` (also as
    ``tokenizer``), ``optimizer``, ``train_dataloader`` and ``eval_dataloader`` (None here), ``logs`` and ``metrics``
    where there are some. The control may be changed in place or returned. Deviates: there is no event inside an
    optimizer step (``on_substep_end``, ``on_optimizer_step``, ``on_prediction_step``). bertkit's own form is
    :class:`bertkit.Callback`.
    """

    def on_init_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After the trainer was made."""

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before the first step."""

    def on_train_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After the last step; the best weights are restored already, if they are asked for."""

    def on_epoch_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before the first step of an epoch."""

    def on_epoch_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After the last step of an epoch, before its evaluation."""

    def on_step_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Before an optimizer step."""

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After an optimizer step."""

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After something was logged: ``logs``."""

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After an evaluation: ``metrics``."""

    def on_predict(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After a prediction: ``metrics``."""

    def on_save(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """After a checkpoint was written."""


class PrinterCallback(TrainerCallback):
    """Prints what is logged."""

    def on_log(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        print(kwargs["logs"])


class EarlyStoppingCallback(TrainerCallback):
    """Stops after so many evaluations in a row in which ``metric_for_best_model`` has not become better.

    early_stopping_patience: evaluations. early_stopping_threshold: by how much the metric must become better to count.
    In :func:`bertkit.finetune` this is ``FinetuneConfig(patience=)``.

    Raises:
        ConfigError: when the training begins, without ``metric_for_best_model`` or an evaluation strategy.
    """

    def __init__(self, early_stopping_patience: int = 1, early_stopping_threshold: float | None = 0.0) -> None:
        self.early_stopping_patience = early_stopping_patience
        self.early_stopping_threshold = early_stopping_threshold or 0.0
        self.early_stopping_patience_counter = 0

    def on_train_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if args.metric_for_best_model is None or args.eval_strategy == "no":
            raise ConfigError(
                "EarlyStoppingCallback needs to know what to compare: write TrainingArguments(..., "
                'eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, '
                'metric_for_best_model="loss")'
            )

    def on_evaluate(self, args: Arguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        name = named_metric(args.metric_for_best_model)
        value = kwargs["metrics"].get(name)
        if value is None:
            say(f"early stopping: the evaluation has no {name}, so that it cannot stop the training")
            return
        gain = state.best_metric is None or (value - state.best_metric) * (1 if args.greater_is_better else -1)
        if gain is True or gain > self.early_stopping_threshold:
            self.early_stopping_patience_counter = 0
        else:
            self.early_stopping_patience_counter += 1
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True


def named_metric(metric: str) -> str:
    """A metric as an evaluation calls it: with ``eval_`` in front."""
    return metric if metric.startswith("eval_") else f"eval_{metric}"


class Callbacks:
    """The callbacks of a trainer, called in their order with what all of them are given."""

    def __init__(self, callbacks: Sequence[TrainerCallback | type[TrainerCallback]]) -> None:
        self.listed = [made(callback) for callback in callbacks]
        self.control = TrainerControl()

    @property
    def callbacks(self) -> list[TrainerCallback]:
        """All of them."""
        return self.listed

    def call(self, event: str, args: Arguments, state: TrainerState, **given: Any) -> None:
        """Call a method of each; a control that one returns replaces the present one."""
        for callback in self.listed:
            if (method := getattr(callback, event, None)) is not None:
                found = method(args, state, self.control, **given)
                if isinstance(found, TrainerControl):
                    self.control = found

    def pop(self, callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback | None:
        """Take out one by its class or itself; None if it is not among them."""
        for number, each in enumerate(self.listed):
            if each is callback or (isinstance(callback, type) and isinstance(each, callback)):
                return self.listed.pop(number)
        return None


def made(callback: TrainerCallback | type[TrainerCallback]) -> TrainerCallback:
    """A callback that was given as an object or as its class."""
    return callback() if isinstance(callback, type) else callback
