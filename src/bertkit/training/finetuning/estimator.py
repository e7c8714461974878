"""BERT as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score

from bertkit.errors import CheckpointError, InputError, shorten
from bertkit.habit_table import AnsweringClass
from bertkit.system.device import Device
from bertkit.system.model_sources import INCLUDED
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.listed_texts import Texts, check_not_empty, texts_and_pairs
from bertkit.training.finetuning.estimator_targets import (
    Array,
    Targets,
    one_label_each,
    read_targets,
    read_weights,
)
from bertkit.training.finetuning.text_estimator import OfTexts, Saved, counted_rows, examples_of

if TYPE_CHECKING:
    from bertkit.tasks.text.task import TextTask

_MAX_LABEL_BYTES = 1 << 20
FewShot = bool | Literal["contrastive", "linear", "finetune"]


class BertClassifier(ClassifierMixin, OfTexts, metaclass=AnsweringClass):  # type: ignore[misc]
    """Fine-tune a BERT to classify texts, or pairs of texts.

    ``X`` is a list, array or column (pandas, polars, Arrow) of strings, or of pairs of strings (also an array
    ``(n, 2)``). ``y`` holds a label for each text, of any type; or any number of labels: an indicator matrix of 1 and 0
    ``(n, C)``, or a list of labels for each text (in cross-validation a matrix, because scikit-learn takes no lists).
    Works in ``Pipeline``, ``GridSearchCV`` and ``cross_val_score``; can be cloned, pickled and saved to a folder. For a
    frame of texts and numbers use :class:`bertkit.BertVectorizer` in a ``ColumnTransformer``. For a run with a dev set,
    checkpoints and reports use :func:`bertkit.finetune`.

    Args:
        model: start checkpoint: a folder, a safetensors file, or a name on the Hub; the default is the small model that
            comes with bertkit.
        learning_rate: peak rate; None chooses by the size of the model.
        epochs: passes over the data; None means 3, more for small data (about 1,000 updates, at most 20 epochs).
        batch_size: sequences in an optimizer step.
        max_length: word pieces after which a text is cut; None: 128, or as many as the model reads. A warning says how
            many texts were cut.
        freeze_encoder: train only the head, on features that are computed once: seconds instead of minutes.
        pooling: what the classifier reads of the encoder: "cls", "mean" or "max"; None: as the checkpoint says
            (``1_Pooling`` of sentence-transformers), otherwise "cls".
        class_weight: "balanced" makes rare labels weigh more; a dictionary has the weights of labels, 1 for those that
            are not in it; None weighs all alike.
        few_shot: for a handful of labels: True compares the methods by cross-validation, as ``bertkit finetune
            --few-shot`` does; "contrastive", "linear" or "finetune" is that one.
        seed: data order, new head and dropout; the same seed gives the same model.
        random_state: the same by scikit-learn's name; None takes ``seed``.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        verbose: show progress.

    Attributes (after ``fit``): ``classes_`` (sorted labels; of an indicator matrix the numbers or names of its
    columns), ``model_``, ``tokenizer_``, ``config_`` (settings used).
    """

    file = "classifier.json"

    def __init__(
        self,
        model: str | Path = INCLUDED,
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        freeze_encoder: bool = False,
        pooling: Literal["cls", "mean", "max"] | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        few_shot: FewShot = False,
        seed: int = 0,
        random_state: int | np.random.RandomState | None = None,
        device: Device = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            model,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            max_length=max_length,
            freeze_encoder=freeze_encoder,
            pooling=pooling,
            seed=seed,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.class_weight = class_weight
        self.few_shot = few_shot

    def fit(
        self, X: Texts, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None, **others: object
    ) -> BertClassifier:
        """Fine-tune from the start checkpoint; an earlier fit is forgotten.

        Args:
            X: n texts or pairs.
            y: n labels, at least two different ones; or any number of labels for each text.
            sample_weight: n numbers from 0 on: what each text counts in the loss, in relation to the others. A text of
                weight 0 is left out.
            **others: refused; the message says where each belongs.

        Raises:
            InputError: X, y or the weights have the wrong form or length; an empty text or a missing label, with its
                row; one class only.
            ConfigError: a setting that cannot be used.
            CheckpointError: the start checkpoint cannot be used.
        """
        self._refuse_arguments("fit", others)
        texts, pairs = texts_and_pairs(X)
        check_not_empty(texts, pairs)
        targets = read_targets(y, len(texts), type(self).__name__)
        weights = self._weights(sample_weight, targets)
        if weights is not None:
            if self.few_shot:
                raise InputError("few_shot takes no sample_weight and no weights of labels; leave one of them out")
            kept, texts, pairs = counted_rows(weights, texts, pairs)
            weights, targets = weights[kept], targets.select(kept)
        _check_classes(targets)
        self.classes_, self.label_form_, self.pairs_ = targets.classes, targets.form, pairs is not None
        self._train(examples_of(texts, pairs, targets.of_rows()), weights)
        return self

    def _weights(self, sample_weight: npt.ArrayLike | None, targets: Targets) -> npt.NDArray[np.float64] | None:
        """What each row counts: its own weight, times that of its label where ``class_weight`` says one."""
        given = read_weights(sample_weight, len(targets.numbers))
        if not isinstance(self.class_weight, Mapping):
            return given
        if targets.form != "one":
            raise InputError("a dictionary as class_weight is for one label a text; with several give sample_weight")
        known = targets.classes.tolist()
        if unknown := [name for name in self.class_weight if name not in known]:
            raise InputError(
                f"class_weight has {unknown[0]!r}, which is no label of y; the labels are {shorten(known)}"
            )
        by_class = np.array([float(self.class_weight.get(name, 1.0)) for name in known])
        weights = read_weights(by_class[targets.numbers], len(targets.numbers), "class_weight")
        return weights if given is None or weights is None else given * weights

    def predict(self, X: Texts) -> Array:
        """The most probable label of each text, ``(n,)``, in the type of ``y``.

        Of several labels those that are more probable than not: an int64 matrix of 1 and 0 ``(n, C)``, or an object
        array ``(n,)`` of lists, as they were given to :meth:`fit`.
        """
        logits = self._logits(X)
        if self.label_form_ == "one":
            return np.asarray(self.classes_[logits.argmax(axis=1)])
        chosen = (logits > 0).astype(np.int64)
        if self.label_form_ == "indicators":
            return chosen
        found: Array = np.empty(len(chosen), dtype=object)
        found[:] = [self.classes_[row.astype(bool)].tolist() for row in chosen]
        return found

    def score(self, X: Texts, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Share of the texts whose label is predicted, or all of whose labels are and no other.

        Refuses labels as :meth:`fit` does, or of another kind.
        """
        logits, name = self._logits(X), type(self).__name__
        if self.label_form_ == "one":
            labels, known = one_label_each(y, len(logits), name), self.classes_.tolist()[0]
            if isinstance(labels.tolist()[0], str) != isinstance(known, str):
                raise InputError(f"y holds labels such as {labels.tolist()[0]!r}; fitted on labels such as {known!r}")
            right = labels == self.classes_[logits.argmax(axis=1)]
        else:
            right = self._all_right(logits > 0, read_targets(y, len(logits), name))
        return float(accuracy_score(np.ones(len(logits), bool), right, sample_weight=sample_weight))

    def _all_right(self, predicted: npt.NDArray[np.bool_], given: Targets) -> npt.NDArray[np.bool_]:
        """Which rows have the labels that were given, and no other, ``(n,)``."""
        as_matrix = given.form == "indicators"
        if given.form != self.label_form_ or (as_matrix and len(given.classes) != len(self.classes_)):
            raise InputError(
                f"y must have labels as in fit: {self.label_form_} of {len(self.classes_)} classes; got "
                f"{given.form} of {len(given.classes)}"
            )
        names = (self.classes_ if as_matrix else given.classes).tolist()
        wanted = [{names[number] for number in np.flatnonzero(row)} for row in given.numbers]
        found = [set(self.classes_[row].tolist()) for row in predicted]
        return np.array([ours == theirs for ours, theirs in zip(found, wanted, strict=True)])

    def predict_proba(self, X: Texts) -> npt.NDArray[np.float64]:
        """Probability of each label of ``classes_``, float64 ``(n, C)``; rows sum to 1, unless a text has several."""
        from bertkit.metrics.probabilities import sigmoid, softmax

        logits = self._logits(X).astype(np.float64)
        return np.asarray(softmax(logits) if self.label_form_ == "one" else sigmoid(logits), np.float64)

    def predict_log_proba(self, X: Texts) -> npt.NDArray[np.float64]:
        """Logarithms of :meth:`predict_proba`, float64 ``(n, C)``; computed from the logits, so that none is -inf."""
        logits = self._logits(X).astype(np.float64)
        if self.label_form_ == "one":
            return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
        return np.asarray(-np.logaddexp(0.0, -logits))

    def decision_function(self, X: Texts) -> npt.NDArray[np.float64]:
        """Logits, float64 ``(n, C)``; for two labels, as in scikit-learn, the second minus the first: ``(n,)``."""
        logits = self._logits(X).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if self.label_form_ == "one" and len(self.classes_) == 2 else logits

    def _settings(self) -> dict[str, Any]:
        by_label = isinstance(self.class_weight, Mapping)
        if not by_label and self.class_weight not in (None, "balanced"):
            raise InputError(
                f'class_weight must be "balanced", a weight for each label or None, got {self.class_weight!r}'
            )
        method = {} if isinstance(self.few_shot, bool) else {"few_shot_method": self.few_shot}
        balanced = "balanced" if self.class_weight == "balanced" else "none"
        return {**super()._settings(), "class_weights": balanced, "few_shot": bool(self.few_shot), **method}

    def _task(self) -> TextTask:
        from bertkit.config.file_columns import Columns
        from bertkit.tasks.text.task import TextTask

        names = tuple(str(label) for label in self.classes_)
        if len(set(names)) < len(names):  # 1 and "1" in one object array
            names = tuple(f"{label!r}" for label in self.classes_)
        several = self.label_form_ != "one"
        metric = "micro_f1" if several else "accuracy"
        return TextTask("text", names, (metric,), metric, Columns(text=("text",)), multi_label=several)

    def _facts(self) -> dict[str, Json]:
        labels = self.classes_.tolist()
        if other := [label for label in labels if type(label) not in (str, int, float, bool)]:
            raise InputError(f"labels of type {type(other[0]).__name__} cannot be saved as JSON; pickle the estimator")
        form = {} if self.label_form_ == "one" else {"form": self.label_form_}
        return {"classes": labels, "dtype": self.classes_.dtype.str, **super()._facts(), **form}

    def _restore(self, saved: Saved, file: Path) -> None:
        try:
            if np.dtype(saved.dtype).itemsize > _MAX_LABEL_BYTES:
                raise ValueError("no label is so long")
            self.classes_ = np.array(saved.classes, dtype=saved.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{file}: classes of type {saved.dtype!r}: {error}") from None
        super()._restore(saved, file)
        if isinstance(self.class_weight, Mapping):  # JSON has only texts as keys
            label_of = {str(label): label for label in self.classes_.tolist()}
            self.class_weight = {label_of.get(name, name): weight for name, weight in self.class_weight.items()}
        self.label_form_ = saved.form

    def _check_model(self, file: Path) -> None:
        if self.model_.config.num_labels != len(self.classes_):
            raise CheckpointError(
                f"{file} lists {len(self.classes_)} classes, but the model has {self.model_.config.num_labels} outputs"
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"label_form_": "one", **state} if "classes_" in state else state)  # of older versions

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _check_classes(targets: Targets) -> None:
    if targets.form == "one" and len(targets.classes) < 2:
        raise InputError(f"BertClassifier needs at least 2 classes in y; got 1 class: {targets.classes.tolist()[0]!r}")
    if targets.form != "one" and bool((targets.numbers == targets.numbers[:1]).all()):
        raise InputError("every row of y has the same labels, so that there is nothing to learn; add other rows")
