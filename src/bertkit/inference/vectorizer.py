"""Vectors of texts as a step of scikit-learn: ``bertkit.BertVectorizer``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from bertkit.engine.backend import Precision
from bertkit.errors import counted
from bertkit.inference.estimator_parameters import NamedParameters
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.system.console import quiet
from bertkit.system.device import Device
from bertkit.system.model_sources import INCLUDED
from bertkit.tasks.reading.listed_texts import Texts, texts_and_pairs

if TYPE_CHECKING:
    from bertkit.inference.pipeline_results import Embedding

Floats = npt.NDArray[np.float32]


class BertVectorizer(NamedParameters, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts to vectors of a BERT, as a transformer of scikit-learn.

    It takes the place of ``TfidfVectorizer`` in a ``Pipeline``, ``FeatureUnion`` or ``ColumnTransformer`` (which gives
    it a column by name, ``("text", BertVectorizer(), "review")``), and stands before UMAP, KMeans or any classifier.
    Tools that ask for an object with ``encode`` take it as it is, BERTopic takes ``make_pipeline(BertVectorizer())``.

    It learns nothing from texts: ``fit`` loads the model, and ``transform`` works without it. A pickle holds the name
    of the model and not its weights, so a model in a folder must still be there when it is read.

    Args:
        model: a folder (of sentence-transformers, or any other checkpoint), a name on the Hub, or what ``bertkit
            export`` wrote; the default is the small model that comes with bertkit.
        pooling: "model": as the model says, otherwise the mean of the token vectors; or "mean", "cls", "max" alone.
        normalize: True scales vectors to length 1; None leaves that to the model.
        dimensions: keep only so many numbers of each vector, of models trained for it; None: as the model says.
        prompt: put before each text; None: the model's own, where it has one.
        max_length: word pieces after which a text is cut; None: as the model says. A warning says how many were.
        batch_size: has no effect: batches are formed by number of tokens, and no vector depends on its batch.
        device: see :func:`bertkit.pipeline`; None takes a GPU where there is one.
        precision: of the products; see :func:`bertkit.pipeline`.
        verbose: show progress.
    """

    entry = "vectorizer"
    #: What was loaded for which parameters.
    _loaded: tuple[tuple[str, str, str], SentenceEncoder] | None = None

    def __init__(
        self,
        model: str | Path = INCLUDED,
        *,
        pooling: Literal["model", "mean", "cls", "max"] = "model",
        normalize: bool | None = None,
        dimensions: int | None = None,
        prompt: str | None = None,
        max_length: int | None = None,
        batch_size: int | None = None,
        device: Device = None,
        precision: Precision = "auto",
        verbose: bool = False,
    ) -> None:
        self.model = model
        self.pooling = pooling
        self.normalize = normalize
        self.dimensions = dimensions
        self.prompt = prompt
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = device
        self.precision = precision
        self.verbose = verbose

    def fit(self, X: Texts, y: object = None) -> BertVectorizer:
        """Load the model.

        Args:
            X: texts, as :meth:`transform` takes them; only checked.
            y: ignored.

        Raises:
            InputError: X is no list of texts.
            CheckpointError: the model cannot be used.
        """
        texts_and_pairs(X)
        self._loaded = None
        self._encoder()
        return self

    def transform(self, X: Texts) -> Floats:
        """Vectors of n texts, float32 ``(n, D)``.

        Args:
            X: a list, array or column of strings (or of pairs of strings, which are read together); a frame of one
                column.

        Raises:
            InputError: X is no list of texts; an unknown pooling; more dimensions than there are.
            CheckpointError: the model cannot be used.
        """
        return self._vectors(X)

    def encode(
        self,
        sentences: str | Texts,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        normalize_embeddings: bool | None = None,
    ) -> Floats:
        """:meth:`transform` by the name that other tools call: ``(n, D)``, or ``(D,)`` for one text.

        ``batch_size`` and ``show_progress_bar`` have no effect: batches are formed by number of tokens.
        """
        vectors = self._vectors([sentences] if isinstance(sentences, str) else sentences)
        if normalize_embeddings and not self.normalize:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        found: Floats = vectors[0] if isinstance(sentences, str) else vectors
        return found

    @property
    def _n_features_out(self) -> int:
        """D, by which the columns are named ``bertvectorizer0``, ``bertvectorizer1`` ..."""
        encoder = self._encoder()
        own = encoder.width if self.pooling == "model" else encoder.pipeline.config.hidden_size
        return self.dimensions or own

    def _vectors(self, X: Texts) -> Floats:
        texts, pairs = texts_and_pairs(X)
        given = texts if pairs is None else [list(pair) for pair in zip(texts, pairs, strict=True)]
        with quiet(not self.verbose):
            asked = self._encoder().pipeline(
                given,
                pooling=self.pooling,
                normalize=self.normalize,
                dimensions=self.dimensions,
                prompt=self.prompt,
                max_length=self.max_length,
                truncation=True,
            )
        found = cast("list[Embedding]", asked)
        self._warn_of_truncated(sum(bool(vector.truncated) for vector in found), len(found))
        return np.stack(found)

    def _encoder(self) -> SentenceEncoder:
        asked = (str(self.model), str(self.device), self.precision)
        if self._loaded is None or self._loaded[0] != asked:
            self._loaded = (asked, SentenceEncoder(self.model, device=self.device, precision=self.precision))
        return self._loaded[1]

    def _warn_of_truncated(self, count: int, total: int) -> None:
        if count:
            limit = self.max_length or self._encoder().config.max_length or self._encoder().pipeline.max_length
            warnings.warn(
                f"{count:,} of {counted(total, 'text')} {'is' if count == 1 else 'are'} longer than {limit} word "
                "pieces and truncated; cut long texts into passages, or take a model that reads more",
                UserWarning,
                stacklevel=5,  # fit or transform is wrapped by scikit-learn
            )

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_loaded", None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False, True
        tags.no_validation, tags.requires_fit = True, False
        tags.transformer_tags.preserves_dtype = []
        return tags
