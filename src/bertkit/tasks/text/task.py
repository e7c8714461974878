"""What a text task is: its columns, its labels in their official order, its metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, InputError, did_you_mean, shorten
from bertkit.metrics.multilabel import MULTILABEL_METRICS
from bertkit.metrics.scores import METRICS, accuracy, check_metrics
from bertkit.ragged import Labels
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.reading.bad_rows import is_missing, whole_text
from bertkit.tasks.text.label_cleaning import Cleaning

_LARGEST = float(np.finfo(np.float32).max)
#: How a yes and a no are written in a column of a label's own.
_YES, _NO = frozenset({"1", "1.0", "true", "yes"}), frozenset({"0", "0.0", "false", "no", ""})


@dataclass(frozen=True, slots=True)
class TextTask:
    """One text or a pair of texts -> a label, any number of labels, or a score.

    name: as on the command line.
    labels: names in the order of their numbers; None for regression.
    metrics: names in :data:`bertkit.metrics.scores.METRICS`; ``main_metric``, one of them, chooses the best checkpoint.
    columns: which columns of a file hold texts and labels.
    raw_labels: what a file holds for each label; empty means the names themselves.
    folders: names a data folder of this task may have.
    score_range: lowest and highest score of a regression task, when it has bounds.
    hub_labels: the task has copies on the Hugging Face Hub (JSON, Parquet), where a typed integer is the number of a
        label and -1 in test means no label.
    more_dev: further labelled sets beside dev, by the word that stands for ``matched`` in their files' names: a model
        is scored on ``dev_mismatched`` as well as on ``dev_matched``.
    multi_label: labels do not exclude each other: a row has any number of them, none included.
    cleaning: labels that are merged, and labels that are left out: with their rows, or of several labels of a row.
    about: one line for people.
    notes: what was inferred when the task was made from a user's file, one sentence each.
    """

    #: The kind of task, see :data:`bertkit.tasks.registry.KINDS`.
    form: ClassVar[str] = "text"

    name: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    main_metric: str
    columns: Columns
    raw_labels: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None
    hub_labels: bool = False
    more_dev: tuple[str, ...] = ()
    multi_label: bool = False
    cleaning: Cleaning | None = None
    about: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        check_metrics(self.name, self.metrics, self.main_metric, MULTILABEL_METRICS if self.multi_label else METRICS)
        if self.multi_label and self.labels is None:
            raise ConfigError(f"task {self.name}: several labels per row need labels=; a score is one number")
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise ConfigError(f"task {self.name}: a label is listed twice in {self.labels}")
        if self.raw_labels and len(self.raw_labels) != len(self.labels or ()):
            raise ConfigError(f"task {self.name}: {len(self.raw_labels)} raw labels for {len(self.labels or ())} names")

    @classmethod
    def of_model(cls, shape: AnyConfig) -> TextTask:
        """A task for the outputs of a classifier of which nothing is known but its labels."""
        regression = shape.problem_type == "regression" or shape.num_labels == 1
        labels = None if regression else tuple(shape.id2label.values())
        metric = "pearson" if regression else "accuracy"
        return cls("text", labels, (metric,), metric, Columns(text=("text", "sentence")))

    def labels_of_single_texts(self, scored: str) -> tuple[str, ...]:
        """The labels; ConfigError for pairs, scores or several labels a text, on which ``scored`` cannot be scored."""
        if self.labels is None or self.is_pair or self.multi_label:
            what = "pairs of texts" if self.is_pair else "scores" if self.labels is None else "several labels a text"
            raise ConfigError(f"{scored} are scored on single texts with one label each; task {self.name} has {what}")
        return self.labels

    @property
    def is_regression(self) -> bool:
        """True when the label is a score."""
        return self.labels is None

    @property
    def is_pair(self) -> bool:
        """True when an example holds two texts."""
        return bool(self.columns.text_pair)

    @property
    def kind(self) -> Literal["classification", "regression", "multi_label"]:
        """What is predicted: one label, a score, or any number of labels."""
        if self.multi_label:
            return "multi_label"
        return "regression" if self.labels is None else "classification"

    @property
    def problem_type(self) -> Literal["regression", "single_label_classification", "multi_label_classification"]:
        """The word :class:`bertkit.BertConfig` takes."""
        if self.multi_label:
            return "multi_label_classification"
        return "regression" if self.labels is None else "single_label_classification"

    @property
    def num_labels(self) -> int:
        """Outputs a model needs: the labels, or 1 for a score."""
        return 1 if self.labels is None else len(self.labels)

    @property
    def id2label(self) -> dict[int, str]:
        """Name of each output; a regression task has the one output ``score``."""
        return dict(enumerate(self.labels or ("score",)))

    def dropped(self, value: object) -> str | None:
        """The label of a row that is left out because of it; None for rows that are read."""
        if self.cleaning is None or self.multi_label or is_missing(value):
            return None
        label = whole_text(value)
        return label if self.cleaning.drops(label) else None

    def label_of(self, value: object) -> int | float | tuple[int, ...] | None:
        """The label number or score that a file's value stands for; None when the value says there is none.

        Args:
            value: a cell of CSV or TSV, or a typed value of JSON or Parquet; where labels have columns of their own,
                the values of these as a tuple. An empty text says that none of several labels applies.

        Raises:
            DataError: a label that is not one of the task's, or a score that is not a finite number in range. The
                message has no place in it: the caller knows the file and the row.
        """
        if self.multi_label and value is not None:
            assert self.labels is not None
            if self.columns.label_columns:
                return flagged_labels(cast(Sequence[object], value), self.labels)
            written, separator = self.raw_labels or self.labels, self.columns.label_separator
            if self.cleaning is not None:
                kept = [label for label in listed_labels(value, separator) if not self.cleaning.drops(label)]
                value = [self.cleaning.find(label, written) for label in kept]
            return label_numbers(value, self.labels, written, separator)
        if is_missing(value):
            return None
        return self._score_of(value) if self.labels is None else self._number_of(value)

    def _number_of(self, value: object) -> int:
        assert self.labels is not None
        written = self.raw_labels or self.labels
        if self.cleaning is not None:
            value = self.cleaning.find(whole_text(value), written)
        for text in (str(value).strip(), whole_text(value)):
            number = _number_in(text, written, self.labels)
            if number is not None:
                return number
        if self.hub_labels and isinstance(value, int) and 0 <= value < len(self.labels):
            return int(value)
        expected = shorten(dict.fromkeys(written), limit=12)
        near = plain_text(str(value)) in map(plain_text, written)
        merge = ", or merge labels that differ in case and blanks only (--merge-labels case,space)"
        raise DataError(
            f"label {value!r:.60} is not one of {expected}{did_you_mean(str(value), written)}. "
            f"Correct the row{merge if near else ''}, or check that this file belongs to the task"
        )

    def _score_of(self, value: object) -> float:
        try:
            score = float(str(value))
        except ValueError:
            raise DataError(f"score {value!r:.60} is not a number; {self.name} predicts a number") from None
        low, high = self.score_range or (-math.inf, math.inf)
        if not abs(score) <= _LARGEST or not low <= score <= high:
            bounds = f" from {low:g} to {high:g}" if self.score_range else " of 32 bits"
            raise DataError(f"score {value!r:.60} is not a finite number{bounds}")
        return score

    def label_array(self, labels: Sequence[int | float | tuple[int, ...] | None]) -> Labels:
        """Labels of n examples as the task's loss takes them: int64 ``(n,)``, float32 ``(n,)`` for scores, or float32
        ``(n, C)`` of 1 and 0 for several labels per row.
        """
        if self.multi_label:
            return indicators(cast(Sequence[tuple[int, ...]], labels), self.num_labels)
        # A file of whole-number scores is still regression.
        return np.asarray(labels, dtype=np.float32) if self.labels is None else np.asarray(labels, dtype=np.int64)


def score(task: TextTask, predictions: npt.ArrayLike, references: npt.ArrayLike) -> dict[str, float]:
    """Every metric of the task, in its order.

    Args:
        task: names the metrics.
        predictions: n label numbers or label names, n scores for regression, or for several labels per row 1 and 0 of
            shape ``(n, C)`` or n tuples of label numbers.
        references: n right ones.

    Returns:
        Finite floats, fit for JSON. A correlation with constant predictions is undefined; it is reported as 0.0, as
        Matthews is by definition, so that a dead run pulls a mean over seeds down instead of dropping out of it.
        :func:`diagnose` says when that happened.

    Raises:
        InputError: nothing to score, different lengths, or a value that is not finite.
    """
    if task.multi_label:
        given, true = _indicators(task, predictions), _indicators(task, references)
        return {name: MULTILABEL_METRICS[name](given, true) for name in task.metrics}
    predicted, right = _label_numbers(task, predictions), _label_numbers(task, references)
    values = {name: METRICS[name](predicted, right) for name in task.metrics}
    return {name: 0.0 if math.isnan(value) else value for name, value in values.items()}


def diagnose(task: TextTask, predictions: npt.ArrayLike, references: npt.ArrayLike) -> list[str]:
    """Warnings about predictions that the scores alone would hide, such as that they are all the same."""
    said = []
    if task.multi_label:
        given, true = _indicators(task, predictions), _indicators(task, references)
        if len(given) > 1 and bool(np.all(given == given[0])):
            names = [name for name, yes in zip(task.labels or (), given[0].tolist(), strict=True) if yes]
            said.append(f"all {len(given):,} rows are given the same labels, {names}: the model has learned nothing")
        counted = zip(task.labels or (), true.sum(axis=0).tolist(), strict=True)
        never = [name for name, count in counted if not count]
        return [*said, f"no reference row has {shorten(never)}: the scores say nothing of it"] if never else said
    predicted, right = _label_numbers(task, predictions), _label_numbers(task, references)
    if len(predicted) > 1 and bool(np.all(predicted == predicted[0])):
        value = f"{predicted[0]:.4g}" if task.labels is None else repr(task.labels[int(predicted[0])])
        undefined = " A correlation with a constant is undefined and reported as 0." if task.labels is None else ""
        said.append(f"all {len(predicted):,} predictions are {value}: the model has learned nothing.{undefined}")
    elif task.labels is not None:
        counts = np.bincount(right.astype(np.int64), minlength=len(task.labels))
        share = float(counts.max() / counts.sum())
        if len(predicted) > 1 and accuracy(predicted, right) <= share < 1.0:
            name = task.labels[int(counts.argmax())]
            said.append(f"accuracy is not above always answering {name!r} ({100 * share:.1f} %)")
    if len(right) > 1 and bool(np.all(right == right[0])):
        said.append(f"all {len(right):,} reference labels are the same: the scores say nothing")
    return said


def _indicators(task: TextTask, values: Any) -> npt.NDArray[np.number]:
    """0 and 1 of shape ``(n, C)``, of an array like that or of tuples of label numbers."""
    if not isinstance(values, np.ndarray):
        values = list(values)
        if values and isinstance(values[0], tuple):
            return indicators(values, task.num_labels)
    return np.asarray(values)


def _label_numbers(task: TextTask, values: npt.ArrayLike) -> npt.NDArray[np.generic]:
    array = np.asarray(values)
    if array.dtype.kind not in "US" or task.labels is None:
        return array
    known = {name: number for number, name in enumerate(task.labels)}
    try:
        return np.array([known[str(name)] for name in array.tolist()], dtype=np.int64)
    except KeyError as error:
        raise InputError(
            f"{error.args[0]!r} is not a label of {task.name}{did_you_mean(str(error.args[0]), known)}; "
            f"its labels are {shorten(task.labels, limit=12)}"
        ) from None


def listed_labels(value: object, separator: str) -> list[str]:
    """The labels in one cell, a list (JSON, Parquet) or text with a separator; without the blanks around them."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [str(part).strip() for part in value]
    return [part.strip() for part in str(value).split(separator) if part.strip()]


