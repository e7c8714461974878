"""Vectors of texts, and how near two texts are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertkit.batch import Batch
from bertkit.errors import InputError, did_you_mean
from bertkit.inference.pipeline_base import Pipeline, TextRow, to_numpy
from bertkit.inference.pipeline_inputs import Request, Text, read_request
from bertkit.inference.pipeline_results import Embedding, Score
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.models import BertModel
from bertkit.model.padded import PackedModel

Pooling = Literal["cls", "mean", "max"]


def cls_vectors(encoder: BertModel, batch: Batch) -> Tensor:
    """The last hidden vector of each [CLS] token, ``(B, D)``; without the pooler's matrix and tanh.

    The top layer is computed at those tokens only.
    """
    x_TD = encoder.embeddings(batch)
    return encoder.encoder(x_TD, batch.layout, ChosenRows.first(batch.layout, x_TD.device))[0]  # type: ignore[no-any-return]


def mean_vectors(encoder: BertModel, batch: Batch) -> Tensor:
    """Mean over all tokens of each text, [CLS] and [SEP] included, ``(B, D)`` (Reimers & Gurevych 2019, section 3)."""
    rows = token_vectors(encoder, batch).split(batch.layout.lengths)
    return torch.stack([rows_SD.mean(dim=0) for rows_SD in rows])


def max_vectors(encoder: BertModel, batch: Batch) -> Tensor:
    """Largest value of each dimension over all tokens of each text, ``(B, D)``."""
    rows = token_vectors(encoder, batch).split(batch.layout.lengths)
    return torch.stack([rows_SD.amax(dim=0) for rows_SD in rows])


def token_vectors(encoder: BertModel, batch: Batch) -> Tensor:
    """The last hidden vector of each token, ``(T, D)``."""
    hidden_TD = encoder.forward_packed(batch).last_hidden_state
    assert hidden_TD is not None
    return hidden_TD


POOLINGS: dict[str | None, Callable[[BertModel, Batch], Tensor]] = {
    "cls": cls_vectors,
    "mean": mean_vectors,
    "max": max_vectors,
    None: token_vectors,
}


def embed(pooling: str | None, normalize: bool) -> Callable[[BertModel, Batch], list[NDArray[np.float32]]]:
    """The computation of one batch: a vector ``(D,)`` for each text, or its matrix ``(S, D)`` when pooling is None."""
    if pooling not in POOLINGS:
        names = [name for name in POOLINGS if name is not None]
        raise InputError(
            f"pooling={pooling!r} is unknown{did_you_mean(str(pooling), names)}; choose from {', '.join(names)}, or "
            "None for one vector a token"
        )
    pool = POOLINGS[pooling]

    def compute(encoder: BertModel, batch: Batch) -> list[NDArray[np.float32]]:
        vectors = pool(encoder, batch)
        array = to_numpy(F.normalize(vectors.float(), dim=-1) if normalize else vectors, "hidden states")
        # Copies, so that keeping one text's result does not keep its whole batch in memory.
        if pooling is None:
            return [array[start:end].copy() for start, end in batch.layout.spans()]
        return [row.copy() for row in array]

    return compute


def encoder_of(model: PackedModel) -> BertModel:
    """The encoder itself, also of a model with a head."""
    encoder = model if isinstance(model, BertModel) else getattr(model, "bert", None)
    if not isinstance(encoder, BertModel):
        raise InputError(f"{type(model).__name__} has no encoder to take features from; pass a BertModel")
    return encoder


class FeatureExtractionPipeline(Pipeline):
    """Text to vectors: ``pipeline("feature-extraction", model=...)``."""

    task: ClassVar[str] = "feature-extraction"

    def __init__(self, model: PackedModel, tokenizer: Any) -> None:
        super().__init__(encoder_of(model), tokenizer)

    def __call__(
        self,
        inputs: Any,
        *,
        pooling: Pooling | None = None,
        normalize: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Encode texts.

        Args:
            inputs: a text, a collection of texts, or an iterable of texts; a pair may take the place of a text.
            pooling: ``"cls"``, ``"mean"`` or ``"max"``: one vector per text; None: one vector per token, as in
                ``transformers``.
            normalize: scale each vector to length 1, so that a dot product is the cosine.
            truncation: see :class:`~bertkit.inference.pipeline_base.Pipeline`.
            max_length: see :class:`~bertkit.inference.pipeline_base.Pipeline`.
            progress: see :class:`~bertkit.inference.pipeline_base.Pipeline`.

        Returns:
            One :class:`~bertkit.inference.pipeline_results.Embedding` per text: a float32 array ``(D,)``, or ``(S, D)``
            without pooling, with the attributes ``truncated`` and ``num_tokens``.

        Raises:
            InputError: an input that is no text, one that is too long, or an unknown pooling.
            CheckpointError: the model computes values that are not finite.

        Deviates: ``transformers`` returns nested lists with an axis of length 1 in front.
        """
        return self._answer_texts(
            read_request(inputs, tuple_is_pair=False),
            embed(pooling, normalize),
            _to_embedding,
            truncation=truncation,
            max_length=max_length,
            progress=progress,
        )


