"""Vectors of texts, and how near two texts are. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

import numpy as np

from bertkit.engine.backend import Network, Pooling, Wanted
from bertkit.engine.inference_engine import InferenceEngine, Read, rows_of, tokens_of
from bertkit.errors import InputError, did_you_mean
from bertkit.inference.pipeline_base import Pipeline, TextRow
from bertkit.inference.pipeline_inputs import Inputs, Shaped, read_request
from bertkit.inference.pipeline_results import Embedding, Score
from bertkit.ragged import Floats
from bertkit.tokenization import PreTrainedTokenizer

POOLINGS = get_args(Pooling)
#: Below this length a vector is not scaled up: its direction is noise.
SHORTEST = 1e-12


def hidden_states(pooling: Pooling | None) -> tuple[Wanted, Read[Floats]]:
    """What is wanted of each text, and how it is read: a vector ``(D,)``, or the matrix ``(S, D)`` of its tokens."""
    if pooling is not None and pooling not in POOLINGS:
        raise InputError(
            f"pooling={pooling!r} is unknown{did_you_mean(str(pooling), POOLINGS)}; choose from {', '.join(POOLINGS)}, "
            "or None for one vector a token"
        )
    return Wanted(("last_hidden_state",), pooling), tokens_of if pooling is None else rows_of


class FeatureExtractionPipeline(Pipeline):
    """Text to vectors: ``pipeline("feature-extraction", model=...)``.

    Those of a BART are its decoder's, which reads the text too, as in its paper, in ``transformers`` and in
    ``sentence-transformers``; those of a T5 its encoder's, whose mean is what sentence-T5 and GTR use.
    """

    task: ClassVar[str] = "feature-extraction"

    def __init__(self, model: Network | InferenceEngine, tokenizer: PreTrainedTokenizer) -> None:
        super().__init__(model, tokenizer)
        self.engine = self.engine.encoder()

    def __call__(
        self,
        inputs: Inputs,
        *,
        pooling: Pooling | None = None,
        normalize: bool = False,
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Embedding]:
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

        def present(values: Floats, row: TextRow) -> Embedding:
            if normalize:
                values /= np.maximum(np.sqrt((values * values).sum(axis=-1, keepdims=True)), SHORTEST)
            return Embedding.of(values, num_tokens=row.num_tokens, truncated=row.truncated)

        wanted, read = hidden_states(pooling)
        request = read_request(inputs, tuple_is_pair=False)
        return self._answer_texts(request, wanted, read, present, truncation, max_length, progress)


class SentenceSimilarityPipeline(FeatureExtractionPipeline):
    """How near texts are: ``pipeline("sentence-similarity", model=...)``."""

    task: ClassVar[str] = "sentence-similarity"

    def __call__(  # type: ignore[override]  # a similarity has two sides
        self,
        inputs: Inputs | Mapping[str, str | Sequence[str]],
        sentences: str | Sequence[str] | None = None,
        *,
        pooling: Pooling = "mean",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Score]:
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
        keywords: dict[str, Any] = {
            "pooling": pooling,
            "normalize": True,
            "truncation": truncation,
            "max_length": max_length,
        }
        source, sentences = _read_source(inputs, sentences)
        if source is not None:
            listed = [sentences] if isinstance(sentences, str) else list(sentences)
            first, *others = super().__call__([source, *listed], progress=progress, **keywords)
            compared = [_cosine(first, other) for other in others]
            return compared[0] if isinstance(sentences, str) else compared
        request = read_request(inputs, tuple_is_pair=True, pair_required=True)
        halves = (half for pair in request.items for half in pair if half is not None)
        vectors = iter(super().__call__(halves, progress=progress, **keywords))
        scores = (_cosine(first, next(vectors)) for first in vectors)
        if request.shape == "lazy":
            return scores
        return next(scores) if request.shape == "one" else list(scores)


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


def _cosine(a: Embedding, b: Embedding) -> Score:
    # Rounding may push the product of two unit vectors a little past 1.
    return Score(float(np.clip(np.dot(a, b), -1.0, 1.0)), truncated=bool(a.truncated or b.truncated))