def label_numbers(value: object, labels: Sequence[str], written: Sequence[str], separator: str) -> tuple[int, ...]:
    """The numbers of the labels in one cell, in order; ``written`` is what a file holds for each."""
    numbers = set()
    for text in listed_labels(value, separator):
        number = _number_in(text, written, labels)
        if number is None:
            raise DataError(
                f"label {text!r} is not one of {shorten(written, limit=12)}{did_you_mean(text, written)}. Correct the "
                f"row, or choose the separator of labels (label_separator=, now {separator!r})"
            )
        numbers.add(number)
    return tuple(sorted(numbers))


def _number_in(text: str, *kinds_of_names: Sequence[str]) -> int | None:
    return next((names.index(text) for names in kinds_of_names if text in names), None)


def flagged_labels(cells: Sequence[object], labels: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the labels whose own column says yes: a cell for each, 1 or 0, true or false, yes or no."""
    numbers = []
    for number, (cell, name) in enumerate(zip(cells, labels, strict=True)):
        text = "" if cell is None else str(cell).strip().casefold()
        if text in _YES:
            numbers.append(number)
        elif text not in _NO:
            raise DataError(f"column {name!r} holds {cell!r:.40}, expected 1 or 0: whether the label applies")
    return tuple(numbers)


def indicators(labels: Sequence[tuple[int, ...]], num_labels: int) -> npt.NDArray[np.float32]:
    """1 where a row has a label, else 0: float32 ``(n, C)``, as the loss takes it."""
    found = np.zeros((len(labels), num_labels), dtype=np.float32)
    for row, numbers in enumerate(labels):
        found[row, list(numbers)] = 1.0
    return found
