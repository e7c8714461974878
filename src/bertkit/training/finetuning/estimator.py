"""BERT as a scikit-learn classifier."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bertkit.errors import CheckpointError, InputError, counted
from bertkit.system.console import quiet
from bertkit.system.device import Device, find_device
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.bad_rows import is_missing

if TYPE_CHECKING:
    from bertkit.tasks import TextTask
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig
    from bertkit.training.finetuning.frozen_encoder import Classifier

#: What :meth:`BertClassifier.save` writes beside the model and its tokenizer.
CLASSIFIER = "classifier.json"
_MAX_LABEL_BYTES = 1 << 20

Texts = Sequence[str] | Sequence[Sequence[str]] | npt.NDArray[np.generic] | Iterable[str]


@dataclass(frozen=True, slots=True)
class _Saved:
    params: dict[str, Any]
    classes: list[str | int | float | bool]
    dtype: str
    pairs: bool
    config: dict[str, Any]


class BertClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fine-tune a BERT to classify texts, or pairs of texts.

    ``X`` is a list, array or pandas series of strings, or of pairs of strings (also an array ``(n, 2)``); ``y`` holds
    the labels, of any type. Works in ``Pipeline``, ``GridSearchCV`` and ``cross_val_score``; can be cloned, pickled and
    saved to a folder. For a run with a dev set, checkpoints and reports use :func:`bertkit.finetune`.

    Args:
        model: start checkpoint: a folder, a safetensors file, or a name on the Hub.
        learning_rate: peak rate; None chooses by the size of the model.
        epochs: passes over the data; None means 3, more for small data (about 1,000 updates, at most 20 epochs).
        batch_size: sequences in an optimizer step.
        max_length: word pieces after which a text is cut; a warning says how many were.
        freeze_encoder: train only the head, on features that are computed once: seconds instead of minutes.
        pooling: what the classifier reads of the encoder: "cls", "mean" or "max"; None: as the checkpoint says
            (``1_Pooling`` of sentence-transformers), otherwise "cls".
        class_weight: "balanced" makes rare labels weigh more; None does not.
        seed: data order, new head and dropout; the same seed gives the same model.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        verbose: show progress.

    Attributes (after ``fit``): ``classes_`` (sorted labels), ``model_``, ``tokenizer_``, ``config_`` (settings used).
    """

    def __init__(
        self,
        model: str | Path = "bert-base-uncased",
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int = 32,
        max_length: int = 128,
        freeze_encoder: bool = False,
        pooling: Literal["cls", "mean", "max"] | None = None,
        class_weight: Literal["balanced"] | None = None,
        seed: int = 0,
        device: Device = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_length = max_length
        self.freeze_encoder = freeze_encoder
        self.pooling = pooling
        self.class_weight = class_weight
        self.seed = seed
        self.device = device
        self.verbose = verbose

    def fit(self, X: Texts, y: npt.ArrayLike) -> BertClassifier:
        """Fine-tune from the start checkpoint; an earlier fit is forgotten.

        Args:
            X: n texts or pairs.
            y: n labels, at least two different ones.

        Raises:
            InputError: X or y have the wrong form or length, an empty text or a missing label.
            CheckpointError: the start checkpoint cannot be used.
        """
        # Imported here: scikit-learn tools import this class long before anything is fitted.
        from bertkit.config.config_file import checkpoint_folder
        from bertkit.system.model_sources import resolve
        from bertkit.tasks.workflow import workflow_of
        from bertkit.tokenization import AutoTokenizer
        from bertkit.tokenization.features import featurize_texts
        from bertkit.training.finetuning.fit import fit_classifier
        from bertkit.training.trainer.generators import seeded

        texts, pairs = _columns(X)
        for number, text in enumerate(zip(texts, pairs or texts, strict=True)):
            if any(map(is_missing, text)):
                raise InputError(f"X has an empty text in row {number} (counted from 0); leave such rows out")
        labels = _labels(y, len(texts))
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"BertClassifier needs at least 2 classes in y; got 1 class: {self.classes_.tolist()[0]!r}"
            )
        task = self._task()
        with seeded(self.seed), quiet(not self.verbose):
            start = resolve(self.model)
            settings = self._settings(start)
            model = workflow_of(task).new_model(start, seed=self.seed, device=self.device, settings=settings)
            self.tokenizer_ = AutoTokenizer.from_pretrained(checkpoint_folder(start))
            self.config_ = settings.resolved(model=model.config, num_train_rows=len(texts))
            features = featurize_texts(texts, pairs, self.tokenizer_, max_length=self.config_.max_length)
            self._warn_of_truncated(features.truncated)
            features = replace(features, labels=numbers.astype(np.int64))
            fit_classifier(model, task, features, None, self.config_, seed=self.seed)
        self.model_ = model
        self.pairs_ = pairs is not None
        return self

    def predict(self, X: Texts) -> npt.NDArray[np.generic]:
        """The most probable label of each text, ``(n,)``, in the type of ``y``."""
        logits = self._logits(X)
        predicted: npt.NDArray[np.generic] = self.classes_[logits.argmax(axis=1)]
        return predicted

    def score(self, X: Texts, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """Share of the texts whose label is predicted. Refuses labels as :meth:`fit` does, or of another kind."""
        check_is_fitted(self, "model_")
        texts = _listed(X)
        labels, known = _labels(y, len(texts)), self.classes_.tolist()[0]
        if isinstance(labels.tolist()[0], str) != isinstance(known, str):
            raise InputError(f"y holds labels such as {labels.tolist()[0]!r}; fitted on labels such as {known!r}")
        return float(super().score(texts, labels, sample_weight))

    def predict_proba(self, X: Texts) -> npt.NDArray[np.generic]:
        """Probability of each label of ``classes_``, float64 ``(n, C)``; rows sum to 1."""
        from bertkit.metrics.probabilities import softmax

        return softmax(self._logits(X).astype(np.float64))

    def decision_function(self, X: Texts) -> npt.NDArray[np.generic]:
        """Logits, float64 ``(n, C)``; for two labels, as in scikit-learn, the second minus the first: ``(n,)``."""
        logits = self._logits(X).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def _logits(self, X: Texts) -> npt.NDArray[np.generic]:
        from bertkit.engine.inference_engine import InferenceEngine
        from bertkit.tasks.text.workflow import text_logits
        from bertkit.tokenization.features import featurize_texts

        check_is_fitted(self, "model_")
        texts, pairs = _columns(X)
        if (pairs is not None) != self.pairs_:
            kinds = ("single texts", "pairs of texts")
            raise InputError(f"fitted on {kinds[self.pairs_]}, got {kinds[not self.pairs_]}")
        with quiet(not self.verbose):
            features = featurize_texts(texts, pairs, self.tokenizer_, max_length=self.config_.max_length)
            self._warn_of_truncated(features.truncated)
            return text_logits(InferenceEngine.for_scoring(self.model_), features)

    def _warn_of_truncated(self, truncated: npt.NDArray[np.bool_]) -> None:
        if count := int(truncated.sum()):
            warnings.warn(
                f"{count:,} of {counted(len(truncated), 'text')} {'is' if count == 1 else 'are'} longer than "
                f"max_length={self.config_.max_length} word pieces and truncated; raise max_length to read more",
                UserWarning,
                stacklevel=4,
            )

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier: model, tokenizer and ``classifier.json``.

        The folder is also a checkpoint: ``pipeline("text-classification", model=folder)`` reads it. Nothing in it is
        executable, unlike a pickle.

        Args:
            folder: made if it does not exist; files of the same names are replaced.

        Raises:
            InputError: labels that JSON does not have (of another type than str, int, float or bool).
            ResourceError: no room on the disk.
        """
        from bertkit.config.decision import write_decision
        from bertkit.system.json_files import printable, write_json
        from bertkit.tasks.text.workflow import reading_of

        check_is_fitted(self, "model_")
        labels = self.classes_.tolist()
        if other := [label for label in labels if type(label) not in (str, int, float, bool)]:
            raise InputError(f"labels of type {type(other[0]).__name__} cannot be saved as JSON; pickle the estimator")
        device = self.device if isinstance(self.device, str | int | None) else str(self.device)
        params = {**self.get_params(), "model": printable(self.model), "device": device}
        path = Path(folder)
        self.model_.save_pretrained(path)
        self.tokenizer_.save_pretrained(path)
        write_decision(path, reading_of(self.config_))
        saved = {"params": params, "classes": labels, "dtype": self.classes_.dtype.str, "pairs": self.pairs_}
        write_json(path / CLASSIFIER, {**saved, "config": self.config_.model_dump()})

    @classmethod
    def load(cls, folder: str | Path, *, device: Device = None) -> BertClassifier:
        """Read what :meth:`save` wrote; the result predicts the same.

        Args:
            folder: the folder.
            device: where to predict; None: as when it was saved.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        from bertkit.model.auto import AutoModelForSequenceClassification
        from bertkit.system.json_files import parsed, read_json
        from bertkit.tokenization import AutoTokenizer
        from bertkit.training.finetuning.finetune_settings import FinetuneConfig

        path = Path(folder)
        saved = read_json(path / CLASSIFIER, _Saved)
        if unknown := saved.params.keys() - cls().get_params().keys():
            raise CheckpointError(f"{path / CLASSIFIER}: unknown parameters {', '.join(sorted(unknown))}")
        loaded = cls(**{**saved.params, **({} if device is None else {"device": device})})
        try:
            if np.dtype(saved.dtype).itemsize > _MAX_LABEL_BYTES:
                raise ValueError("no label is so long")
            loaded.classes_ = np.array(saved.classes, dtype=saved.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{path / CLASSIFIER}: classes of type {saved.dtype!r}: {error}") from None
        loaded.pairs_ = saved.pairs
        loaded.config_ = parsed(saved.config, FinetuneConfig, f"{path / CLASSIFIER}: config")
        loaded.model_ = AutoModelForSequenceClassification.from_pretrained(path, device=loaded.device)
        loaded.tokenizer_ = AutoTokenizer.from_pretrained(path)
        if loaded.model_.config.num_labels != len(loaded.classes_):
            raise CheckpointError(
                f"{path / CLASSIFIER} lists {len(loaded.classes_)} classes, but the model has "
                f"{loaded.model_.config.num_labels} outputs"
            )
        return loaded

    def _settings(self, start: Path) -> FinetuneConfig:
        from bertkit.config.any_config import is_encoder_decoder
        from bertkit.config.config_file import config_path
        from bertkit.training.finetuning.finetune_settings import FinetuneConfig
        from bertkit.training.trainer.precision import fastest_precision

        if self.class_weight not in (None, "balanced"):
            raise InputError(f'class_weight must be "balanced" or None, got {self.class_weight!r}')
        config = FinetuneConfig(
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            batch_size=self.batch_size,
            max_length=self.max_length,
            freeze_encoder=self.freeze_encoder,
            pooling=self.pooling,
            class_weights=self.class_weight or "none",
            baseline=False,
        )
        whole = self.freeze_encoder or is_encoder_decoder(config_path(start))  # as in finetune()
        precision = "fp32" if whole else fastest_precision(self.device)
        return config.model_copy(update={"precision": precision})

    def _task(self) -> TextTask:
        from bertkit.tasks import Columns, TextTask

        names = tuple(str(label) for label in self.classes_)
        if len(set(names)) < len(names):  # 1 and "1" in one object array
            names = tuple(f"{label!r}" for label in self.classes_)
        return TextTask("text", names, ("accuracy",), "accuracy", Columns(text=("text",)))

    def __getstate__(self) -> dict[str, Any]:
        """Weights are stored as safetensors bytes, so a pickle of this object holds no pickled tensors."""
        state: dict[str, Any] = dict(super().__getstate__())  # a copy: it may be this object's own dictionary
        if "model_" in state:
            from safetensors.torch import save

            model = state.pop("model_")
            state["_weights"] = save({name: p.detach().cpu().contiguous() for name, p in model.named_parameters()})
            state["_shape"] = model.config.model_dump()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights, shape = state.pop("_weights", None), state.pop("_shape", None)
        super().__setstate__(state)
        if weights is not None:
            self.model_ = _rebuild(weights, shape, self.device)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.no_validation = True
        tags.non_deterministic = False
        return tags


def _rebuild(weights: bytes, shape: dict[str, Json], device: Device) -> Classifier:
    import torch
    from safetensors.torch import load

    from bertkit.config.any_config import config_class
    from bertkit.model.auto import AutoModelForSequenceClassification

    with torch.device("meta"):
        model: Classifier = AutoModelForSequenceClassification.from_config(
            config_class(str(shape["model_type"]))(**shape)
        )
    model.load_state_dict(load(weights), strict=True, assign=True)
    return model.to(find_device(device, "cpu")).eval()


def _columns(X: Texts) -> tuple[list[str], list[str] | None]:
    """Texts and second texts (None for single ones)."""
    rows = _listed(X)
    if not rows:
        raise InputError("X is empty: found 0 sample(s), a minimum of 1 is required")
    single = isinstance(rows[0], str)
    for number, row in enumerate(rows):
        parts = list(row) if isinstance(row, list | tuple | np.ndarray) else []
        pair = len(parts) == 2 and all(isinstance(part, str) for part in parts)
        if not (isinstance(row, str) if single else pair):
            first = f" and row 0 {rows[0]!r:.40}" if number else ""
            raise InputError(f"X must hold strings, or pairs of strings throughout; row {number} is {row!r:.80}{first}")
    return (rows, None) if single else ([row[0] for row in rows], [row[1] for row in rows])


def _listed(values: Any) -> list[Any]:
    """The values of a list, another iterable, an array, or a column of pandas, polars or Arrow."""
    if isinstance(values, (str, bytes)) or (isinstance(values, np.ndarray) and not values.ndim):
        raise InputError("X must be a list of texts, got one string: put it in a list")
    if not isinstance(values, Iterable):
        raise InputError(f"X must be a list of texts, got {values!r:.80}")
    if hasattr(values, "to_pylist"):  # Arrow, whose to_numpy() refuses texts in chunks
        return list(values.to_pylist())
    if hasattr(values, "to_numpy"):
        values = np.asarray(values.to_numpy(), dtype=object)
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def _labels(y: npt.ArrayLike | None, num_rows: int) -> npt.NDArray[np.generic]:
    if y is None:
        raise InputError("BertClassifier requires y to be passed, but the target y is None")
    labels = np.asarray(y.to_pylist() if hasattr(y, "to_pylist") else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != num_rows:
        raise InputError(f"y must have one label for each of the {counted(num_rows, 'text')}, got shape {labels.shape}")
    _check_values(y)
    try:
        check_classification_targets(labels)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from None
    return labels


def _check_values(y: npt.ArrayLike) -> None:
    """InputError for a row without a label, or with one of another kind than the first, which numpy would convert."""
    values = [row[0] if isinstance(row, list) and len(row) == 1 else row for row in _listed(y)]
    for number, value in enumerate(values):
        nothing = is_missing(value) or type(value).__name__ in ("NAType", "NaTType")  # of pandas
        if nothing or (isinstance(value, float | np.floating) and not math.isfinite(value)):
            raise InputError(f"y has no label in row {number} (counted from 0), but {value!r}; leave such rows out")
        if any(isinstance(value, kind) != isinstance(values[0], kind) for kind in (str, bool | np.bool_)):
            raise InputError(
                f"y must hold texts, numbers, or truth values throughout; row {number} is {value!r:.40}, "
                f"row 0 is {values[0]!r:.40}"
            )