class SentenceSimilarityPipeline(FeatureExtractionPipeline):
    """How near texts are: ``pipeline("sentence-similarity", model=...)``."""

    task: ClassVar[str] = "sentence-similarity"

    def __call__(  # type: ignore[override]  # a similarity has two sides
        self,
        inputs: Any,
        sentences: Sequence[str] | None = None,
        *,
        pooling: Pooling = "mean",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Any:
        """Cosine of the two texts' vectors.

        Args:
            inputs: the source text, with ``sentences``; or ``{"source_sentence": ..., "sentences": [...]}``; or one
                pair ``("first", "second")``; or a collection or iterable of pairs.
            sentences: what the source is compared with: a text or a list of texts.
            pooling: ``"mean"``, ``"cls"`` or ``"max"``.
            truncation: see :class:`~bertkit.inference.pipeline_base.Pipeline`.
            max_length: see :class:`~bertkit.inference.pipeline_base.Pipeline`.
            progress: see :class:`~bertkit.inference.pipeline_base.Pipeline`.

        Returns:
            A :class:`~bertkit.inference.pipeline_results.Score` (a float with ``truncated``) for one pair, a list of
            them for a source and its sentences or a collection of pairs, a lazy iterator for an iterator of pairs.

        Raises:
            InputError: as feature extraction; also neither pairs nor a source with its sentences.
        """
        if pooling is None:
            raise InputError("sentence-similarity compares one vector per text: choose pooling 'cls', 'mean' or 'max'")
        keywords: dict[str, Any] = {"truncation": truncation, "max_length": max_length, "progress": progress}
        source, sentences = _read_source(inputs, sentences)
        if source is not None:
            assert sentences is not None
            return self._compare_with_source(source, sentences, pooling, keywords)
        request = read_request(inputs, tuple_is_pair=True, pair_required=True)
        return self._compare_pairs(request, pooling, keywords)

    def _compare_with_source(
        self, source: str, sentences: str | Sequence[str], pooling: Pooling, keywords: dict[str, Any]
    ) -> Any:
        listed = [sentences] if isinstance(sentences, str) else list(sentences)
        first, *others = super().__call__([source, *listed], pooling=pooling, normalize=True, **keywords)
        scores = [_cosine(first, other) for other in others]
        return scores[0] if isinstance(sentences, str) else scores

    def _compare_pairs(self, request: Request[Text], pooling: Pooling, keywords: dict[str, Any]) -> Any:
        halves = chain.from_iterable(_halves(pair) for pair in request.items)
        vectors = super().__call__(halves, pooling=pooling, normalize=True, **keywords)
        scores = _scores(vectors)
        if request.shape == "lazy":
            return scores
        listed = list(scores)
        return listed[0] if request.shape == "one" else listed


def _read_source(inputs: Any, sentences: Any) -> tuple[str | None, Any]:
    if isinstance(inputs, Mapping) and "source_sentence" in inputs:
        if sentences is not None or set(inputs) != {"source_sentence", "sentences"}:
            raise InputError("expected {'source_sentence': text, 'sentences': [texts]} and nothing else")
        inputs, sentences = inputs["source_sentence"], inputs["sentences"]
    elif sentences is None:
        return None, None
    if not isinstance(inputs, str):
        raise InputError(f"the source must be one text when sentences are given, got {type(inputs).__name__}")
    return inputs, sentences


def _halves(pair: Text) -> tuple[str, str]:
    first, second = pair
    assert second is not None
    return first, second


def _scores(vectors: Iterator[Embedding]) -> Iterator[Score]:
    for first in vectors:
        yield _cosine(first, next(vectors))


def _cosine(a: Embedding, b: Embedding) -> Score:
    # Rounding may push the product of two unit vectors a little past 1.
    return Score(float(np.clip(np.dot(a, b), -1.0, 1.0)), truncated=bool(a.truncated or b.truncated))


def _to_embedding(values: NDArray[np.float32], row: TextRow) -> Embedding:
    return Embedding.of(values, num_tokens=row.num_tokens, truncated=row.truncated)
