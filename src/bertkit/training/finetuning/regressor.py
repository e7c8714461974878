"""BERT as a scikit-learn regressor."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from bertkit.tasks.reading.listed_texts import Texts, check_not_empty, texts_and_pairs
from bertkit.training.finetuning.estimator_targets import read_scores, read_weights
from bertkit.training.finetuning.text_estimator import OfTexts, counted_rows, examples_of

if TYPE_CHECKING:
    from bertkit.tasks.text.task import TextTask


class BertRegressor(RegressorMixin, OfTexts):  # type: ignore[misc]
    """Fine-tune a BERT to predict a number of texts, or of pairs of texts.

    ``X`` and the parameters are those of :class:`bertkit.BertClassifier`; ``y`` holds a number for each text. It is
    learned with mean 0 and standard deviation 1, and the last layer is scaled back afterwards: prices and shares are
    learned alike, and the model in a saved folder predicts what ``y`` was measured in.

    Args:
        model: start checkpoint; the default is the small model that comes with bertkit.
        learning_rate: peak rate; None chooses by the size of the model.
        epochs: passes over the data; None means 3, more for small data (about 1,000 updates, at most 20 epochs).
        batch_size: sequences in an optimizer step.
        max_length: word pieces after which a text is cut; None: 128, or as many as the model reads.
        freeze_encoder: train only the head, on features that are computed once: seconds instead of minutes.
        pooling: what the head reads of the encoder: "cls", "mean" or "max"; None: as the checkpoint says, or "cls".
        seed: data order, new head and dropout; the same seed gives the same model.
        random_state: the same by scikit-learn's name; None takes ``seed``.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.
        verbose: show progress.

    Attributes (after ``fit``): ``model_``, ``tokenizer_``, ``config_`` (settings used).
    """

    file = "regressor.json"

    def fit(
        self, X: Texts, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None, **others: object
    ) -> BertRegressor:
        """Fine-tune from the start checkpoint; an earlier fit is forgotten.

        Args:
            X: n texts or pairs.
            y: n finite numbers.
            sample_weight: n numbers from 0 on: what each text counts; a text of weight 0 is left out.
            **others: refused; the message says where each belongs.

        Raises:
            InputError: X, y or the weights have the wrong form or length; an empty text or a missing number, with its
                row.
            CheckpointError: the start checkpoint cannot be used.
        """
        self._refuse_arguments("fit", others)
        texts, pairs = texts_and_pairs(X)
        check_not_empty(texts, pairs)
        scores, weights = read_scores(y, len(texts), type(self).__name__), read_weights(sample_weight, len(texts))
        kept, texts, pairs = counted_rows(weights, texts, pairs)
        scores, weights = scores[kept], None if weights is None else weights[kept]
        mean = float(np.average(scores, weights=weights))
        scale = float(np.sqrt(np.average((scores - mean) ** 2, weights=weights))) or 1.0
        self.pairs_ = pairs is not None
        self._train(examples_of(texts, pairs, ((scores - mean) / scale).tolist()), weights)
        self._scale_back(mean, scale)
        return self

    def predict(self, X: Texts) -> npt.NDArray[np.float64]:
        """A number for each text, float64 ``(n,)``."""
        return self._logits(X)[:, 0].astype(np.float64)

    def score(self, X: Texts, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
        """The coefficient of determination R2, at best 1; refuses numbers as :meth:`fit` does."""
        predicted = self.predict(X)
        scores = read_scores(y, len(predicted), type(self).__name__)
        return float(r2_score(scores, predicted, sample_weight=sample_weight))

    def _scale_back(self, mean: float, scale: float) -> None:
        import torch

        from bertkit.training.finetuning.frozen_encoder import CLASSIFIERS, FrozenHead

        assert isinstance(self.model_, CLASSIFIERS)
        last = [module for module in FrozenHead(self.model_).classifier.modules() if hasattr(module, "weight")][-1]
        with torch.no_grad():
            cast(torch.Tensor, last.weight).mul_(scale)
            cast(torch.Tensor, last.bias).mul_(scale).add_(mean)

    def _task(self) -> TextTask:
        from bertkit.config.file_columns import Columns
        from bertkit.tasks.text.task import TextTask

        return TextTask("text", None, ("pearson",), "pearson", Columns(text=("text",)))
