"""``Trainer`` and ``TrainingArguments`` of SetFit, over bertkit's few-shot training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict, Unpack

import numpy as np

from bertkit.errors import ConfigError, DataError, InputError, did_you_mean
from bertkit.habit_table import remedy
from bertkit.habits.few_shot_data import texts_and_labels
from bertkit.habits.few_shot_model import SetFitModel
from bertkit.habits.followed import Followed, FollowedTrainer, called_with_trial
from bertkit.habits.trainer_callbacks import TrainerCallback, TrainerState
from bertkit.habits.training_arguments import Arguments, call_and_command
from bertkit.ragged import Ints
from bertkit.system.console import quiet, say
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.label_contrast import pair_steps
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.loop_options import Record

#: Metrics by the names of the package ``evaluate``; functions of scikit-learn.
METRICS = {
    "accuracy": "accuracy_score",
    "f1": "f1_score",
    "precision": "precision_score",
    "recall": "recall_score",
    "matthews_correlation": "matthews_corrcoef",
}
SAMPLING = ("oversampling", "undersampling", "unique")
#: Pairs that each text is in, of an epoch, where nothing is said: the default of FinetuneConfig.
PAIRS = 20
Scores = dict[str, Any]


@dataclass(init=False, repr=False)
class TrainingArguments(Arguments):
    """How to train, under the names and with the defaults of SetFit.

    The training is bertkit's few-shot training: a step compares up to 32 pairs of 16 texts, as many of one label as of
    two. num_iterations: pairs for each text, twice as many, as there. num_epochs: how often as many again. max_steps:
    so many steps. body_learning_rate: if it is given; else that of :class:`bertkit.FinetuneConfig`. batch_size,
    sampling_strategy and what is about a head that is trained by gradients: accepted, no effect; nor have strategies of
    evaluation during the training, of which a line is said.

    Raises:
        ConfigError: an unknown argument, or ``end_to_end=True``.
    """

    entry: ClassVar[str] = "setfit.TrainingArguments"
    output_dir: str = "checkpoints"
    batch_size: int | tuple[int, int] = (16, 2)
    num_epochs: int | tuple[int, int] = (1, 16)
    max_steps: int = -1
    sampling_strategy: str = "oversampling"
    num_iterations: int | None = None
    body_learning_rate: float | tuple[float, float] = (2e-5, 1e-5)
    head_learning_rate: float = 1e-2
    loss: Any = None
    end_to_end: bool = False
    warmup_proportion: float = 0.1
    l2_weight: float | None = 0.01
    max_length: int | None = None
    show_progress_bar: bool = True
    logging_steps: float = 50
    logging_first_step: bool = True
    save_strategy: str = "steps"
    load_best_model_at_end: bool = False
    metric_for_best_model: Any = "embedding_loss"

    def __init__(self, output_dir: str | None = None, **given: Any) -> None:
        self.given = given
        super().__init__(output_dir, **given)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.embedding_batch_size, self.classifier_batch_size = _both(self.batch_size)
        self.embedding_num_epochs, self.classifier_num_epochs = _both(self.num_epochs)
        rates = _both(self.body_learning_rate)
        self.body_embedding_learning_rate, self.body_classifier_learning_rate = rates
        if not 0 <= self.warmup_proportion < 1:
            raise ConfigError(f"warmup_proportion must be from 0 to below 1, got {self.warmup_proportion}")
        if self.sampling_strategy not in SAMPLING:
            raise ConfigError(f"sampling_strategy={self.sampling_strategy!r}: it is one of {', '.join(SAMPLING)}")
        if self.end_to_end:
            raise self.refuse("end_to_end=True: encoder and head are trained together by plain fine-tuning")
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        if self.loss is not None and name not in ("CosineSimilarityLoss", "CoSENTLoss"):
            raise self.refuse(f"loss={name}: pairs are trained with the cosine loss, or CoSENT above eight labels")

    @classmethod
    def in_our_words(cls, given: Mapping[str, Any], task: str = "csv", model: str = "MODEL") -> str:
        """The same training by :func:`bertkit.finetune` and by the command."""
        settings: dict[str, Any] = {"few_shot": True, "few_shot_method": "contrastive"}
        if given.get("end_to_end"):
            settings["few_shot_method"] = "finetune"
        if given.get("num_iterations"):
            settings["few_shot_pairs"] = 2 * given["num_iterations"]
        if given.get("max_length"):
            settings["max_length"] = given["max_length"]
        return call_and_command(task, model, str(given.get("output_dir") or "OUT"), settings)

    def update(self, arguments: Mapping[str, Any], ignore_extra: bool = False) -> Self:
        """A copy with some other arguments."""
        known = self.to_dict()
        new = {name: value for name, value in arguments.items() if name in known or not ignore_extra}
        return type(self)(**{**self.given, "output_dir": self.output_dir, **new})

    def config(self, labels: Ints | None) -> FinetuneConfig:
        """Settings of bertkit; ``labels``: numbers of the labels of the training rows, for ``max_steps``."""
        pairs = PAIRS if self.num_iterations is None else 2 * self.num_iterations
        pairs *= max(1, self.embedding_num_epochs)
        if self.max_steps > 0 and labels is not None:
            pairs = _pairs_for(labels, self.max_steps, self.seed)
        return FinetuneConfig(
            few_shot=True,
            few_shot_method="contrastive" if self.embedding_num_epochs else "linear",
            few_shot_pairs=max(2, pairs),
            learning_rate=self.body_embedding_learning_rate if "body_learning_rate" in self.given else None,
            warmup=self.warmup_proportion,
            max_length=self.max_length,
            seed=self.seed,
        )


def _both(value: Any) -> tuple[Any, Any]:
    return (value[0], value[1]) if isinstance(value, Sequence) else (value, value)


def _pairs_for(labels: Ints, num_steps: int, seed: int) -> int:
    """The fewest pairs for each text that make so many steps."""
    low, high = 2, 10_000
    while low < high:
        middle = (low + high) // 2 if high < 10_000 else min(2 * low, 9_999)
        if len(pair_steps(labels, middle, seed)) >= num_steps or middle == 9_999:
            high = middle
        else:
            low = middle + 1
    return low


class _StopAfter(Callback):
    """Ends a training after so many steps."""

    each_step: ClassVar[bool] = True

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        if trainer.at.step >= self.num_steps:
            trainer.stop()


class TrainerOptions(TypedDict, total=False):
    """Further keywords of :class:`Trainer`.

    model_init: makes the model. metric: ``"accuracy"``, ``"f1"``, ``"precision"``, ``"recall"``,
    ``"matthews_correlation"``, or a function of predictions and labels; metric_kwargs: keywords of it, such as
    ``{"average": "macro"}``. column_mapping: names of columns to ``text`` and ``label``.
    """

    model_init: Callable[..., SetFitModel] | None
    metric: str | Callable[..., Any]
    metric_kwargs: Mapping[str, Any] | None
    callbacks: Sequence[TrainerCallback | type[TrainerCallback]] | None
    column_mapping: Mapping[str, str] | None


class Trainer(FollowedTrainer):
    """Train a :class:`SetFitModel` on texts and labels; see :class:`TrainingArguments`.

    train_dataset, eval_dataset: columns ``text`` and ``label`` (a number, a name, or for several labels 0 and 1) of a
    ``datasets.Dataset``, a DataFrame, a dict of columns or a list of dicts.

    Raises:
        ConfigError: neither ``model`` nor ``model_init``, an unknown keyword, arguments of another library.
        DataError: a column is missing, with the mapping to write.
    """

    entry = "setfit.Trainer."
    args: TrainingArguments
    model: SetFitModel

    def __init__(
        self,
        model: SetFitModel | None = None,
        args: TrainingArguments | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        super().__init__(options.get("callbacks"))
        known = TrainerOptions.__annotations__
        if unknown := options.keys() - known.keys():
            near = remedy("setfit.Trainer", min(unknown), known)
            raise ConfigError(f"Trainer has no keyword {min(unknown)!r}{near}")
        if args is not None and not isinstance(args, TrainingArguments):
            raise ConfigError(
                f"args is a {type(args).__name__} of another trainer; write "
                "from bertkit.setfit import TrainingArguments"
            )
        self.model_init = options.get("model_init")
        if (model is None) == (self.model_init is None):
            raise ConfigError("Trainer needs model= or model_init=, and not both")
        self.args = args or TrainingArguments()
        made = model if self.model_init is None else called_with_trial(self.model_init)
        self.model = made  # type: ignore[assignment]
        self.metric, self.metric_kwargs = options.get("metric", "accuracy"), dict(options.get("metric_kwargs") or {})
        if isinstance(self.metric, str) and self.metric not in METRICS:
            raise ConfigError(f"metric={self.metric!r}{did_you_mean(self.metric, METRICS)}; or give a function")
        self.column_mapping = options.get("column_mapping")
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        for name, dataset in (("train_dataset", train_dataset), ("eval_dataset", eval_dataset)):
            if dataset is not None:
                self._columns(dataset, name)

    def _columns(self, dataset: Any, name: str) -> tuple[list[str], list[Any]]:
        return texts_and_labels(dataset, name, self.column_mapping)

    def train(self, args: TrainingArguments | None = None, **ignored: Any) -> None:
        """Train encoder and head on the training rows; the model is changed in place.

        Raises:
            DataError: no training rows, or rows of one label only.
            ConfigError: no label has two texts.
        """
        args = args or self.args
        if ignored:
            raise ConfigError(f"train has no keyword {', '.join(ignored)}: give TrainingArguments(...)")
        if self.train_dataset is None:
            raise DataError("Trainer has no train_dataset=")
        texts, labels = self._columns(self.train_dataset, "train_dataset")
        if args.eval_strategy != "no" or args.load_best_model_at_end:
            say("no evaluation during this training, whose last weights are kept; trainer.evaluate() scores them")
        numbers = np.unique(np.array(labels), axis=0, return_inverse=True)[1].reshape(-1)
        self.state = TrainerState()
        follow: list[Callback] = [_StopAfter(args.max_steps)] if args.max_steps > 0 else []
        options = FitOptions(label="training", callbacks=[*follow, Followed(self)])
        with quiet(not args.show_progress_bar):
            self.model.train_on(texts, labels, args.config(numbers), options)
        self.call("on_train_end")

    def evaluate(self, dataset: Any = None, metric_key_prefix: str = "test") -> Scores:
        """The metric on labelled rows, by default those of ``eval_dataset``: ``{"accuracy": 0.9}``.

        Raises:
            DataError: no rows.
            InputError: the metric needs keywords, such as ``average`` for more than two labels.
        """
        given = self.eval_dataset if dataset is None else dataset
        if given is None:
            raise DataError("nothing to evaluate on: give evaluate(rows), or Trainer(..., eval_dataset=rows)")
        texts, labels = self._columns(given, "eval_dataset")
        predicted = self.model.predict(texts, use_labels=False)
        if callable(self.metric):
            found = self.metric(predicted, labels, **self.metric_kwargs)
            return found if isinstance(found, dict) else {"metric": found}
        from sklearn import metrics

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a label that is never predicted, whose score is 0
                score = getattr(metrics, METRICS[self.metric])(
                    np.asarray(labels), np.asarray(predicted), **self.metric_kwargs
                )
        except ValueError as error:
            raise InputError(f"metric {self.metric!r}: {error}; write metric_kwargs={{'average': 'macro'}}") from None
        return {self.metric: float(score)}
