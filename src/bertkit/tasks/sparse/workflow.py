"""Sparse vectors: a masked LM that learns to be found by few words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.sentence_folder import saved_pooling
from bertkit.checkpoints.sparse_folder import SparseSettings, read_sparse_settings
from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Check, Precision
from bertkit.engine.inference_engine import InferenceEngine, stop_nothing
from bertkit.errors import ConfigError
from bertkit.ragged import Ints
from bertkit.system.device import Device, find_device
from bertkit.system.model_sources import resolve
from bertkit.tasks.embeddings.features import TextColumns
from bertkit.tasks.embeddings.workflow import EmbeddingWorkflow
from bertkit.tasks.examples import Row
from bertkit.tasks.sparse.settings import SparseTaskSettings
from bertkit.tasks.sparse.task import WORDS, SparseTask
from bertkit.tasks.sparse.word_vectors import SparseEngine
from bertkit.tasks.workflow import Card, SettingsT, Workflow
from bertkit.tokenization.auto_tokenizer import AutoTokenizer

#: Strengths of the penalty for queries and documents where nothing is said: those of sentence-transformers' examples.
QUERY_FLOPS, DOCUMENT_FLOPS = 5e-5, 3e-5


class SparseWorkflow(EmbeddingWorkflow):
    """Files, batches and scores are those of dense vectors; outputs are :class:`SparseVectors` of the texts."""

    task: SparseTask
    model_class = "BertForMaskedLM"
    shared_settings = ()

    def own_settings(self, settings: ReadingSettings) -> Collection[str]:
        return Workflow.own_settings(self, settings)  # and none of those of dense vectors

    def check_settings(self, settings: ReadingSettings) -> None:
        super().check_settings(settings)
        if getattr(settings, "lora", None):
            raise ConfigError(f"lora is not for task {self.task.name}, which trains the whole model. Leave it out")

    def settings_for(self, start: Path, settings: SettingsT) -> SettingsT:
        if settings.max_length is not None:
            return settings
        return settings.model_copy(update={"max_length": _start_settings(start).max_length})

    def start_shape(self, start: Path, settings: ReadingSettings) -> BertConfig:
        shape: AnyConfig = self.read_shape(start)
        if not isinstance(shape, BertConfig):
            raise ConfigError(
                f"{start} is a {shape.model_type}; sparse vectors are made by the masked LM of an encoder"
            )
        return shape

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> Any:
        from bertkit.model.models import BertForMaskedLM
        from bertkit.model.sparse_comparison import SparseComparison

        path = resolve(start)
        reading = replace(_start_settings(path), max_length=settings.max_length)
        own = settings.of(SparseTaskSettings)
        return SparseComparison(
            BertForMaskedLM.from_pretrained(path, device=None if device is None else find_device(device)),
            reading,
            query_flops=QUERY_FLOPS if own.query_flops is None else own.query_flops,
            document_flops=DOCUMENT_FLOPS if own.document_flops is None else own.document_flops,
            num_words=_num_words(path),
            max_tokens=settings.max_tokens,
        )

    def scoring_engine(self, model: Any) -> Any:
        return SparseEngine(InferenceEngine.for_scoring(model.network), model.settings, model.num_words)

    def open_engine(self, path: Path, *, device: Device, precision: Precision, threads: int | None) -> Any:
        engine = Workflow.open_engine(self, path, device=device, precision=precision, threads=threads)
        return SparseEngine(engine, read_sparse_settings(checkpoint_folder(path)), _num_words(path))

    def outputs(self, engine: Any, encoded: TextColumns, *, check: Check = stop_nothing, label: str) -> Any:
        return engine.vectors(encoded.texts, check=check, label=label)

    def score(self, given: Any) -> dict[str, float]:
        """Those of pairs, and how many words queries and documents have in the mean."""
        anchors, documents = np.unique(given.encoded.columns[:, 0]), given.encoded.documents
        words = dict(zip(WORDS, (given.outputs.words(texts) for texts in (anchors, documents)), strict=True))
        return {**super().score(given), **words}

    def prediction_rows(self, given: Any) -> list[Row]:
        """The product of the two texts, and of the anchor with each negative."""
        names = {"cosines_of_negatives": "products_of_negatives"}
        return [{names.get(key, key): value for key, value in row.items()} for row in super().prediction_rows(given)]

    def badness(self, given: Any) -> npt.NDArray[np.float64] | None:
        """None: products of long texts are larger."""
        return None

    def diagnose(self, given: Any) -> list[str]:
        texts: Ints = np.arange(given.outputs.matrix.shape[0])
        return ["NO WORDS: no text has a word that weighs more than 0"] if given.outputs.words(texts) == 0 else []

    def card(self) -> Card:
        return Card(
            pipeline="sparse-encoding",
            predicts="weights of words by which a text is found",
            call='pipe(["a text"], truncation=True)',
            limits="Texts are read up to {max_length} tokens, and cut there. The folder can also be loaded as a "
            "SparseEncoder of sentence-transformers.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        own = settings.of(SparseTaskSettings)
        given = (own.query_flops, own.document_flops)
        strengths = [
            usual if own is None else own for own, usual in zip(given, (QUERY_FLOPS, DOCUMENT_FLOPS), strict=True)
        ]
        return {
            "what_it_predicts": "weights of words",
            "loss": "in-batch, dot product",
            "query_flops": strengths[0],
            "document_flops": strengths[1],
            "ramp": "quadratic over a third of the steps",
        }


def _num_words(path: Path) -> int:
    """Tokens of a checkpoint's tokenizer: its table of words may have more rows."""
    return len(AutoTokenizer.from_pretrained(checkpoint_folder(path)))


def _start_settings(start: Path) -> SparseSettings:
    """The settings of sparse vectors saved with the start model; a sentence model with dense vectors has none."""
    folder = checkpoint_folder(start)
    return SparseSettings() if saved_pooling(folder) else read_sparse_settings(folder)
