"""``Trainer`` as it is typed for ``transformers``, on bertkit's own training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from bertkit.errors import ConfigError, DataError, InputError
from bertkit.habit_table import remedy
from bertkit.habits.followed import Followed, called_with_trial
from bertkit.habits.trainer_callbacks import Logs, TrainerCallback, TrainerState, named_metric
from bertkit.habits.trainer_checkpoints import SavingTrainer
from bertkit.habits.trainer_data import (
    CalledModel,
    Collate,
    Collated,
    Row,
    collate_with,
    label_names_of,
    read_names,
    rows_of,
)
from bertkit.habits.trainer_evaluation import EvalPrediction, EvaluatingTrainer, speed
from bertkit.habits.training_arguments import TrainingArguments
from bertkit.model.models import HeadModel
from bertkit.model.padded import PackedModel
from bertkit.optim import Schedule, adamw, parameter_groups
from bertkit.system.console import quiet
from bertkit.training.trainer.assembly import RunOptions, make_trainer, run_trainer
from bertkit.training.trainer.batch_plan import EpochPlan, WholeSteps
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.generators import seed_generators
from bertkit.training.trainer.trackers import MLflowCallback, TensorBoardCallback

#: Tasks of ``finetune`` by the end of a model's name.
TASKS = {"TokenClassification": "ner", "QuestionAnswering": "squad", "MultipleChoice": "swag"}
#: Score that the loop keeps the best weights by: larger is better.
_BEST = "best"


class TrainOutput(NamedTuple):
    """What :meth:`Trainer.train` returns; ``training_loss``: the mean over all steps."""

    global_step: int
    training_loss: float
    metrics: Logs


class TrainerOptions(TypedDict, total=False):
    """Further keywords of :class:`Trainer`.

    model_init: makes the model, in place of ``model``. compute_loss_func: ``(outputs, labels, num_items_in_batch=)`` to
    the loss. compute_metrics: an :class:`EvalPrediction` to scores by name. optimizers: an optimizer and a
    ``LambdaLR``, each may be None. preprocess_logits_for_metrics: ``(logits, labels)`` to what is kept. tokenizer: the
    older name of ``processing_class``.
    """

    model_init: Callable[..., nn.Module] | None
    compute_loss_func: Callable[..., Tensor] | None
    compute_metrics: Callable[[EvalPrediction], Mapping[str, float]] | None
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None
    optimizers: tuple[Optimizer | None, Any]
    preprocess_logits_for_metrics: Callable[[Any, Any], Tensor] | None
    tokenizer: Any


class Trainer(SavingTrainer):
    """Train a model on encoded rows, with the names and the meaning of ``transformers.Trainer``.

    model: one of bertkit's with a head, which is trained on packed rows; or any module whose output has a ``loss``.
    args: see :class:`TrainingArguments`. train_dataset, eval_dataset: rows of ``input_ids``, ``labels`` ...: a list of
    dicts, a torch or ``datasets`` Dataset, a table; for evaluation also a dict of several. data_collator: rows to a
    dict of tensors; None pads by ``processing_class``, the tokenizer.

    The weights after each step are those of ``transformers`` for the same order of rows. Deviates: the order of rows is
    bertkit's own for a seed; the loss of accumulated batches is the mean over all of their labels; one device. For
    texts and labels in a file, with a dev set, baseline and report, there is :func:`bertkit.finetune`.

    Raises:
        ConfigError: an unknown keyword; arguments that this training does not have, with the same in bertkit's words.
        DataError: no rows, or something that has none.
    """

    args: TrainingArguments

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        data_collator: Collate | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(options.get("callbacks"))
        if unknown := options.keys() - TrainerOptions.__annotations__.keys():
            near = remedy("Trainer", min(unknown), TrainerOptions.__annotations__)
            raise ConfigError(f"Trainer has no keyword {min(unknown)!r}{near}")
        self.args = args or TrainingArguments("tmp_trainer")
        seed_generators(self.args.seed)
        made = options.get("model_init")
        if (model is None) == (made is None):
            raise ConfigError("Trainer needs model= or model_init=, and not both")
        self.model = called_with_trial(made) if model is None and made is not None else model
        if not isinstance(self.model, nn.Module):
            raise InputError(
                f"model must be a model object, got {self.model!r:.80}; write "
                "model=AutoModelForSequenceClassification.from_pretrained(...)"
            )
        self.model.to(self.args.device)
        self.processing_class = processing_class or options.get("tokenizer")
        self.data_collator = data_collator or collate_with(self.processing_class)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.compute_metrics = options.get("compute_metrics")
        self.compute_loss_func = options.get("compute_loss_func")
        self.preprocess_logits_for_metrics = options.get("preprocess_logits_for_metrics")
        self.optimizer: Optimizer | None
        self.lr_scheduler: Any
        self.optimizer, self.lr_scheduler = options.get("optimizers") or (None, None)
        self.label_names = tuple(self.args.label_names or label_names_of(self.model))
        self.read_names = read_names(self.model) if self.args.remove_unused_columns else None
        self.call("on_init_end")

    @property
    def tokenizer(self) -> Any:
        """The older name of ``processing_class``."""
        return self.processing_class

    def train(self, resume_from_checkpoint: str | bool | None = None, **ignored: Any) -> TrainOutput:
        """Train to the end.

        resume_from_checkpoint: True continues from the newest ``checkpoint-N`` of ``output_dir``, a path from that one.

        Raises:
            DataError: no training rows.
            CheckpointError: nothing to resume from, or a checkpoint of another training.
            TrainingError, ResourceError: as :meth:`bertkit.training.trainer.loop.Trainer.run`.
        """
        args = self.args
        if ignored:
            raise self.refused(f"train has no keyword {', '.join(ignored)}")
        if type(self).get_train_dataloader is not Trainer.get_train_dataloader:
            raise self.refused("get_train_dataloader cannot be overridden: give another train_dataset or data_collator")
        seed_generators(args.seed)
        rows = rows_of(self.train_dataset, "train_dataset")
        trainer = self._assembled(rows)
        self.state = TrainerState(
            save_steps=args.every("save_steps", trainer.options.num_steps), train_batch_size=args.train_batch_size
        )
        if resume_from_checkpoint:
            self.resume(trainer, resume_from_checkpoint)
        followed, began, first = Followed(self), time.monotonic(), trainer.at.step
        with quiet(bool(args.disable_tqdm)):
            run_trainer(trainer, RunOptions(callbacks=(followed, *_trackers(args))))
        if args.load_best_model_at_end:
            trainer.restore_best()
        self.model.eval()
        steps = self.state.global_step - first
        loss = sum(followed.losses) / max(1, len(followed.losses))
        num_rows = steps * args.train_batch_size * args.gradient_accumulation_steps
        metrics = {**speed("train", began, num_rows, steps), "total_flos": 0.0, "train_loss": loss}
        self.log(metrics)
        self.call("on_train_end")
        return TrainOutput(self.state.global_step, loss, metrics)

    def refused(self, reason: str) -> ConfigError:
        """That something is not possible here, with the same training in bertkit's words."""
        kind = type(self.model).__name__.partition("For")[2]
        model = getattr(self.model, "name_or_path", None) or "MODEL"
        words = self.args.in_our_words(self.args.to_dict(), TASKS.get(kind, "csv"), str(model))
        return ConfigError(f"{reason}. {words}")

    def _assembled(self, rows: Sequence[Row]) -> AnyTrainer:
        args, model = self.args, self.model
        own_loss = type(self).compute_loss is not EvaluatingTrainer.compute_loss or self.compute_loss_func is not None
        own_forward = not type(model).__module__.startswith("bertkit.")  # of a subclass, which is called as it is
        is_packed = isinstance(model, HeadModel) and not own_loss and not own_forward
        if isinstance(model, PackedModel) and not model.targets and not own_loss and not own_forward:
            raise InputError(
                f"{type(model).__name__} has no head, so there is nothing to learn: write "
                "AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2), or override compute_loss"
            )

        def batch_of(numbers: list[int]) -> Any:
            inputs = self.inputs_of([rows[number] for number in numbers])
            return model.pack(*_parted(inputs, model))[0] if is_packed else Collated(inputs, len(numbers))

        size = args.per_device_train_batch_size
        step_size = size * args.gradient_accumulation_steps
        seed = args.seed if args.data_seed is None else args.data_seed
        plan: EpochPlan[Any] | WholeSteps[Any]
        if args.train_sampling_strategy == "sequential":
            steps = [np.arange(at, min(at + step_size, len(rows))) for at in range(0, len(rows), step_size)]
            plan = WholeSteps([1] * len(rows), batch_of, lambda epoch: steps, size)
        else:
            plan = EpochPlan([1] * len(rows), batch_of, step_size=step_size, max_tokens=size, seed=seed, unit="rows")
        if args.dataloader_drop_last:
            plan.steps_per_epoch = max(1, len(rows) // step_size)
        num_steps = args.steps(plan.steps_per_epoch)
        optimizer, schedule = self._optimizer(num_steps)
        evaluates = args.eval_strategy != "no"
        if evaluates and self.eval_dataset is None:
            raise DataError(f"eval_strategy={args.eval_strategy!r} needs eval_dataset=")
        loop = RunOptions().loop(args, num_steps, args.learning_rate, args.precision)
        loop = replace(
            loop,
            max_grad_norm=args.max_grad_norm or math.inf,
            monitor=_BEST if args.load_best_model_at_end else None,
            evaluate_every_steps=args.every("eval_steps", num_steps) if args.eval_strategy == "steps" else None,
            compile=args.torch_compile,
        )
        module = model if is_packed else CalledModel(model, lambda own, inputs: self.compute_loss(own, inputs))
        evaluate = self._evaluated if evaluates else None
        return make_trainer(module, plan, args, loop, optimizer=optimizer, schedule=schedule, evaluate=evaluate)

    def _optimizer(self, num_steps: int) -> tuple[Optimizer, Schedule]:
        """Those that were given, or else AdamW and the schedule of the arguments."""
        args, schedule = self.args, self.args.schedule(num_steps)
        if self.lr_scheduler is not None:
            factors = getattr(self.lr_scheduler, "lr_lambdas", None)
            if factors is None:
                raise self.refused(
                    f"optimizers: a {type(self.lr_scheduler).__name__} is no LambdaLR; give None, and lr_scheduler_type"
                )
            schedule = factors[0]
        given = self.optimizer is not None
        optimizer = self.create_optimizer()
        if given or type(self).create_optimizer is not Trainer.create_optimizer:
            for group in optimizer.param_groups:  # the loop sets rates as multiples of that of the arguments
                group.setdefault("lr_scale", group.get("initial_lr", group["lr"]) / args.learning_rate)
        return optimizer, schedule

    def create_optimizer(self) -> Optimizer:
        """The optimizer that was given, or AdamW, which does not decay biases and norms; a subclass may make another.

        It is kept as ``optimizer``, and a second training goes on with it.
        """
        if self.optimizer is None:
            args = self.args
            groups = parameter_groups(self.model, weight_decay=args.weight_decay)
            betas = (args.adam_beta1, args.adam_beta2)
            self.optimizer = adamw(groups, learning_rate=args.learning_rate, betas=betas, eps=args.adam_epsilon)
        return self.optimizer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of training rows, to look at; :meth:`train` makes its own, in another order."""
        return self.loader(self.train_dataset, shuffle=True)

    def _evaluated(self, check: Callable[[], None]) -> dict[str, float]:
        """What the loop compares; larger is better."""
        check()
        if not self.control.should_evaluate:  # a callback said so
            return {_BEST: -math.inf}
        metrics = {name: value for name, value in self.evaluate().items() if isinstance(value, int | float)}
        if self.args.metric_for_best_model is None:
            return metrics
        name = named_metric(self.args.metric_for_best_model)
        if name not in metrics:
            raise ConfigError(f"metric_for_best_model={name!r} is not among the scores {', '.join(metrics)}")
        value, state, sign = metrics[name], self.state, 1 if self.args.greater_is_better else -1
        if state.best_metric is None or sign * value > sign * state.best_metric:
            state.best_metric, state.best_global_step = value, state.global_step
        return {**metrics, _BEST: sign * value}


def _trackers(args: TrainingArguments) -> list[Callback]:
    """What writes the log elsewhere; a MissingExtraError if that is not installed."""
    known: dict[str, Callable[[], Callback]] = {
        "tensorboard": lambda: TensorBoardCallback(args.logging_dir or Path(str(args.output_dir)) / "runs"),
        "mlflow": lambda: MLflowCallback(run_name=args.run_name),
    }
    return [known[name]() for name in args.reports]


def _parted(inputs: Mapping[str, Any], model: HeadModel) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and targets of a model; without its targets there is nothing to learn."""
    targets = {name: value for name, value in inputs.items() if name in model.targets}
    if not targets:
        raise DataError(
            f"the rows have the columns {', '.join(inputs)}, and no {' or '.join(model.targets)}, which the loss of "
            f"{type(model).__name__} compares with"
        )
    return {name: value for name, value in inputs.items() if name not in targets}, targets
