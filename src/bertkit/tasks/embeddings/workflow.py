"""Embeddings: a sentence encoder that learns which texts are alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Check, Precision
from bertkit.engine.inference_engine import stop_nothing
from bertkit.errors import ConfigError
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.ragged import Floats
from bertkit.system.console import say
from bertkit.system.device import Device, find_device
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.embeddings.baseline import embedding_baseline
from bertkit.tasks.embeddings.batches import epoch_batches
from bertkit.tasks.embeddings.features import NONE, TextColumns, featurize_columns
from bertkit.tasks.embeddings.objectives import (
    MAX_NEGATIVE,
    check_objective,
    compares_rows,
    loss_of,
    objective_facts,
    own_settings,
)
from bertkit.tasks.embeddings.reading import read_embeddings
from bertkit.tasks.embeddings.report import check_negatives, embedding_report, repeats_note
from bertkit.tasks.embeddings.scoring import badness_of, column_cosines, resampled, scores_of
from bertkit.tasks.embeddings.settings import EmbeddingTaskSettings
from bertkit.tasks.embeddings.start_model import check_start, start_training, with_choices_of
from bertkit.tasks.embeddings.task import EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.hold_out import carve, plain_text
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.report import DataReport
from bertkit.tasks.workflow import Card, Predicted, SettingsT, Steps, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.text_inputs import read_text

if TYPE_CHECKING:
    from bertkit.model.text_comparison import ComparedTexts, TextComparison
    from bertkit.tasks.embeddings.vectors import VectorEngine

TextsPredicted = Predicted[EmbeddingExample, TextColumns, Floats]
#: Cosines that differ by less than this are those of vectors that say nothing.
ALIKE = 1e-4
#: What a model predicts, by what its rows said.
WHAT = {
    "pairs": "vectors of texts that are near where the texts belong together",
    "triplets": "vectors of texts that are near where the texts belong together",
    "scores": "vectors of texts whose cosine says how alike the texts are",
}


class EmbeddingWorkflow(Workflow[EmbeddingExample, TextColumns, Floats]):
    """Rows of :class:`bertkit.tasks.embeddings.task.EmbeddingTask`; outputs are the vectors of the texts ``(U, D)``."""

    task: EmbeddingTask
    model_class = "BertModel"
    shared_settings: ClassVar[tuple[str, ...]] = ("pooling",)
    default_max_length = 256
    fields = ("text", "text_pair")

    def own_settings(self, settings: ReadingSettings) -> Collection[str]:
        return own_settings(self.task, settings)

    def check_settings(self, settings: ReadingSettings) -> None:
        check_objective(self.task, settings)
        super().check_settings(settings)
        if getattr(settings, "freeze_encoder", False):
            raise ConfigError(
                f"freeze_encoder is not for task {self.task.name}, which trains the encoder. Leave it out"
            )

    def settings_for(self, start: Path, settings: SettingsT) -> SettingsT:
        return with_choices_of(start, self.task, settings)

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[EmbeddingExample]:
        return read_embeddings(self.task, path, split, on_error=on_error)

    def example_of(self, item: Mapping[str, object], where: str) -> EmbeddingExample:
        first, second = read_text(item, where, pair_required=True)
        return EmbeddingExample((first, second or ""))

    def hold_out(self, train: Examples[EmbeddingExample], share: float, seed: int) -> Halves[EmbeddingExample]:
        if self.task.compares == "scores":
            return super().hold_out(train, share, seed)
        return carve(train, share, seed, key=lambda row: (plain_text(row.text), None))

    def has_labels(self, examples: Sequence[EmbeddingExample]) -> bool:
        return self.task.compares != "scores" or examples[0].score is not None

    def texts_of(self, example: EmbeddingExample) -> Sequence[str]:
        return example.texts

    def train_fault(self, train: Examples[EmbeddingExample]) -> str:
        if self.task.compares == "scores":
            different, what = len({row.score for row in train}), "score"
        else:
            different = min(len({plain_text(row.texts[side]) for row in train}) for side in (0, 1))
            what = "text"
        if different > 1:
            return ""
        have = (
            "there is 1 training row" if len(train) == 1 else f"all {len(train):,} training rows have the same {what}"
        )
        return f"{have}; training needs at least two different {what}s"

    def report(
        self,
        splits: Mapping[str, Examples[EmbeddingExample]],
        encoded: Mapping[str, TextColumns],
        settings: ReadingSettings,
    ) -> DataReport:
        if loss_of(self.task, settings) == "triplet" and not settings.of(EmbeddingTaskSettings).mine_negatives:
            check_negatives(splits["train"], encoded["train"])
        return embedding_report(self.task, splits, encoded, settings)

    def encode(
        self,
        examples: Sequence[EmbeddingExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> TextColumns:
        own = settings.of(EmbeddingTaskSettings)
        return featurize_columns(
            examples,
            tokenizer,
            max_length=settings.max_length,
            prompts=(own.query_prompt or "", own.document_prompt or ""),
            scored=labelled and self.task.compares == "scores",
        )

    def prepare_training(
        self,
        rows: Examples[EmbeddingExample],
        train: TextColumns,
        start: Path,
        folder: Path,
        settings: ReadingSettings,
        device: str | None,
    ) -> TextColumns:
        own = settings.of(EmbeddingTaskSettings)
        if own.mine_negatives is None:
            return train
        from bertkit.tasks.embeddings.mining import mine

        model = start_training(start, self.task, settings, device).sentences
        most = own.max_negative or MAX_NEGATIVE
        found = mine(train, rows, model, folder, count=own.mine_negatives, most=most)
        if loss_of(self.task, settings) != "triplet" or found.has_negatives.all():
            return found
        say(f"training on the {int(found.has_negatives.sum()):,} rows that have a negative")
        return replace(found, columns=found.columns[found.has_negatives])

    def steps(self, train: TextColumns, size: int, seed: int, settings: ReadingSettings) -> Steps | None:
        loss = loss_of(self.task, settings)
        if not compares_rows(loss):
            return None
        # A text is repeated where it is another row's anchor or positive; as a negative it is a candidate like others.
        texts = train.same[train.columns[:, :2]] if loss == "in-batch" else np.arange(len(train))[:, None]
        first = epoch_batches(texts, size, seed=seed, epoch=0)
        if note := repeats_note(len(train) - sum(map(len, first)), len(train), len(first), size):
            say(note)
        return lambda epoch: epoch_batches(texts, size, seed=seed, epoch=epoch)

    def collate(self, encoded: TextColumns, rows: Sequence[int]) -> ComparedTexts:
        import torch

        from bertkit.batch import collate
        from bertkit.model.text_comparison import ComparedTexts

        columns = encoded.columns[list(rows)]
        anchors, first = np.unique(columns[:, 0], return_inverse=True)
        others, second = np.unique(columns[:, 1:], return_inverse=True)
        second = second.reshape(len(columns), -1) + len(anchors)
        if others[0] == NONE:  # it is the lowest number
            others, second = others[1:], np.where(columns[:, 1:] == NONE, NONE, second - 1)
        scores = None if encoded.scores is None else torch.from_numpy(encoded.scores[list(rows)])
        return ComparedTexts(
            collate(encoded.texts, np.concatenate([anchors, others])),
            torch.from_numpy(np.column_stack([first, second])),
            len(anchors),
            scores,
        )

    def network(self, shape: AnyConfig) -> type[TextComparison]:
        from bertkit.model.text_comparison import TextComparison

        return TextComparison

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> TextComparison:
        return start_training(start, self.task, settings, device)

    def start_shape(self, start: Path, settings: ReadingSettings) -> BertConfig:
        check_start(checkpoint_folder(start), settings)
        return BertConfig.from_json_file(config_path(start))

    def scoring_engine(self, model: TextComparison) -> VectorEngine:
        from bertkit.tasks.embeddings.vectors import VectorEngine

        return VectorEngine(model.sentences)

    def open_engine(self, path: Path, *, device: Device, precision: Precision, threads: int | None) -> VectorEngine:
        from bertkit.model.sentence_model import SentenceModel
        from bertkit.tasks.embeddings.vectors import VectorEngine

        if precision not in ("auto", "fp32") or threads is not None:
            raise ConfigError(f"task {self.task.name} runs in fp32; omit precision and threads")
        return VectorEngine(SentenceModel.from_pretrained(path, device=find_device(device)))

    def set_up(self, model: Any, train: TextColumns, settings: ReadingSettings) -> None:
        if train.scores is not None:
            extremes = float(train.scores.min()), float(train.scores.max())
            model.objective = replace(model.objective, scores=extremes)

    def loss_floor(self, train: TextColumns, settings: ReadingSettings) -> None:
        """None: of a good model the loss "cosent" may be above that of vectors which are all the same."""

    def outputs(self, engine: VectorEngine, encoded: TextColumns, *, check: Check = stop_nothing, label: str) -> Floats:
        return engine.shown_vectors(encoded.texts, check=check, label=label)

    def score(self, given: TextsPredicted) -> dict[str, float]:
        return scores_of(self.task, given.outputs, given.encoded)

    def prediction_rows(self, given: TextsPredicted) -> list[Row]:
        """The cosine of the two texts, and of the anchor with each negative."""
        cosines = column_cosines(given.outputs, given.encoded.columns).round(6).tolist()
        rows = zip(given.examples, cosines, given.encoded.truncated.tolist(), strict=True)
        return [_prediction_row(example, cosines, cut=cut) for example, cosines, cut in rows]

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        return {"predicted": "float64", "truncated": "bool"}

    def badness(self, given: TextsPredicted) -> npt.NDArray[np.float64] | None:
        return badness_of(self.task, given.outputs, given.encoded)

    def row_bounds(self) -> tuple[float, float] | None:
        return None if self.task.compares == "scores" else (0.0, 1.0)

    def main_metric_of(self, given: TextsPredicted, draws: Draws) -> Drawn | None:
        return resampled(self.task, given.outputs, given.encoded, draws)

    def diagnose(self, given: TextsPredicted) -> list[str]:
        cosines = column_cosines(given.outputs, given.encoded.columns)[:, 0]
        if len(cosines) < 2 or float(np.ptp(cosines)) > ALIKE:
            return []
        return [f"ALL VECTORS ARE THE SAME: the cosine of each of {len(cosines):,} rows is {cosines[0]:.4f}"]

    def baseline(self, train: Examples[EmbeddingExample], dev: Examples[EmbeddingExample]) -> Row:
        return embedding_baseline(train, dev, self.task)

    def card(self) -> Card:
        return Card(
            pipeline="sentence-similarity" if self.task.compares == "scores" else "feature-extraction",
            predicts=WHAT[self.task.compares],
            call='pipe(("first text", "second text"))'
            if self.task.compares == "scores"
            else 'pipe(["a text"], pooling="model")',
            limits="Texts are read up to {max_length} tokens, and cut there. The folder can also be loaded with "
            "sentence-transformers.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        objective = objective_facts(self.task, settings)
        own = settings.of(EmbeddingTaskSettings)
        prompts = {"query_prompt": own.query_prompt, "document_prompt": own.document_prompt}
        return {"what_it_predicts": "vectors", **objective, **{name: text for name, text in prompts.items() if text}}


def _prediction_row(example: EmbeddingExample, cosines: Sequence[float], *, cut: bool) -> Row:
    negatives = list(example.texts[2:])
    return {
        "row": example.row,
        "text": example.text,
        "text_pair": example.text_pair,
        **({} if example.score is None else {"gold": example.score}),
        "predicted": cosines[0],
        **(
            {"negatives": negatives, "cosines_of_negatives": list(cosines[1 : 1 + len(negatives)])} if negatives else {}
        ),
        "truncated": cut,
    }
