"""What fine-tuning has to know of a kind of task: how its files become batches, and outputs become scores and answers.

``finetune``, ``evaluate_run`` and ``predict`` are the same for all kinds; a :class:`Workflow` is what differs. Its unit
is the row: what the encoder sees at once and a batch counts. A text is one row, a long context several (its windows), a
question with all its choices one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig, class_for, read_config_for
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.decision import write_decision
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Network, Precision
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import ConfigError
from bertkit.metrics.class_scores import ClassScores
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.ragged import Floats, Ints
from bertkit.system.device import Device
from bertkit.system.model_sources import resolve
from bertkit.tasks.answering import Answering, EncodedT, OutputsT
from bertkit.tasks.answering import Decision as Decision
from bertkit.tasks.answering import Predicted as Predicted
from bertkit.tasks.examples import Examples, ExampleT, Halves, Row, Split, sample_of
from bertkit.tasks.hold_out import carve
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import TABLES, FileRules, NamedTask, split_path, splits_of
from bertkit.tasks.registry import Task, load_class
from bertkit.tasks.report import DataReport
from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.task_settings import TaskSettings, settings_of_kind, uses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bertkit.batch import Batch
    from bertkit.model.auto import AnyModel
    from bertkit.model.text_comparison import ComparedTexts


class Head(TypedDict, total=False):
    """The labels of a head, as keywords of a model class's ``from_pretrained``."""

    id2label: dict[int, str]
    problem_type: str


@dataclass(frozen=True, slots=True)
class Card:
    """What the model card says of a kind of task.

    predicts: what comes out and for what, as the end of a sentence: "one of: `a`, `b` for a text".
    call: a line of Python that uses ``pipe``. limits: a sentence on what happens to long input.
    """

    pipeline: str
    predicts: str
    call: str
    limits: str


SettingsT = TypeVar("SettingsT", bound=ReadingSettings)
#: From an epoch to the rows of each of its steps, equally many steps in every epoch.
Steps = Callable[[int], Sequence[Ints]]


