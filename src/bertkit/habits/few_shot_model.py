"""``SetFitModel``: a classifier of texts that is trained on a handful of labels, by bertkit's few-shot training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.checkpoints.fit import own_pooling
from bertkit.checkpoints.setfit_head import HEAD, FittedHead, read_head
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.decision import write_decision
from bertkit.config.file_columns import Columns
from bertkit.config.sentence_config import SentenceConfig
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.habit_table import has_no_effect, remedy
from bertkit.habits.linear_heads import fitted, unfitted
from bertkit.habits.sentences.sentence_transformer import SentenceTransformer
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.metrics.probabilities import sigmoid, softmax
from bertkit.model.models import BertForSequenceClassification
from bertkit.ragged import Ints, Ragged
from bertkit.system.console import quiet
from bertkit.system.device import Device
from bertkit.system.json_files import read_json, write_json
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.tasks.examples import Example
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.workflow import reading_of, text_logits
from bertkit.tasks.workflow import workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.training.finetuning.few_label_sets import fit_few_label_sets
from bertkit.training.finetuning.few_shot import fit_few_labels
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.frozen_encoder import FrozenHead, frozen_vectors
from bertkit.training.finetuning.linear_head import read_by

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

#: What SetFit and this class write beside a model; here also the classes.
CONFIG = "config_setfit.json"
STRATEGIES = ("one-vs-rest", "multi-output", "classifier-chain")
Classes = npt.NDArray[np.generic]


class SetFitOptions(TypedDict, total=False):
    """Keywords of :meth:`SetFitModel.from_pretrained`.

    labels: names of the labels 0, 1 ... multi_target_strategy: any of SetFit's, for texts with several labels each: a
    logistic regression for each label. use_differentiable_head: predictions are tensors also of texts; the head is the
    same. head_params: kept for ``model_head``; the regression is bertkit's own. normalize_embeddings: :meth:`encode`
    gives vectors of length 1. device, revision: see :func:`bertkit.pipeline`.
    """

    labels: Sequence[str] | None
    multi_target_strategy: str | None
    use_differentiable_head: bool
    head_params: Mapping[str, Any] | None
    normalize_embeddings: bool
    device: Device
    revision: str | None


@dataclass(frozen=True, slots=True)
class _Trained:
    """A trained classifier, how it reads texts, and the labels of its outputs in the type that was given."""

    model: BertForSequenceClassification
    config: FinetuneConfig
    classes: Classes


class SetFitModel:
    """An encoder and a linear head, trained on a few labelled texts by :class:`bertkit.setfit.Trainer`.

    The training is that of ``bertkit finetune --few-shot --few-shot-method contrastive``: texts of a label become
    alike, then a logistic regression reads their vectors. What it writes is a folder of bertkit, which
    ``pipeline("text-classification")`` opens too; it has no pickle. ``batch_size`` of its calls has no effect. Deviates
    from SetFit: a head of one's own is not taken; after the training :meth:`encode` gives the vectors that the head
    reads, before it those of the encoder.
    """

    def __init__(self, model: Any = None, model_head: Any = None, **options: Unpack[SetFitOptions]) -> None:
        known = SetFitOptions.__annotations__
        for name, value in options.items():
            if name not in known and not has_no_effect("SetFitModel", name, value):
                raise ConfigError(f"SetFitModel has no {name!r}{remedy('SetFitModel', name, known)}")
        if not isinstance(model, str | Path) or model_head is not None:
            raise InputError(
                f"SetFitModel takes the name or folder of a model and no head, got {type(model).__name__}"
                f"{'' if model_head is None else f' and {type(model_head).__name__}'}; for a head of your own "
                "write make_pipeline(BertVectorizer(MODEL), HEAD) of scikit-learn"
            )
        strategy = options.get("multi_target_strategy")
        if strategy is not None and strategy not in STRATEGIES:
            raise ConfigError(f"multi_target_strategy={strategy!r}: it is one of {', '.join(STRATEGIES)}")
        self.start = resolve(model, revision=options.get("revision"))
        self.multi_target_strategy = strategy
        self.has_differentiable_head = bool(options.get("use_differentiable_head"))
        self.normalize_embeddings = bool(options.get("normalize_embeddings"))
        self.labels = None if (labels := options.get("labels")) is None else list(labels)
        given = options.get("head_params") or {}
        torch_only = ("out_features", "in_features", "temperature", "eps", "bias", "device", "multitarget")
        self.head_params = {
            name: value
            for name, value in given.items()
            if not (self.has_differentiable_head and name in torch_only)  # the labels say how many outputs there are
        }
        self._device: Device = options.get("device")
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(self.start))
        self._encoder: SentenceEncoder | None = None
        self._head: FittedHead | None = None  # that SetFit has trained
        self._trained = self._read(options)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[SetFitOptions]) -> Self:
        """An encoder to be trained (a folder, or a name on the Hub), what :meth:`save_pretrained` wrote, or SetFit.

        Of the pickle that has SetFit's head only the numbers are read; see :mod:`bertkit.checkpoints.setfit_head`.

        Raises:
            ConfigError: an unknown keyword.
            CheckpointError: no model there, or one of SetFit whose head is no logistic regression.
        """
        return cls(name_or_path, **options)

    def _read(self, options: SetFitOptions) -> _Trained | None:
        folder = checkpoint_folder(self.start)
        if not (folder / CONFIG).is_file():
            return None
        saved = read_json(folder / CONFIG, dict[str, Any])
        if "classes" not in saved:  # written by SetFit
            self.labels = saved.get("labels") if "labels" not in options else self.labels
            self.normalize_embeddings = bool(saved.get("normalize_embeddings"))
            self._head = read_head(folder / HEAD) if (folder / HEAD).is_file() else None
            return None
        self.labels = saved["labels"] if "labels" not in options else self.labels
        self.normalize_embeddings = saved["normalize_embeddings"]
        self.multi_target_strategy = saved["multi_target_strategy"]
        self.has_differentiable_head = saved["differentiable_head"]
        model = BertForSequenceClassification.from_pretrained(self.start, device=self._device)
        return _Trained(model, FinetuneConfig(**saved["reading"]), np.array(saved["classes"]))

    def __getattr__(self, name: str) -> Any:
        known = [each for each in dir(type(self)) if not each.startswith("_")]
        raise AttributeError(f"SetFitModel has no {name!r}{remedy('SetFitModel.', name, known)}")

    @property
    def id2label(self) -> dict[int, str]:
        """Names of the labels by number; empty without names."""
        return dict(enumerate(self.labels or ()))

    @property
    def label2id(self) -> dict[str, int]:
        """Numbers of the labels by name."""
        return {name: number for number, name in self.id2label.items()}

    @property
    def model_body(self) -> SentenceTransformer:
        """The encoder: before the training the one that was opened, then the trained one."""
        return SentenceTransformer.of(self._body)

    @property
    def _body(self) -> SentenceEncoder:
        if self._trained is not None:
            trained = self._trained
            sentence = SentenceConfig(pooling=(trained.model.config.pooling,), max_length=trained.config.max_length)
            return SentenceEncoder(trained.model.bert, self.tokenizer, sentence=sentence)
        if self._encoder is None:
            self._encoder = SentenceEncoder(self.start, device=self._device)
        return self._encoder

    @property
    def model_head(self) -> BaseEstimator:
        """The head as an estimator of scikit-learn, which predicts from the vectors of :meth:`encode`."""
        if self._trained is not None:
            classifier = self._trained.model.classifier
            weights_CD, bias_C = (each.detach().double().cpu().numpy() for each in (classifier.weight, classifier.bias))
        elif self._head is not None:
            weights_CD, bias_C = self._head.weights, self._head.bias
        else:
            return unfitted(self.head_params)
        return fitted(weights_CD, bias_C, None if self._several else self._classes, self.head_params)

    @property
    def _several(self) -> bool:
        """Whether a text has any number of labels."""
        if self._trained is None:
            return self._head is not None and self._head.several
        return self._trained.model.config.problem_type == "multi_label_classification"

    @property
    def _classes(self) -> Classes:
        """The labels of the outputs, in the type that was given.

        Raises:
            InputError: the model is not trained.
        """
        if (trained := self._trained or self._head) is None:
            raise InputError(
                "this SetFitModel is not trained: write Trainer(model=model, train_dataset=rows).train() of "
                "bertkit.setfit, or open the folder of a trained one"
            )
        return trained.classes

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._trained.model.device if self._trained is not None else self._body.pipeline.device

    def to(self, device: Device) -> Self:
        """Move the model; returns it."""
        if self._trained is not None:
            self._trained.model.to(device)
        elif str(device) != str(self.device):
            self._device, self._encoder = device, None
        return self

    def encode(
        self, inputs: str | Sequence[str], batch_size: int = 32, show_progress_bar: bool | None = None
    ) -> npt.NDArray[np.float32] | Tensor:
        """Vectors of texts ``(n, D)``, float32; a tensor with ``use_differentiable_head``."""
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if self._trained is None:
            found = np.asarray(self._body.encode(texts, truncation=True, progress=show_progress_bar), np.float32)
        else:
            with quiet():
                head = FrozenHead(self._trained.model)
                found = read_by(head, frozen_vectors(self._trained.model, self._features(texts, self._trained.config)))
        if self.normalize_embeddings:
            found = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        found = found[0] if isinstance(inputs, str) else found
        return torch.from_numpy(found) if self.has_differentiable_head else found

    def predict_proba(
        self,
        inputs: str | Sequence[str],
        batch_size: int = 32,
        as_numpy: bool = False,
        show_progress_bar: bool | None = None,
    ) -> Tensor | npt.NDArray[np.float64]:
        """Probabilities ``(n, C)``, float64, or ``(C,)`` for one text; rows sum to 1 where labels exclude each other.

        Raises:
            InputError: the model is not trained.
        """
        texts, _ = [inputs] if isinstance(inputs, str) else list(inputs), self._classes
        function, scaled = sigmoid if self._several else softmax, False
        if not texts:
            logits = np.zeros((0, len(self._classes)))
        elif self._trained is not None:
            with quiet(not show_progress_bar):
                engine = InferenceEngine.for_scoring(self._trained.model)
                logits = text_logits(engine, self._features(texts, self._trained.config)).astype(np.float64)
        else:
            assert self._head is not None, "there are classes"
            logits = np.asarray(self.encode(texts)).astype(np.float64) @ self._head.weights.T + self._head.bias
            function, scaled = (sigmoid, True) if self._head.one_vs_rest else (function, False)
        found = function(logits)
        found = found / found.sum(axis=1, keepdims=True) if scaled else found
        probabilities = np.asarray(found[0] if isinstance(inputs, str) else found, np.float64)
        return probabilities if as_numpy else torch.from_numpy(probabilities)

    def predict(
        self,
        inputs: str | Sequence[str],
        batch_size: int = 32,
        as_numpy: bool = False,
        use_labels: bool = True,
        show_progress_bar: bool | None = None,
    ) -> Any:
        """The likeliest label of each text, or of one text.

        Names where the model has names (``use_labels=False``: numbers), else labels as they were given: a tensor, or an
        array of names. Of texts with several labels 0 or 1 for each label, ``(n, C)``.
        """
        found = self.predict_proba([inputs] if isinstance(inputs, str) else inputs, as_numpy=True)
        assert isinstance(found, np.ndarray)
        if self._several:
            chosen = (found >= 0.5).astype(np.int64)
        else:
            chosen = self._classes[found.argmax(axis=1)]
            if use_labels and self.labels is not None and chosen.dtype.kind in "iu":
                names = [self.labels[number] for number in chosen.tolist()]
                return names[0] if isinstance(inputs, str) else names
        out = chosen if as_numpy or chosen.dtype.kind not in "iufb" else torch.from_numpy(chosen)
        return out[0] if isinstance(inputs, str) else out

    __call__ = predict

    def fit(self, x_train: Sequence[str], y_train: Sequence[Any], num_epochs: int = 1, **ignored: Any) -> None:
        """Train only the head, on the vectors that the encoder has now; ``num_epochs``: no effect, it is exact."""
        self.train_on(
            list(x_train), list(y_train), FinetuneConfig(few_shot=True, few_shot_method="linear"), FitOptions()
        )

    def train_on(self, texts: list[str], labels: list[Any], config: FinetuneConfig, options: FitOptions) -> None:
        """Train encoder and head on texts and labels, as ``config`` says; an earlier training is continued.

        Raises:
            DataError: labels of one kind only, or names that are missing for their numbers.
        """
        several = isinstance(labels[0], Sequence | np.ndarray) and not isinstance(labels[0], str)
        if several and self.multi_target_strategy is None:
            raise DataError(
                "a label is a list, as of texts with several labels: write SetFitModel.from_pretrained(..., "
                "multi_target_strategy='one-vs-rest')"
            )
        given = np.array(labels)
        classes, numbers = (np.arange(given.shape[1]), given) if several else np.unique(given, return_inverse=True)
        if len(classes) < 2:
            raise DataError(f"all {len(texts)} training rows have the label {labels[0]!r}; two labels are needed")
        if given.dtype.kind == "U" and not several and self.labels is None:
            self.labels = classes.tolist()
        before, self._trained = self._trained, self._begin(classes, several, config)  # callbacks may encode
        try:
            self._fit(texts, numbers, several, config.seed, options)
        except BaseException:
            self._trained = before
            raise

    def _fit(self, texts: list[str], numbers: Ints, several: bool, seed: int, options: FitOptions) -> None:
        assert self._trained is not None
        model, config = self._trained.model, self._trained.config
        train = self._features(texts, config)
        if several:
            fit_few_label_sets(model, train, numbers, config, seed=seed, options=options)
            return
        train = replace(train, labels=numbers.astype(np.int64))
        rows = [Example(text, None, int(number)) for text, number in zip(texts, numbers, strict=True)]
        workflow = workflow_of(self._task(self._trained.classes, several))
        fit_few_labels(model, workflow, rows, train, None, config, seed=seed, options=options)

    def _begin(self, classes: Classes, several: bool, config: FinetuneConfig) -> _Trained:
        """The model that is trained: new outputs on the encoder as it is now."""
        folder = checkpoint_folder(self.start)
        pooling = own_pooling(folder) or "mean"
        settings = config.model_copy(update={"pooling": pooling, "baseline": False})
        workflow = workflow_of(self._task(classes, several))
        model = workflow.new_model(self.start, seed=config.seed, device=self._device, settings=settings)
        assert isinstance(model, BertForSequenceClassification)
        if self._trained is not None:
            model.bert.load_state_dict(self._trained.model.bert.state_dict())
        limit = min(model.config.max_input_length, self._body.config.max_length or 512)
        settings = settings.model_copy(update={"max_length": config.max_length or limit})
        return _Trained(model, settings.resolved(model=model.config, num_train_rows=1), classes)

    def _task(self, classes: Classes, several: bool) -> TextTask:
        names = [str(each) for each in classes.tolist()]
        if self.labels is not None and classes.dtype.kind in "iu":
            if len(self.labels) <= int(classes.max()):
                raise DataError(f"labels={self.labels!r} names {len(self.labels)} labels, but there is {classes.max()}")
            names = [self.labels[number] for number in classes.tolist()]
        metric = "micro_f1" if several else "accuracy"
        return TextTask("text", tuple(names), (metric,), metric, Columns(text=("text",)), multi_label=several)

    def _features(self, texts: Sequence[str], config: FinetuneConfig) -> Ragged:
        assert config.max_length is not None, "settings are resolved"
        return featurize_texts(list(texts), None, self.tokenizer, max_length=config.max_length)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that :meth:`from_pretrained`, ``pipeline`` and ``bertkit classify`` open.

        Raises:
            ResourceError: no room on the disk.
        """
        path = user_path(folder)
        path.mkdir(parents=True, exist_ok=True)
        if self._trained is None:
            if self._head is not None:
                raise InputError(
                    f"this head was trained by SetFit and stays in {self.start}; copy that folder, or train here: "
                    "Trainer(model=model, train_dataset=rows).train()"
                )
            self._body.save_pretrained(path)
            return
        trained = self._trained
        trained.model.save_pretrained(path)
        self.tokenizer.save_pretrained(path)
        write_decision(path, reading_of(trained.config))
        saved = {
            "labels": self.labels,
            "normalize_embeddings": self.normalize_embeddings,
            "multi_target_strategy": self.multi_target_strategy,
            "differentiable_head": self.has_differentiable_head,
            "classes": trained.classes.tolist(),
            "reading": {"max_length": trained.config.max_length, "pooling": trained.config.pooling},
        }
        write_json(path / CONFIG, saved)
