"""Texts to vectors that can be compared: ``bertkit.SentenceEncoder``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.sentence_folder import SentenceParts, write_sentence_parts
from bertkit.config.sentence_config import QUERY, SentenceConfig
from bertkit.engine.backend import Network, Precision
from bertkit.errors import InputError
from bertkit.inference.feature_extraction import FeatureExtractionPipeline
from bertkit.inference.pipeline_inputs import items_of
from bertkit.inference.pipelines import pipeline
from bertkit.metrics.vector_precision import VectorLoss, VectorPrecision, precision_loss, quantized
from bertkit.metrics.vector_similarity import paired_similarities, similarities
from bertkit.ragged import Floats
from bertkit.system.paths import user_path
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class EncodeOptions(TypedDict, total=False):
    """Keywords of :meth:`SentenceEncoder.encode`.

    prompt: put before each text. prompt_name: the same, by a name of ``config.prompts``.
    normalize: True scales vectors to length 1; False leaves out a normalization at the end of the model's modules; None
        leaves that to the model.
    dimensions: keep only so many numbers of each vector, of models trained for it; None: as the model says, or all.
        They are cut after the model's own normalization and before the one that is asked for, as in
        sentence-transformers.
    precision: ``"float32"``, ``"int8"``, ``"uint8"``, ``"binary"`` or ``"ubinary"``; see
        :func:`bertkit.metrics.vector_precision.quantized`.
    calibration: for int8 and uint8, float32 vectors ``(N, D)`` of some hundred typical texts, made with the same
        options, or the least and largest of each number ``(2, D)``.
    truncation: True reads the beginning of texts that are too long; False refuses them.
    max_length: most tokens of a text, special tokens and prompt included; None: as the model says.
    progress: see :class:`bertkit.inference.pipeline_base.Pipeline`.
    """

    prompt: str | None
    prompt_name: str | None
    normalize: bool | None
    dimensions: int | None
    precision: VectorPrecision
    calibration: Floats | None
    truncation: bool
    max_length: int | None
    progress: bool | None


class SentenceEncoder:
    """A model that makes vectors of texts, with which texts are compared, searched and grouped.

    Args:
        model: a folder (of sentence-transformers, or any other checkpoint, of which the mean of the token vectors is
            taken), a name on the Hub, what ``bertkit export`` wrote, or a model object.
        tokenizer: None: the one beside the model; needed for a model object.
        sentence: how vectors of texts are made, in place of what the folder says; steps with weights come with them, as
            from ``SentenceModel.head.parts()``.
        device: see :func:`bertkit.pipeline`.
        revision: of a name on the Hub.
        dtype: see :func:`bertkit.pipeline`.
        precision: of the model's products; see :func:`bertkit.pipeline`.
        threads: of the processor that one call may use; None: as many as there are.

    Several threads may encode at once. Vectors are those of sentence-transformers for the same folder, to 1e-5.

    Raises:
        CheckpointError: no model there, or one with modules that bertkit does not have.
        InputError: a model object without its tokenizer, a step without weights.
    """

    def __init__(
        self,
        model: str | Path | Network,
        tokenizer: str | Path | PreTrainedTokenizer | None = None,
        *,
        sentence: SentenceParts | SentenceConfig | None = None,
        device: Any = None,
        revision: str | None = None,
        dtype: Any = None,
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> None:
        self.pipeline: FeatureExtractionPipeline = pipeline(
            "feature-extraction",
            model,
            tokenizer,
            device,
            revision=revision,
            dtype=dtype,
            precision=precision,
            threads=threads,
        )
        if sentence is not None:
            self.pipeline.sentence = _with_weights(sentence)
        #: Numbers of a vector, where a call says nothing else.
        self.width = self.config.dimensions or self.config.widths(self.pipeline.config.hidden_size)[-1]

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Any) -> Self:
        """``SentenceEncoder(name_or_path, **options)``."""
        return cls(name_or_path, **options)

    @property
    def config(self) -> SentenceConfig:
        """How vectors of texts are made: pooling, steps, prompts, similarity."""
        return self.pipeline.sentence.config

    @property
    def tokenizer(self) -> PreTrainedTokenizer:
        """That of the model."""
        return self.pipeline.tokenizer

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pipeline!r}, {self.config!r})"

    def encode(self, texts: str | Iterable[str], **options: Unpack[EncodeOptions]) -> npt.NDArray[Any]:
        """Vectors of texts, in their order.

        Args:
            texts: a collection or an iterable of texts, or one text.
            **options: see :class:`EncodeOptions`.

        Returns:
            ``(texts, D)``, or ``(D,)`` for one text: float32, or int8 or uint8 as ``precision`` says, of which binary
            forms have a number for eight dimensions.

        Raises:
            InputError: a text that is too long, or none; an unknown option, prompt or precision; int8 without
                ``calibration``; more dimensions than there are.
            CheckpointError: the model computes values that are not finite.
        """
        if unknown := options.keys() - EncodeOptions.__annotations__.keys():
            raise InputError(
                f"encode has no option {', '.join(sorted(unknown))}; it takes "
                f"{', '.join(EncodeOptions.__annotations__)}"
            )
        call: dict[str, Any] = dict(options)
        form, calibration = call.pop("precision", "float32"), call.pop("calibration", None)
        asked = [texts] if isinstance(texts, str) else list(items_of(texts, "text"))
        width = call.get("dimensions") or self.width
        vectors = self.pipeline.matrix(asked, **call) if asked else np.zeros((0, width), np.float32)
        stored = quantized(vectors, form, calibration)
        return stored[0] if isinstance(texts, str) else stored

    def encode_query(self, texts: str | Iterable[str], **options: Unpack[EncodeOptions]) -> npt.NDArray[Any]:
        """:meth:`encode` of what is searched for: with the prompt ``"query"``, unless the options have another."""
        return self.encode(texts, **_with_prompt(options, QUERY))

    def encode_document(self, texts: str | Iterable[str], **options: Unpack[EncodeOptions]) -> npt.NDArray[Any]:
        """:meth:`encode` of what is searched, with the prompt for that, unless the options have another.

        It is the first that the model has of ``"document"``, ``"passage"`` and ``"corpus"``. Deviates:
        sentence-transformers, up to 6.2, gives every model an empty ``"document"``, and so takes none where a folder
        has only ``"passage"``.
        """
        return self.encode(texts, **_with_prompt(options, self.config.document_prompt))

    def similarity(self, a_AD: npt.ArrayLike, b_BD: npt.ArrayLike) -> Floats:
        """How near each vector is to each of others, as the model says (``config.similarity``): ``(A, B)``."""
        return similarities(a_AD, b_BD, self.config.similarity)

    def similarity_pairwise(self, a_BD: npt.ArrayLike, b_BD: npt.ArrayLike) -> Floats:
        """How near each vector is to the one at the same place: ``(B,)``."""
        return paired_similarities(a_BD, b_BD, self.config.similarity)

    def precision_loss(
        self, vectors_ND: Floats, precision: VectorPrecision, calibration: Floats | None = None, *, nearest: int = 10
    ) -> VectorLoss:
        """What fewer bits cost on these float32 vectors; see :mod:`bertkit.metrics.vector_precision`."""
        measure = self.config.similarity
        return precision_loss(vectors_ND, precision, calibration, nearest=nearest, measure=measure)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write a folder that bertkit and sentence-transformers load.

        Raises:
            InputError: an exported model, which has no model object.
            CheckpointError: ``folder`` is a file.
            ResourceError: the disk is full or cannot be written.
        """
        self.pipeline.model.save_pretrained(folder)
        write_sentence_parts(user_path(folder), self.pipeline.sentence, self.pipeline.config.hidden_size)
        self.tokenizer.save_pretrained(folder)


def _with_weights(sentence: SentenceParts | SentenceConfig) -> SentenceParts:
    if isinstance(sentence, SentenceParts):
        return sentence
    if needing := [type(step).__name__ for step in sentence.steps if step.tensors]:
        raise InputError(
            f"the config has {', '.join(needing)}, whose weights it does not hold: pass the SentenceParts of a model"
        )
    return SentenceParts(sentence, tuple({} for _ in sentence.steps))


def _with_prompt(options: EncodeOptions, name: str) -> EncodeOptions:
    if options.get("prompt") is not None or options.get("prompt_name") is not None:
        return options
    return {**options, "prompt_name": name}