class Workflow(Answering[ExampleT, EncodedT, OutputsT]):
    """One kind of task. What has a body here is a default that a kind may keep. It holds nothing but its task."""

    #: Whether the head needs nothing but the [CLS] vectors of single rows, so that a frozen encoder runs only once.
    reads_vectors: ClassVar[bool] = False
    #: Whether a step of :meth:`steps` is one batch, because its loss compares rows, or may be split to fit the memory.
    compares_rows: ClassVar[bool] = True
    #: Learning rate of the last layer of each head, as a multiple of the rate of all other parameters.
    classifier_rate: ClassVar[float] = 1.0
    #: Common settings that not all kinds have a use for, and this one has.
    shared_settings: ClassVar[tuple[str, ...]] = ()
    #: Longest input where the user says nothing; the model's positions bound it.
    default_max_length: int = 128

    def own_settings(self, settings: ReadingSettings) -> Collection[str]:
        """Which of the settings that not all kinds have a use for (:func:`uses`) this task has one for."""
        return (*self.shared_settings, *settings_of_kind(self.task.form))

    def settings_for(self, start: Path, settings: SettingsT) -> SettingsT:
        """The settings, with what a checkpoint's folder says where they leave it open; by default it says nothing."""
        return settings

    def check_settings(self, settings: ReadingSettings) -> None:
        """Raise ConfigError if a setting that this task has no use for has another value than its default."""
        understood = self.own_settings(settings)
        for name, use in uses().items():
            value = getattr(settings, name, usual := TaskSettings.model_fields[name].default)
            if name not in understood and value != usual:
                nothing = f"{name}={value!r} has no effect in task {self.task.name}"
                raise ConfigError(f"{nothing}: it is for {use.what}. Leave {name} out")

    def leave_out(self, settings: SettingsT) -> SettingsT:
        """The settings without those that this task has no use for."""
        fields, understood = type(settings).model_fields, self.own_settings(settings)
        others = {name: fields[name].default for name in uses() if name in fields and name not in understood}
        return settings.model_copy(update=others)

    @property
    def sources(self) -> tuple[NamedTask, FileRules]:
        """Whose folders are looked into, and which files are taken."""
        return self.task, TABLES

    def splits(self, data: str | Path) -> Mapping[Split, Path]:
        """The files of a folder by split; see :func:`bertkit.tasks.reading.splits.splits_of`."""
        named, rules = self.sources
        return splits_of(named, data, rules)

    def read(self, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[ExampleT]:
        """The examples of one split."""
        named, rules = self.sources
        return self.read_file(split_path(named, data, split, rules), split, on_error=on_error)

    @abstractmethod
    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[ExampleT]:
        """The examples of one file, whatever its name says; those of test may be without their answers."""

    def read_more(self, data: str | Path, *, on_error: OnError = "raise") -> dict[str, Examples[ExampleT]]:
        """Further labelled sets that a finished model is scored on, by name; their scores are ``METRIC_NAME``."""
        return {}

    def hold_out(self, train: Examples[ExampleT], share: float, seed: int) -> Halves[ExampleT]:
        """What stays in train and what becomes dev, where a task has no dev file; nothing of one is in the other."""
        return carve(cast(Any, train), share, seed)

    def sample(self, train: Examples[ExampleT], num_rows: int | None, seed: int) -> Examples[ExampleT]:
        """At most so many training examples, drawn at random."""
        return sample_of(train, num_rows, seed)

    def content(self, example: ExampleT) -> object:
        """All that a model and its scores can see of an example, in plain values: what the data's hash is of."""
        names = (part.name for part in fields(cast(Any, example)))
        return tuple(getattr(example, name) for name in names if name not in ("row", "source", "lines"))

    def has_labels(self, examples: Sequence[ExampleT]) -> bool:
        """Whether the examples can be scored."""
        return cast(Any, examples[0]).label is not None

    @property
    def has_one_label(self) -> bool:
        """Whether examples are texts or pairs of texts with one label each, and there is nothing else to learn from."""
        return False

    def train_fault(self, train: Examples[ExampleT]) -> str:
        """Why there is nothing to learn from training examples; empty if there is."""
        return ""

    def texts_of(self, example: ExampleT) -> Sequence[str]:
        """What a masked language model can be trained on of a training example: running texts; by default none."""
        return ()

    @abstractmethod
    def report(
        self, splits: Mapping[str, Examples[ExampleT]], encoded: Mapping[str, EncodedT], settings: ReadingSettings
    ) -> DataReport:
        """What is in the data, before anything is trained on it."""

    def prepare_training(
        self,
        rows: Examples[ExampleT],
        train: EncodedT,
        start: Path,
        folder: Path,
        settings: ReadingSettings,
        device: str | None,
    ) -> EncodedT:
        """The encoded training rows with what the start checkpoint adds to them; once a run, whose folder keeps it."""
        return train

    def steps(self, train: EncodedT, size: int, seed: int, settings: ReadingSettings) -> Steps | None:
        """Which rows belong together in a step; None: each counts by itself, in any order, split to fit the memory."""
        return None

    @abstractmethod
    def collate(self, encoded: EncodedT, rows: Sequence[int]) -> Batch | ComparedTexts:
        """A packed batch of some labelled rows, with their targets: what :meth:`new_model` computes a loss of."""

    def head(self) -> Head:
        """The labels of the head; none where they are fixed."""
        return {}

    def network(self, shape: AnyConfig) -> Any:
        """The model class itself, of a shape's family."""
        from bertkit.model.auto import class_named

        return class_named(class_for(self.model_class, shape.model_type, "the model"))

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> Any:
        """The start checkpoint, with its own head if it is exactly the task's, else a new one, drawn from ``seed``."""
        path = resolve(start)
        shape = self.read_shape(path)
        return self.network(shape).from_pretrained(
            path,
            **self.head(),
            pooling=settings.pooling,
            new_head=self._needs_new_head(shape, settings),
            seed=seed,
            device=device,
        )

    def _needs_new_head(self, file: AnyConfig, settings: ReadingSettings) -> bool:
        """Whether the checkpoint has not exactly the head that the task needs."""
        kind = self.model_class.removeprefix("Bert")
        same = any(name.endswith(kind) for name in file.architectures or ())
        same = same and self.head().get("id2label", file.id2label) == file.id2label
        return not same or (isinstance(file, BertConfig) and settings.pooling not in (None, file.pooling))

    def read_shape(self, path: Path) -> AnyConfig:
        """Shape of a checkpoint; CheckpointError for a family without the kind's head."""
        return read_config_for(self.model_class, config_path(path))

    def scoring_engine(self, model: Any) -> Any:
        """What :meth:`outputs` gets of a model in training."""
        return InferenceEngine.for_scoring(model)

    def open_engine(self, path: Path, *, device: Device, precision: Precision, threads: int | None) -> Any:
        """What :meth:`outputs` gets of a checkpoint."""
        return InferenceEngine.load(path, self.model_class, device=device, precision=precision, threads=threads)

    def start_shape(self, start: Path, settings: ReadingSettings) -> AnyConfig:
        """:meth:`read_shape` of the start checkpoint, with the pooling that :meth:`new_model` will have."""
        from bertkit.checkpoints.fit import pooling_of

        file = self.read_shape(start)
        if not isinstance(file, BertConfig):
            check_for_decoder(settings, f"a {file.model_type}")
            return file
        if self.network(file).kind != "sequence":
            return file
        folder, fresh = checkpoint_folder(start), self._needs_new_head(file, settings)
        return file.replace(pooling=pooling_of(file, folder, settings.pooling, new_head=fresh))

    def check_model(self, model: Network, name: str) -> None:
        """Raise ConfigError if the labels of a loaded model are not the task's; ``name`` says whose they are."""
        return

    def set_up(self, model: AnyModel, train: EncodedT, settings: ReadingSettings) -> None:
        """What the model's loss has to know of the training rows, such as class weights."""
        return

    def constant_answer(self, train: EncodedT, settings: ReadingSettings) -> Floats | None:
        """Logits ``(C,)`` of the best answer that ignores the text; None where the kind of task has none."""
        return None

    @abstractmethod
    def loss_floor(self, train: EncodedT, settings: ReadingSettings) -> float | None:
        """Training loss of the best answer that ignores the text, which a run must get below; None: there is none."""

    def decide(self, given: Predicted[ExampleT, EncodedT, OutputsT], settings: ReadingSettings) -> Row:
        """For ``decision.json``: how input is read, and what is chosen on labelled examples of dev and then applied."""
        return {"max_length": settings.max_length}

    def notes_on(self, decision: Decision) -> list[str]:
        """What one should know of dev scores under a decision that was made on dev: sentences for the result."""
        return []

    def write_decision(self, folder: Path, decision: Decision, settings: ReadingSettings) -> None:
        """Save a decision with the model in ``folder``, which was trained with ``settings``."""
        write_decision(folder, cast(Row, decision))

    @abstractmethod
    def score(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> dict[str, float]:
        """Every metric of the task, and ``loss``, the mean loss without class weights, where it needs no batches."""

    def badness(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> npt.NDArray[np.float64] | None:
        """How wrong each line of :meth:`prediction_rows` is, for the listing of the worst; None: not known."""
        return None

    def main_metric_of(self, given: Predicted[ExampleT, EncodedT, OutputsT], draws: Draws) -> Drawn | None:
        """The main metric ``(K,)`` of K sets of examples drawn with replacement; None: this kind has no interval."""
        return None

    def row_bounds(self) -> tuple[float, float] | None:
        """Lowest and highest value of an example, where the main metric is the mean of one value each; else None."""
        return None

    def diagnose(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> list[str]:
        """Sentences about the answers that no score should hide, such as that they are all the same."""
        return []

    def classes(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> ClassScores | None:
        """Precision, recall and F1 of each class or type; None for a kind without them."""
        return None

    def table(self, given: Predicted[ExampleT, EncodedT, OutputsT]) -> str:
        """More than the metrics for people, where :meth:`classes` is not what they want: lines of text, or nothing."""
        return ""

    def files(self, given: Predicted[ExampleT, EncodedT, OutputsT], split: str) -> dict[str, str]:
        """Further files of a scored split, content by name, such as predictions in an official format."""
        return {}

    def baseline(self, train: Examples[ExampleT], dev: Examples[ExampleT]) -> Row | None:
        """Dev scores without a neural network: ``model`` (in words), ``name`` (a column's head), ``metrics``."""
        return None

    @abstractmethod
    def card(self) -> Card:
        """What the model card says."""

    def facts(self, settings: ReadingSettings) -> Row:
        """What the protocol block says of this kind of task in particular."""
        return {}

    @property
    def label_names(self) -> list[str]:
        """The labels that :meth:`label_rows` may have, in their order, as far as they are known."""
        return []

    def label_rows(self, folder: Path, name: str, prefix: str = "") -> list[Row] | None:
        """``gold`` and ``predicted`` label of all that was labelled, from the same files; None where none has labels.

        With ``probabilities``, where they were kept. Files that are missing are a FileNotFoundError.
        """
        return None

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores | None:
        """The lines of a ``predictions-*.jsonl`` with their right answers; None for a kind that is not scored by rows.

        Lines without a right answer are a KeyError.
        """
        return None

    def draw(self, folder: Path, name: str = "dev", prefix: str = "") -> dict[str, Figure]:
        """Pictures by name of a scored set, from its files in a run folder, as :meth:`files` names them."""
        return {}


def check_for_decoder(settings: ReadingSettings, what: str) -> None:
    """Raise ConfigError for settings that make no sense with ``what``, an encoder-decoder."""
    for name, why in (
        ("pooling", "its classifier reads the last token of the decoder"),
        ("layer_decay", "encoder and decoder have layers of their own"),
    ):
        if getattr(settings, name, None):
            raise ConfigError(f"{name} is not for {what}: {why}. Leave it out")


#: A workflow whose kind does not matter: what the engine handles.
AnyWorkflow = Workflow[Any, Any, Any]


def workflow_of(task: Task) -> AnyWorkflow:
    """The workflow of a task, by its kind."""
    return cast(AnyWorkflow, load_class(task.form, "workflow")(task))
