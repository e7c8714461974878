"""``SentenceTransformerTrainer`` and its arguments: what is commonly typed of them, through bertkit's training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from bertkit.errors import InputError
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.comparison_losses import CoSENTLoss, TrainingLoss
from bertkit.habits.sentences.ranking_losses import (
    BinaryCrossEntropyLoss,
    SparseMultipleNegativesRankingLoss,
    SpladeLoss,
)
from bertkit.habits.sentences.sentence_training import (
    EvaluateEpochs,
    Evaluator,
    TrainingPlan,
    mean_loss,
    train_rows,
)
from bertkit.system.console import say
from bertkit.system.paths import user_path
from bertkit.training.trainer.callbacks import Callback

if TYPE_CHECKING:
    from bertkit.habits.sentences.sentence_training import Trainable


class MultiDatasetBatchSamplers(StrEnum):
    """Accepted without an effect: a training has one data set."""

    ROUND_ROBIN = "round_robin"
    PROPORTIONAL = "proportional"


class BatchSamplers(StrEnum):
    """Accepted and without effect: no batch has a text twice where that would be a false negative."""

    BATCH_SAMPLER = "batch_sampler"
    NO_DUPLICATES = "no_duplicates"
    NO_DUPLICATES_HASHED = "no_duplicates_hashed"
    GROUP_BY_LABEL = "group_by_label"


class ArgumentOptions(TypedDict, total=False):
    """Keywords of :class:`SentenceTransformerTrainingArguments`; without effect: :mod:`bertkit.habit_table`."""

    num_train_epochs: float
    max_steps: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    warmup_ratio: float
    warmup_steps: float
    weight_decay: float
    max_grad_norm: float
    lr_scheduler_type: str
    seed: int
    fp16: bool
    bf16: bool
    eval_strategy: str
    evaluation_strategy: str
    save_strategy: str
    load_best_model_at_end: bool
    metric_for_best_model: str | None
    prompts: str | Mapping[str, str] | None


class SentenceTransformerTrainingArguments:
    """Settings of a training, with the names and defaults of sentence-transformers.

    Deviates: evaluation is after each epoch whatever ``eval_strategy`` says but ``"no"``; the trained model is saved
    once, as ``OUTPUT_DIR/checkpoint-STEPS``, unless ``save_strategy="no"``; the rate rises and falls linearly.

    Raises:
        InputError: an argument that there is not; the message has what to write instead.
    """

    def __init__(self, output_dir: str | Path | None = None, **options: Unpack[ArgumentOptions]) -> None:
        known = ArgumentOptions.__annotations__
        self.output_dir = output_dir
        self.options: ArgumentOptions = ArgumentOptions(
            **known_keywords("SentenceTransformerTrainingArguments", options, known)  # type: ignore[typeddict-item]
        )
        if (schedule := str(self.options.get("lr_scheduler_type", "linear"))) != "linear":
            raise InputError(f"lr_scheduler_type={schedule!r}: the rate rises and falls linearly; omit it")

    def plan(self, columns: Sequence[str] = ()) -> TrainingPlan:
        """The same as this package says it; ``columns``: of the training rows, by which ``prompts`` may be given."""
        given = self.options
        prompts = given.get("prompts") or ""
        if isinstance(prompts, str):
            first = others = prompts
        else:
            first, others = (prompts.get(name, "") for name in [*columns, "", ""][:2])
        precision = "bf16" if given.get("bf16") else "fp16" if given.get("fp16") else "fp32"
        return TrainingPlan(
            epochs=given.get("num_train_epochs", 3),
            learning_rate=given.get("learning_rate", 5e-5),
            batch_size=given.get("per_device_train_batch_size", 8),
            max_steps=given.get("max_steps", -1),
            warmup=given.get("warmup_steps") or given.get("warmup_ratio", 0.0),
            settings={
                "weight_decay": given.get("weight_decay", 0.0),
                "max_grad_norm": given.get("max_grad_norm", 1.0),
                "accumulation": given.get("gradient_accumulation_steps", 1),
                "seed": given.get("seed", 42),
                "precision": precision,
            },
            prompts=(first, others),
        )

    @property
    def evaluates(self) -> bool:
        """Whether the model is evaluated during training."""
        asked = self.options.get("eval_strategy", self.options.get("evaluation_strategy", "no"))
        return str(asked) != "no"


class TrainOutput(NamedTuple):
    """What a training says of itself; ``training_loss`` is that of the last epoch."""

    global_step: int
    training_loss: float
    metrics: dict[str, float]


class TrainerState(NamedTuple):
    """Where a training is: steps, and what was said of each epoch."""

    global_step: int = 0
    log_history: Sequence[Mapping[str, Any]] = ()


class TrainerOptions(TypedDict, total=False):
    """Keywords of :class:`SentenceTransformerTrainer`."""

    eval_dataset: Any
    loss: TrainingLoss | None
    evaluator: Evaluator | Sequence[Evaluator] | None
    callbacks: Sequence[Callback] | None


class SentenceTransformerTrainer:
    """Trains a :class:`SentenceTransformer` in place, as the one of sentence-transformers does.

    Args:
        model: is changed by :meth:`train`.
        args: None: the defaults.
        train_dataset: a ``datasets.Dataset``, a frame, a dict of lists or a list of dicts; columns ``label``,
            ``labels``, ``score`` or ``scores`` hold scores, the others texts, in the order that the loss reads.
        **options: ``loss`` (see :mod:`bertkit.sentence_transformers.losses`; None: CoSENT), ``eval_dataset``,
            ``evaluator``, ``callbacks`` (:class:`bertkit.Callback`).

    Raises:
        DataError: rows that do not fit the loss; the message names the row, counted from 0.
    """

    def __init__(
        self,
        model: Trainable,
        args: SentenceTransformerTrainingArguments | None = None,
        train_dataset: Any = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        known_keywords("SentenceTransformerTrainer", options, TrainerOptions.__annotations__)
        self.model, self.args = model, args or SentenceTransformerTrainingArguments()
        self.train_dataset, self.eval_dataset = train_dataset, options.get("eval_dataset")
        if isinstance(loss := options.get("loss"), Mapping):
            raise InputError("a dict of losses goes with a dict of data sets: train on one after the other")
        self.loss = self.usual_loss(model) if loss is None else loss
        evaluator = options.get("evaluator")
        self.evaluators: list[Evaluator] = (
            [] if evaluator is None else list(evaluator) if isinstance(evaluator, Sequence) else [evaluator]
        )
        self.state = TrainerState()
        self.callbacks = list(options.get("callbacks") or ())
        if other := [each for each in self.callbacks if not isinstance(each, Callback)]:
            raise InputError(f"callbacks must be bertkit.Callback objects, got a {type(other[0]).__name__}")

    @staticmethod
    def usual_loss(model: Trainable) -> TrainingLoss:
        """The loss where none is given."""
        return CoSENTLoss(model)

    def train(self, **options: object) -> TrainOutput:
        """Train; the model is changed. Returns steps, the loss of the last epoch and the last scores."""
        known_keywords("SentenceTransformerTrainer.train", options, ())
        given, output = self.args.options, self.args.output_dir
        best = bool(given.get("load_best_model_at_end"))
        if best and self.eval_dataset is None:
            best = False
            say("load_best_model_at_end chooses by eval_dataset=, and none is given: the last epoch is kept")
        if best and (metric := given.get("metric_for_best_model")):
            say(f"the best epoch is chosen by the main score of eval_dataset, not by metric_for_best_model={metric!r}")
        evaluates = self.args.evaluates and self.evaluators
        follow = EvaluateEpochs(self.model, self.evaluators, None if output is None else str(output))
        found = train_rows(
            self.model,
            self.train_dataset,
            self.loss,
            self._plan(),
            dev=self.eval_dataset if best else None,
            callbacks=[*self.callbacks, *([follow] if evaluates else [])],
        )
        at = found.progression
        scores = [*follow.found, *({} for _ in at.epochs)]
        history = [{**epoch, **more} for epoch, more in zip(at.epochs, scores, strict=False)]
        self.state = TrainerState(at.step, history)
        if output is not None and str(given.get("save_strategy", "steps")) != "no":
            self.save_model(user_path(output) / f"checkpoint-{at.step}")
        loss = float(at.epochs[-1]["train_loss"]) if at.epochs else float("nan")
        return TrainOutput(at.step, loss, {"train_loss": loss, **(follow.found[-1] if follow.found else {})})

    def evaluate(self, eval_dataset: Any = None) -> dict[str, float]:
        """``eval_loss`` of the rows that were given for evaluation, and what each evaluator says, as ``eval_NAME``."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        found = {} if rows is None else {"eval_loss": mean_loss(self.model, rows, self.loss, self._plan())}
        for evaluator in self.evaluators:
            scores = evaluator(self.model)
            scores = scores if isinstance(scores, dict) else {type(evaluator).__name__: scores}
            found.update({f"eval_{name}": value for name, value in scores.items()})
        return found

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Save the model; None: into the folder of the arguments."""
        folder = output_dir or self.args.output_dir
        if folder is None:
            raise InputError("save_model needs a folder")
        self.model.save_pretrained(folder)

    def _plan(self) -> TrainingPlan:
        return self.args.plan(list(getattr(self.train_dataset, "column_names", ())))


class CrossEncoderTrainingArguments(SentenceTransformerTrainingArguments):
    """The same for :class:`CrossEncoderTrainer`."""


class CrossEncoderTrainer(SentenceTransformerTrainer):
    """Trains a :class:`CrossEncoder` of one output in place, by default with binary cross-entropy."""

    @staticmethod
    def usual_loss(model: Trainable) -> TrainingLoss:
        return BinaryCrossEntropyLoss(model)


class SparseEncoderTrainingArguments(SentenceTransformerTrainingArguments):
    """The same for :class:`SparseEncoderTrainer`."""


class SparseEncoderTrainer(SentenceTransformerTrainer):
    """Trains a :class:`SparseEncoder` in place, by default with :class:`SpladeLoss` and its usual penalties."""

    @staticmethod
    def usual_loss(model: Trainable) -> TrainingLoss:
        return SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
