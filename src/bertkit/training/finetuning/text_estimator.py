"""What the estimators for scikit-learn share: parameters, one training, folders, pickles."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bertkit.errors import CheckpointError, InputError, counted
from bertkit.inference.estimator_parameters import NamedParameters
from bertkit.system.console import quiet
from bertkit.system.device import Device, find_device
from bertkit.system.model_sources import INCLUDED
from bertkit.system.untrusted_files import Json
from bertkit.tasks.reading.listed_texts import Texts, texts_and_pairs

if TYPE_CHECKING:
    from bertkit.model.auto import AnyModel
    from bertkit.tasks.answering import Predicted
    from bertkit.tasks.examples import Example, Located
    from bertkit.tasks.registry import Task
    from bertkit.tasks.workflow import AnyWorkflow
    from bertkit.training.finetuning.seed_run import Job


@dataclass(frozen=True, slots=True)
class Saved:
    """What :meth:`TextEstimator.save_pretrained` writes beside the model and its tokenizer."""

    params: dict[str, Any]
    config: dict[str, Any]
    classes: list[str | int | float | bool] = field(default_factory=list)
    dtype: str = ""
    pairs: bool = False
    form: Literal["one", "indicators", "lists"] = "one"


class TextEstimator(NamedParameters, BaseEstimator):  # type: ignore[misc]
    """Base class: a BERT that is fine-tuned by ``fit``; a subclass says what task that is."""

    #: The file that tells which estimator a folder has, and the class of ``bertkit.model.auto`` that reads its model.
    file: ClassVar[str]
    auto_class: ClassVar[str] = "AutoModelForSequenceClassification"

    def __init__(
        self,
        model: str | Path = INCLUDED,
        *,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        freeze_encoder: bool = False,
        seed: int = 0,
        random_state: int | np.random.RandomState | None = None,
        device: Device = None,
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_length = max_length
        self.freeze_encoder = freeze_encoder
        self.seed = seed
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    @abstractmethod
    def _task(self) -> Task:
        """The task that was learned, or is to be."""

    def _settings(self) -> dict[str, Any]:
        """Settings of :class:`FinetuneConfig` beside those that all estimators have."""
        return {}

    def _train(self, examples: Sequence[Located], weights: npt.NDArray[np.float64] | None = None) -> None:
        """Learn from examples, each counting its weight: ``model_``, ``tokenizer_`` and ``config_``."""
        from bertkit.ragged import Ragged
        from bertkit.training.finetuning.few_shot_selection import select_method
        from bertkit.training.finetuning.fit import FitOptions

        with quiet(not self.verbose), TemporaryDirectory(prefix="bertkit-") as folder:
            job = self._job(examples, Path(folder))
            self._warn_of_truncated(job.data.train.truncated, job.config.max_length)
            if weights is not None:
                assert isinstance(job.data.train, Ragged), "texts are not read in windows here"
                largest = weights / weights.max()
                scaled = (largest / largest.mean()).astype(np.float32)
                job = replace(job, data=replace(job.data, train=replace(job.data.train, weights=scaled)))
            if job.config.few_shot:
                job, _ = select_method(job)
            trained = job.train(job.config.seed, FitOptions())
        self.model_, self.tokenizer_, self.config_ = trained.model, job.tokenizer, job.config

    def _job(self, examples: Sequence[Located], folder: Path) -> Job:
        from bertkit.config.any_config import is_encoder_decoder
        from bertkit.config.config_file import checkpoint_folder, config_path
        from bertkit.system.model_sources import resolve
        from bertkit.tasks.examples import Examples
        from bertkit.tasks.report import DataReport
        from bertkit.tasks.run_rows import Rows
        from bertkit.tasks.workflow import workflow_of
        from bertkit.tokenization.auto_tokenizer import AutoTokenizer
        from bertkit.training.finetuning.few_shot import check_few_shot
        from bertkit.training.finetuning.finetune import pooled_for_few_labels, resolved, with_precision
        from bertkit.training.finetuning.finetune_folder import FinetuneFolder
        from bertkit.training.finetuning.finetune_settings import FinetuneConfig
        from bertkit.training.finetuning.seed_run import Job, StartModel, TaskData

        seed = self.seed if self.random_state is None else self.random_state
        try:
            seed = seed if isinstance(seed, int) else int(check_random_state(seed).randint(2**31 - 1))
        except ValueError as error:
            raise InputError(f"random_state={self.random_state!r:.40}: {error}") from None
        config = FinetuneConfig(
            learning_rate=self.learning_rate,
            epochs=self.epochs,
            batch_size=self.batch_size,
            max_length=self.max_length,
            freeze_encoder=self.freeze_encoder,
            seed=seed,
            baseline=False,
            **self._settings(),
        )
        place, run = str(find_device(self.device, "cpu")), FinetuneFolder(folder)
        workflow = workflow_of(self._task())
        start = StartModel(resolve(self.model), str(self.model))
        workflow.check_settings(config)
        check_few_shot(workflow, config, encoder=not is_encoder_decoder(config_path(start.path)))
        config = workflow.settings_for(checkpoint_folder(start.path), with_precision(config, start.path, run, place))
        config = pooled_for_few_labels(config, start.path)
        shape = workflow.start_shape(start.path, config)
        tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(start.path))
        given: Examples[Located] = Examples(examples)
        rows, reading = Rows(given, given, False, len(given), {}), resolved(workflow, shape, config, len(given))
        train = workflow.encode(given, tokenizer, reading, labelled=True)
        data = TaskData(rows, train, train, DataReport(workflow.task.name, {}))
        config = resolved(workflow, shape, config, len(train))
        return Job(workflow, data, config, run, start, tokenizer, {}, place, None)

    def _predicted(self, examples: Sequence[Located]) -> tuple[AnyWorkflow, Predicted[Any, Any, Any]]:
        """What the fitted model says of examples, and the workflow that reads it."""
        from bertkit.tasks.answering import Predicted
        from bertkit.tasks.workflow import workflow_of

        check_is_fitted(self, "model_")
        workflow = workflow_of(self._task())
        with quiet(not self.verbose):
            encoded = workflow.encode(examples, self.tokenizer_, self.config_, labelled=False)
            self._warn_of_truncated(encoded.truncated, self.config_.max_length)
            outputs = workflow.outputs(workflow.scoring_engine(self.model_), encoded, label="scoring")
        return workflow, Predicted(examples, encoded, outputs, {})

    def _warn_of_truncated(self, truncated: npt.NDArray[np.bool_], limit: int | None) -> None:
        if count := int(truncated.sum()):
            warnings.warn(
                f"{count:,} of {counted(len(truncated), 'text')} {'is' if count == 1 else 'are'} longer than "
                f"max_length={limit} word pieces and truncated; raise max_length to read more",
                UserWarning,
                stacklevel=4,
            )

    # ------------------------------------------------------------------------------------------------ folders, pickles

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the fitted estimator: model, tokenizer and a JSON file of its own.

        The folder is also a checkpoint: ``pipeline(model=folder)`` reads it. Nothing in it is executable, unlike a
        pickle.

        Args:
            folder: made if it does not exist; files of the same names are replaced.

        Raises:
            InputError: labels that JSON does not have (of another type than str, int, float or bool).
            ResourceError: no room on the disk.
        """
        from bertkit.config.decision import write_decision
        from bertkit.system.json_files import printable, write_json

        check_is_fitted(self, "model_")
        facts = self._facts()
        device = self.device if isinstance(self.device, str | int | None) else str(self.device)
        state = self.random_state if isinstance(self.random_state, int | None) else None
        params = {**self.get_params(), "model": printable(self.model), "device": device, "random_state": state}
        path = Path(folder)
        self.model_.save_pretrained(path)
        self.tokenizer_.save_pretrained(path)
        write_decision(path, self._reading())
        write_json(path / self.file, {"params": params, **facts, "config": self.config_.model_dump()})

    def save(self, folder: str | Path) -> None:
        """:meth:`save_pretrained`."""
        self.save_pretrained(folder)

    @classmethod
    def from_pretrained(cls, folder: str | Path, *, device: Device = None) -> Self:
        """Read what :meth:`save_pretrained` wrote; the result predicts the same.

        Args:
            folder: the folder.
            device: where to predict; None: as when it was saved.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        from bertkit.system.json_files import parsed, read_json
        from bertkit.tokenization.auto_tokenizer import AutoTokenizer
        from bertkit.training.finetuning.finetune_settings import FinetuneConfig

        path = Path(folder)
        if not (path / cls.file).exists():
            raise CheckpointError(
                f"{path / cls.file} does not exist: {cls.__name__}.save_pretrained did not write it. To predict with "
                f"another model use bertkit.pipeline(model=...), to train it further {cls.__name__}(model=...)"
            )
        saved = read_json(path / cls.file, Saved)
        if unknown := saved.params.keys() - cls().get_params().keys():
            raise CheckpointError(f"{path / cls.file}: unknown parameters {', '.join(sorted(unknown))}")
        loaded = cls(**{**saved.params, **({} if device is None else {"device": device})})
        loaded.config_ = parsed(saved.config, FinetuneConfig, f"{path / cls.file}: config")
        loaded._restore(saved, path / cls.file)
        loaded.model_ = cls._auto().from_pretrained(path, device=loaded.device)
        loaded.tokenizer_ = AutoTokenizer.from_pretrained(path)
        loaded._check_model(path / cls.file)
        return loaded

    @classmethod
    def load(cls, folder: str | Path, *, device: Device = None) -> Self:
        """:meth:`from_pretrained`."""
        return cls.from_pretrained(folder, device=device)

    def _facts(self) -> dict[str, Json]:
        """Further fields of :class:`Saved`."""
        return {}

    def _restore(self, saved: Saved, file: Path) -> None:
        """Read them; CheckpointError for values that no ``save_pretrained`` writes."""

    def _check_model(self, file: Path) -> None:
        """CheckpointError if the loaded model does not fit them."""

    def _reading(self) -> Mapping[str, Json]:
        """How texts are read, for ``decision.json``."""
        return {"max_length": self.config_.max_length}

    @classmethod
    def _auto(cls) -> Any:
        import bertkit.model.auto

        return getattr(bertkit.model.auto, cls.auto_class)

    def __getstate__(self) -> dict[str, Any]:
        """Weights are stored as safetensors bytes, so a pickle of this object holds no pickled tensors."""
        state: dict[str, Any] = dict(super().__getstate__())  # a copy: it may be this object's own dictionary
        if "model_" in state:
            from safetensors.torch import save

            model: AnyModel = state.pop("model_")
            state["_weights"] = save({name: p.detach().cpu().contiguous() for name, p in model.named_parameters()})
            state["_shape"] = model.config.model_dump()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights, shape = state.pop("_weights", None), state.pop("_shape", None)
        super().__setstate__(state)
        if weights is not None:
            self.model_ = self._rebuild(weights, shape)

    def _rebuild(self, weights: bytes, shape: Mapping[str, Json]) -> AnyModel:
        import torch
        from safetensors.torch import load

        from bertkit.config.any_config import config_class

        with torch.device("meta"):
            model: AnyModel = self._auto().from_config(config_class(str(shape["model_type"]))(**shape))
        model.load_state_dict(load(weights), strict=True, assign=True)
        return model.to(find_device(self.device, "cpu")).eval()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.no_validation, tags.non_deterministic = True, False
        tags.target_tags.required = True
        return tags


class OfTexts(TextEstimator):
    """Base class of estimators that read texts, or pairs of texts, and have one output or more for each."""

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
            seed=seed,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.pooling = pooling

    def _settings(self) -> dict[str, Any]:
        return {"pooling": self.pooling}

    def _logits(self, X: Texts) -> npt.NDArray[np.float32]:
        """Outputs of the fitted model, float32 ``(n, C)``."""
        check_is_fitted(self, "model_")
        texts, pairs = texts_and_pairs(X)
        if (pairs is not None) != self.pairs_:
            kinds = ("single texts", "pairs of texts")
            raise InputError(f"fitted on {kinds[self.pairs_]}, got {kinds[not self.pairs_]}")
        found: npt.NDArray[np.float32] = self._predicted(examples_of(texts, pairs, [None] * len(texts)))[1].outputs
        return found

    def _facts(self) -> dict[str, Json]:
        return {"pairs": self.pairs_}

    def _restore(self, saved: Saved, file: Path) -> None:
        self.pairs_ = saved.pairs

    def _reading(self) -> Mapping[str, Json]:
        from bertkit.tasks.text.workflow import reading_of

        return reading_of(self.config_)


def examples_of(
    texts: Sequence[str], pairs: Sequence[str] | None, labels: Sequence[int | float | tuple[int, ...] | None]
) -> list[Example]:
    """Texts with their labels as the rows of a task, numbered from 0."""
    from bertkit.tasks.examples import Example

    seconds = [None] * len(texts) if pairs is None else pairs
    given = enumerate(zip(texts, seconds, labels, strict=True))
    return [Example(text, second, label, row) for row, (text, second, label) in given]


def counted_rows(
    weights: npt.NDArray[np.float64] | None, texts: list[str], pairs: list[str] | None
) -> tuple[npt.NDArray[np.intp], list[str], list[str] | None]:
    """Numbers, texts and second texts of the rows that have a weight; None: all."""
    if weights is None:
        return np.arange(len(texts)), texts, pairs
    kept = np.flatnonzero(weights)
    return kept, [texts[row] for row in kept], None if pairs is None else [pairs[row] for row in kept]
