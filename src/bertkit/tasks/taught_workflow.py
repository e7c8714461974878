"""A kind of task with a teacher: the workflow of the kind, trained on the teacher's outputs as well.

What a teacher says of an example is some rows of numbers, its units: one for a text, a word, a choice, or a token of
its windows. Letters of the array shapes: U units, C numbers of each, R rows of a student.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import ConfigError, shorten
from bertkit.model.output import ModelOutput
from bertkit.model.soft_targets import SINGLE, TEACHER, Judged, TaughtModel, hard_losses, soft_losses
from bertkit.ragged import Flags, Floats, Ids, Ints, gather
from bertkit.system.device import Device
from bertkit.tasks.examples import Encoded, Examples, Row
from bertkit.tasks.registry import KINDS, Task, load_class
from bertkit.tasks.workflow import Workflow
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Settings that have no meaning with a teacher, the value that they must have, and why.
USELESS: Mapping[str, tuple[object, str]] = {
    "freeze_encoder": (False, "a student learns with all of its weights"),
    "lora": (None, "a student learns with all of its weights"),
    "class_weights": ("none", "the teacher's probabilities say how frequent labels are"),
    "search": (None, "settings would be chosen by what the teacher already knows"),
}


@dataclass(frozen=True, slots=True)
class TaughtRows:
    """Encoded examples, some without labels, with the teacher's logits ``(U, C)``; NaN where it says nothing.

    boundaries: int64 ``(R + 1,)``; row r owns the units ``boundaries[r] : boundaries[r + 1]``.
    """

    encoded: Encoded
    teacher: Floats
    boundaries: Ints

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def ids(self) -> Ids:
        """As :class:`Encoded` has them; so the following ones."""
        return self.encoded.ids

    @property
    def lengths(self) -> Ints:
        return self.encoded.lengths

    @property
    def num_tokens_before(self) -> Ints:
        return self.encoded.num_tokens_before

    @property
    def truncated(self) -> Flags:
        return self.encoded.truncated

    def teacher_of(self, rows: Sequence[int]) -> Floats:
        """The teacher's outputs for these rows."""
        chosen = np.asarray(rows, dtype=np.int64)
        starts = self.boundaries[chosen]
        found: Floats = self.teacher[gather(starts, self.boundaries[chosen + 1] - starts)]
        return found


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a student is taught with.

    soft_weight: share of the soft targets in the loss of a unit with a label; the rest is its label.
    unlabelled: examples beside those of the training file.
    ask: from examples, and how the student reads them, to the teacher's logits ``(U, C)``, in the order of the task's
        labels.
    facts: the same in words and hashes, for the protocol.
    """

    temperature: float
    soft_weight: float
    unlabelled: Sequence[Any] = ()
    ask: Callable[[Sequence[Any], ReadingSettings], Floats] | None = None
    facts: Row = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Units:
    """How many units each example has, int64 ``(N,)``.

    groups: int64 ``(G + 1,)``, the units among which one is chosen: the choices of a question, the tokens of a window;
        None where each has its own labels.
    """

    sizes: Ints
    groups: Ints | None = None


class TaughtWorkflow(Workflow[Any, Any, Any]):
    """What the kinds have in common. The runs of a student are those of its task: nothing else is in their folders."""

    #: Whether a teacher reads an example with the student's tokenizer and settings, without which their units differ.
    reads_alike: ClassVar[bool] = False
    #: Whether other examples can be made by replacing words: an :class:`Example`, whose label is of the whole text.
    varies: ClassVar[bool] = False
    #: See :class:`Judge`.
    labels_alone: ClassVar[bool] = False
    #: What is compared in a unit, as :func:`soft_losses` calls it.
    problem: str = SINGLE

    def __init__(self, task: Any, lesson: Lesson) -> None:
        super().__init__(task)
        self.lesson = lesson

    @abstractmethod
    def texts(self, example: Any) -> tuple[str, ...]:
        """All that a teacher reads of an example."""

    @property
    def compares_texts(self) -> bool:
        """Whether all that is to be learned is how two texts relate."""
        return False

    def read_unlabelled(self, file: Path, seen: Collection[Hashable]) -> tuple[Sequence[Any], int]:
        """The different examples of a file whose :meth:`texts` were not seen, without answers, and how many it has."""
        read = self.read_file(file, "test")
        fresh = {self.texts(example): example for example in reversed(read) if self.texts(example) not in seen}
        return list(fresh.values())[::-1], len(read)

    @abstractmethod
    def blank(self, example: Any) -> Any:
        """The example with some label, as an example must have one to be encoded with others that do."""

    def without_labels(self, encoded: Any, first: int) -> Any:
        """The rows with the labels of the examples from number ``first`` on taken away."""
        labels = np.array(encoded.labels)
        labels[first:] = -100 if labels.dtype.kind == "i" else np.nan
        return replace(encoded, labels=labels)

    @abstractmethod
    def units(self, examples: Sequence[Any], tokenizer: PreTrainedTokenizer, settings: ReadingSettings) -> Units:
        """Those of some examples that are read in this way."""

    @abstractmethod
    def said(self, outputs: Any, encoded: Any) -> Floats:
        """Outputs of the kind, of a teacher, as units ``(U, C)``."""

    @abstractmethod
    def on_rows(self, told: Floats, encoded: Any) -> tuple[Floats, Ints]:
        """The units of examples for the rows of a student that reads them: as in :class:`TaughtRows`."""

    @abstractmethod
    def outputs_of(self, told: Floats, encoded: Any) -> Any:
        """The units of examples as outputs of the kind, of a student that reads them: to score a teacher."""

    @abstractmethod
    def places(self, teacher: Any, shape: AnyConfig, name: str) -> tuple[int, ...]:
        """For each output of the task the number of that of a teacher: a model with its task, shape and ``name``."""

    @abstractmethod
    def judge(self, output: ModelOutput, batch: Batch) -> Judged:
        """See :class:`Judge`; so :meth:`num_units`."""

    @abstractmethod
    def num_units(self, batch: Batch) -> int: ...

    def soft(self, student_UC: Tensor, teacher_UC: Tensor) -> Tensor:
        """The soft loss of each unit, ``(U,)``."""
        return soft_losses(student_UC, teacher_UC, self.problem, self.lesson.temperature)

    def hard(self, student_UC: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The usual loss of each unit, and whether it has a label: ``(U,)``."""
        return hard_losses(student_UC, labels, self.problem)

    def check_settings(self, settings: ReadingSettings) -> None:
        for name, (value, why) in USELESS.items():
            if getattr(settings, name, value) != value:
                raise ConfigError(f"{name}={getattr(settings, name)!r} cannot be combined with a teacher: {why}")
        super().check_settings(settings)

    def prepare_training(
        self, rows: Examples[Any], train: Any, start: Path, folder: Path, settings: ReadingSettings, device: str | None
    ) -> TaughtRows:
        more = self.lesson.unlabelled
        if more:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start))
            train = self.encode([*rows, *map(self.blank, more)], tokenizer, settings, labelled=True)
            train = self.without_labels(train, len(rows))
        assert self.lesson.ask is not None, "there is a teacher"
        return TaughtRows(train, *self.on_rows(self.lesson.ask([*rows, *more], settings), train))

    def collate(self, encoded: Any, rows: Sequence[int]) -> Batch:
        assert isinstance(encoded, TaughtRows)
        batch = super().collate(encoded.encoded, rows)  # type: ignore[safe-super]  # of the kind
        assert isinstance(batch, Batch)
        return batch.with_target(TEACHER, torch.from_numpy(encoded.teacher_of(rows)))

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> TaughtModel:
        student = super().new_model(start, seed=seed, device=device, settings=settings)
        return TaughtModel(student, self, self.lesson.soft_weight)

    def set_up(self, model: Any, train: Any, settings: ReadingSettings) -> None:
        """Nothing: the loss knows the teacher, and has no class weights."""

    def loss_floor(self, train: Any, settings: ReadingSettings) -> Any:
        """None: the loss is not that of the labels alone."""
        return None

    def facts(self, settings: ReadingSettings) -> Row:
        return {**super().facts(settings), "distillation": self.lesson.facts}

    def scoring_engine(self, model: TaughtModel) -> Any:
        return super().scoring_engine(model.student)


def taught_workflow(task: Task, lesson: Lesson) -> TaughtWorkflow:
    """The workflow of a task with a teacher; ConfigError for a kind that no teacher teaches."""
    taught = [form for form, kind in KINDS.items() if find_spec(f"{kind.folder}.taught") is not None]
    if task.form not in taught:
        raise ConfigError(
            f"task {task.name} cannot be taught by another model's outputs: this can be done for tasks of kind "
            f"{', '.join(taught)}"
        )
    made: TaughtWorkflow = load_class(task.form, "taught")(task, lesson)
    return made


def label_places(
    theirs: Sequence[str], ours: Sequence[str], name: str, task: str, several: tuple[bool, bool] = (False, False)
) -> tuple[int, ...]:
    """Where a task's labels are among the teacher's. ``several``: of both, whether a text has any number of them."""
    if sorted(theirs) != sorted(ours) or several[0] != several[1]:
        said = [" (any number of them)" if any_number else "" for any_number in several]
        raise ConfigError(
            f"teacher {name} predicts {shorten(theirs)}{said[0]}, task {task} has the labels {shorten(ours)}{said[1]}: "
            "a student cannot learn one from the other. Use a teacher that was trained on these labels"
        )
    return tuple(list(theirs).index(label) for label in ours)
