"""Train a model in place on rows in memory, by the training loop of ``bertkit finetune``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, TypedDict, Unpack

import torch

from bertkit.errors import DataError, InputError
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.comparison_losses import TrainingLoss
from bertkit.system.console import say
from bertkit.tasks.examples import Examples
from bertkit.tasks.workflow import AnyWorkflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.finetuning.finetune import resolved
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import Dev, Fit, fit
from bertkit.training.finetuning.fit import FitOptions as LoopFitOptions
from bertkit.training.trainer.callbacks import AnyTrainer, Callback
from bertkit.training.trainer.loop_options import Record
from bertkit.training.trainer.used_words import all_words

Evaluator = Callable[..., dict[str, float] | float]


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """How long and how fast a model is trained.

    epochs, max_steps: passes over the rows, perhaps not whole ones; or so many steps.
    warmup: share of the steps in which the rate rises, or their number, from 1.
    settings: others of :class:`bertkit.FinetuneConfig`.
    prompts: put before the first text of a row, and before the others.
    """

    epochs: float
    learning_rate: float
    batch_size: int
    max_steps: int = -1
    warmup: float = 0.0
    settings: Mapping[str, Any] | None = None
    prompts: tuple[str, str] = ("", "")

    def of_rows(self, num_rows: int) -> FinetuneConfig:
        """The settings for so many rows."""
        settings = dict(self.settings or {})
        per_epoch = math.ceil(num_rows / (self.batch_size * settings.get("accumulation", 1)))
        steps = self.max_steps if self.max_steps > 0 else math.ceil(self.epochs * per_epoch)
        warm = self.warmup * steps if self.warmup < 1 else self.warmup
        whole = self.max_steps <= 0 and self.epochs == int(self.epochs)
        return FinetuneConfig(
            learning_rate=self.learning_rate * min(1.0, steps / max(warm, 1.0)),  # the peak, where it is beyond the end
            batch_size=self.batch_size,
            warmup=min(warm / steps, 0.999),
            patience=0,
            baseline=False,
            **({"epochs": int(self.epochs)} if whole else {"max_steps": steps}),
            **settings,
        )


class Trainable(Protocol):
    """A model that is trained in place."""

    @property
    def tokenizer(self) -> PreTrainedTokenizer: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def longest(self) -> int:
        """Most tokens that are read of a text."""

    def save_pretrained(self, path: str | Path) -> None: ...

    def take_over(self, network: Any) -> None:
        """Go on with the weights of a trained network, but with its own settings."""


class Prepared(NamedTuple):
    """A model of the training loop, and what it reads its rows with."""

    workflow: AnyWorkflow
    network: Any
    config: FinetuneConfig
    train: Any


def prepare(model: Trainable, examples: Examples[Any], loss: TrainingLoss, plan: TrainingPlan) -> Prepared:
    """A copy of the model with its loss."""
    workflow = loss.workflow()
    given = replace(plan, settings={**(plan.settings or {}), **loss.settings})
    config = given.of_rows(len(examples))
    workflow.check_settings(config)
    prompts = dict(zip(("query_prompt", "document_prompt"), plan.prompts, strict=True))
    config = config.model_copy(update={"max_length": model.longest, **prompts})
    with TemporaryDirectory() as name:
        folder = Path(name)
        model.save_pretrained(folder)
        config = resolved(workflow, workflow.start_shape(folder, config), config, len(examples))
        network = workflow.new_model(folder, seed=config.seed, device=model.device, settings=config)
    return Prepared(workflow, network, config, workflow.encode(examples, model.tokenizer, config, labelled=True))


def train_rows(
    model: Trainable,
    rows: Any,
    loss: TrainingLoss,
    plan: TrainingPlan,
    *,
    dev: Any = None,
    callbacks: Sequence[Callback] = (),
) -> Fit:
    """Train ``model`` on rows in memory, see :func:`~bertkit.habits.sentences.training_rows.columns_in`.

    dev: rows on which the best epoch is chosen; None keeps the last.
    """
    if not isinstance(loss, TrainingLoss):
        raise InputError(
            f"a loss of bertkit.sentence_transformers.losses was expected, got a {type(loss).__name__}; with a loss of "
            "your own train a bertkit.AutoModel in a loop of your own"
        )
    examples = loss.examples(rows)
    if fault := loss.workflow().train_fault(examples):
        raise DataError(fault)
    workflow, network, config, train = prepare(model, examples, loss, plan)
    judged = None
    if dev is not None:
        compared = loss.examples(dev)
        judged = Dev(compared, workflow.encode(compared, model.tokenizer, config, labelled=True))
    options = LoopFitOptions(label="training", callbacks=callbacks)
    found = fit(network, workflow, train, judged, config, seed=config.seed, options=options)
    model.take_over(network)
    return found


def mean_loss(model: Trainable, rows: Any, loss: TrainingLoss, plan: TrainingPlan) -> float:
    """The loss of rows in eval mode, the mean over their batches."""
    workflow, network, config, encoded = prepare(model, loss.examples(rows), loss, plan)
    workflow.set_up(network, encoded, config)
    network.eval()
    values = []
    with torch.inference_mode():
        for first in range(0, len(encoded), plan.batch_size):
            batch = list(range(first, min(first + plan.batch_size, len(encoded))))
            terms = network.forward_packed(workflow.collate(encoded, batch).to(model.device)).loss_terms
            values.append(sum(float(term.mean()) for term in terms.values()))
    return sum(values) / len(values)


class EvaluateEpochs(Callback):
    """Calls evaluators after each epoch with a model that has the weights of then; ``found`` keeps what they say."""

    def __init__(self, model: Trainable, evaluators: Sequence[Evaluator], output_path: str | None) -> None:
        self.model, self.evaluators, self.output_path = model, evaluators, output_path
        self.found: list[dict[str, float]] = []

    def on_epoch(self, trainer: AnyTrainer, record: Record) -> None:
        network, training = trainer.model, trainer.model.training
        where = {"output_path": self.output_path, "epoch": record["epoch"], "steps": trainer.at.step}
        scores: dict[str, float] = {}
        with all_words(network):
            self.model.take_over(network)
            for evaluator in self.evaluators:
                told = evaluator(self.model, **where)
                scores.update(told if isinstance(told, dict) else {type(evaluator).__name__: told})
        network.train(training)
        self.found.append(scores)
        say(f"epoch {record['epoch']}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))


class FitOptions(TypedDict, total=False):
    """Keywords of ``SentenceTransformer.fit``."""

    evaluator: Evaluator | None
    epochs: int
    steps_per_epoch: int | None
    scheduler: str
    warmup_steps: int | None
    optimizer_params: Mapping[str, float]
    weight_decay: float
    max_grad_norm: float
    output_path: str | None
    callback: Callable[[float, int, int], None] | None


def fit_objectives(
    model: Trainable, train_objectives: Sequence[tuple[Any, TrainingLoss]], **options: Unpack[FitOptions]
) -> None:
    """The older way to train: ``[(DataLoader of InputExamples, loss)]``, one of them.

    The batch size is the loader's. ``warmup_steps`` not given: a tenth of the steps, where sentence-transformers takes
    10,000. With ``output_path`` the trained model is saved there; with an ``evaluator`` it is evaluated after each
    epoch, and the last epoch is kept.
    """
    given = known_keywords("fit", options, FitOptions.__annotations__)
    if len(train_objectives) != 1:
        raise InputError(f"fit trains one objective, got {len(train_objectives)}: call it once for each, in turn")
    if given.get("scheduler", "WarmupLinear") != "WarmupLinear":
        raise InputError(f"scheduler={given['scheduler']!r}: the rate rises and falls linearly; omit scheduler")
    (loader, loss), output = train_objectives[0], options.get("output_path")
    epochs, per_epoch = options.get("epochs", 1), options.get("steps_per_epoch")
    warm = options.get("warmup_steps")
    optimizer = known_keywords("optimizer_params", options.get("optimizer_params", {}), ("lr",))
    plan = TrainingPlan(
        epochs=epochs,
        learning_rate=optimizer.get("lr", 2e-5),
        batch_size=getattr(loader, "batch_size", None) or 32,
        max_steps=-1 if per_epoch is None else epochs * per_epoch,
        warmup=0.1 if warm is None else warm,
        settings={
            "weight_decay": options.get("weight_decay", 0.01),
            "max_grad_norm": options.get("max_grad_norm", 1.0),
            "precision": "fp32",
        },
    )
    evaluator = options.get("evaluator")
    follow = [] if evaluator is None else [EvaluateEpochs(model, [evaluator], output)]
    train_rows(model, loader, loss, plan, callbacks=follow)
    if (tell := options.get("callback")) is not None and follow:
        for number, scores in enumerate(follow[0].found):
            tell(next(iter(scores.values())), number, -1)
    if output is not None:
        model.save_pretrained(output)
