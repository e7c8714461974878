"""Zero-shot labels by vectors: the label whose description lies nearest to the text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from bertkit.errors import InputError
from bertkit.inference.feature_extraction import FeatureExtractionPipeline, Pooling
from bertkit.inference.pipeline_base import Pipeline
from bertkit.inference.pipeline_inputs import Inputs, Shaped
from bertkit.inference.pipeline_results import Embedding
from bertkit.inference.zero_shot.candidate_labels import (
    Answer,
    CandidateLabels,
    Labels,
    fill_template,
    read_labels,
    read_single_texts,
)
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats

#: What cosines are divided by before the softmax: one over the scale of 20 that sentence encoders are trained with.
TEMPERATURE = 0.05


class LabelVectorsPipeline(Pipeline):
    """Zero-shot classification by any encoder."""

    task: ClassVar[str] = "zero-shot-classification"
    #: No score says that a label applies by itself.
    threshold: ClassVar[float | None] = None

    def _prepare(self) -> None:
        self.vectors = FeatureExtractionPipeline(self.engine, self.tokenizer)

    def read_folder(self, folder: Path) -> None:
        super().read_folder(folder)
        self.vectors.read_folder(folder)

    def __call__(
        self,
        inputs: Inputs,
        candidate_labels: Labels | None = None,
        *,
        hypothesis_template: str = "{}",
        multi_label: bool = False,
        temperature: float = TEMPERATURE,
        pooling: Pooling = "model",
        truncation: bool = False,
        max_length: int | None = None,
        progress: bool | None = None,
    ) -> Shaped[Answer]:
        """Label texts; each is encoded once, however many labels there are.

        A text gives ``{"sequence": text, "labels": [...], "scores": [...]}``, the best label first, and with
        ``truncation=True`` ``truncated``.

        candidate_labels: a list of labels; a text with commas between them; or a dict of labels and their descriptions.
            Of several descriptions of a label the mean of their vectors counts.
        hypothesis_template: has ``{}`` where the description goes.
        multi_label: the scores are the cosines, from -1 to 1. They have no natural threshold: nothing here knows what a
            text without the label looks like. Otherwise the scores of a text sum to 1: the softmax of the cosines,
            divided by ``temperature``. A single label is scored as if this were True.
        """
        labels = read_labels(candidate_labels)
        if not temperature > 0:
            raise InputError(f"temperature must be above 0, got {temperature!r}")
        if pooling is None:
            raise InputError("zero-shot classification compares one vector a text: choose a pooling, such as 'model'")
        centres_LD = self._centres(labels, hypothesis_template, pooling)
        request = read_single_texts(inputs)
        waiting: deque[str] = deque()

        def noted() -> Iterator[str]:
            for text, _ in request.items:
                waiting.append(text)
                yield text

        def answer(vector: Embedding) -> Answer:
            scores = np.clip(centres_LD @ np.asarray(vector), -1.0, 1.0)
            if not multi_label and len(labels) > 1:
                scores = softmax(scores / np.float32(temperature))
            return labels.answer(waiting.popleft(), scores, bool(vector.truncated) if truncation else None)

        texts = noted() if request.shape == "lazy" else list(noted())
        found = self.vectors(
            texts, pooling=pooling, normalize=True, truncation=truncation, max_length=max_length, progress=progress
        )
        answers = map(answer, found)
        if request.shape == "lazy":
            return answers
        return next(answers) if request.shape == "one" else list(answers)

    def _centres(self, labels: CandidateLabels, template: str, pooling: Pooling) -> Floats:
        """A vector of length 1 of each label, ``(L, D)``."""
        filled = [fill_template(template, text) for words in labels.words for text in words]
        vectors = np.stack(list(self.vectors(filled, pooling=pooling, normalize=True, progress=False)))
        first = np.cumsum([0, *map(len, labels.words[:-1])])
        sums = np.add.reduceat(vectors, first, axis=0)
        return unit_vectors(sums)
