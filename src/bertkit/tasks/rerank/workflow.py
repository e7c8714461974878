"""Rerankers: one score for a query and a document, trained and judged by the order of each query's documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.reading_settings import RankLoss, ReadingSettings
from bertkit.engine.backend import Network
from bertkit.errors import ConfigError, DataError
from bertkit.metrics.intervals import Drawn, Draws, drawn_means
from bertkit.ragged import Floats, GroupSet
from bertkit.system.device import Device
from bertkit.system.model_sources import resolve
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.hold_out import carve, plain_text
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.report import DataReport
from bertkit.tasks.rerank.comparison import comparison_table, means, query_values, ranking_baseline
from bertkit.tasks.rerank.features import featurize_candidates, gains_of
from bertkit.tasks.rerank.reading import read_rerank
from bertkit.tasks.rerank.report import rerank_report
from bertkit.tasks.rerank.settings import RerankTaskSettings
from bertkit.tasks.rerank.task import HIGHEST_LABEL, RerankExample, RerankTask
from bertkit.tasks.workflow import Card, Head, Predicted, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.batch import Batch
    from bertkit.model.auto import AnyModel

#: The loss of no order is computed of so many queries at a time, in so many random orders.
FLOOR_QUERIES, FLOOR_DRAWS = 256, 10
RerankPredicted = Predicted[RerankExample, GroupSet, Floats]


class RerankWorkflow(Workflow[RerankExample, GroupSet, Floats]):
    """Rows are queries with all their documents, perhaps a hundred in a batch of 8; outputs are all scores ``(N,)``."""

    task: RerankTask
    model_class = "BertForSequenceClassification"
    fields = ("query", "documents")
    shared_settings = ("pooling",)
    default_max_length = 512

    def read(self, data: str | Path, split: Split, *, on_error: OnError = "raise") -> Examples[RerankExample]:
        """With negatives, unlike :meth:`read_file`, by whose documents a file is predicted as it is."""
        from bertkit.tasks.rerank.negatives import add_negatives

        return add_negatives(super().read(data, split, on_error=on_error), self.task.negatives, self.task.searcher)

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[RerankExample]:
        return read_rerank(self.task, path, split, on_error=on_error)

    def texts_of(self, example: RerankExample) -> Sequence[str]:
        return (example.query, *example.documents)

    def example_of(self, item: Mapping[str, object], where: str) -> RerankExample:
        return RerankExample.of(item, where)

    def hold_out(self, train: Examples[RerankExample], share: float, seed: int) -> Halves[RerankExample]:
        return carve(train, share, seed, key=lambda example: (plain_text(example.query), None))

    def train_fault(self, train: Examples[RerankExample]) -> str:
        if len({gain for example in train for gain in example.gains or ()}) > 1:
            return ""
        return (
            f"all documents of the {len(train):,} training queries have the same label; training needs relevant and "
            "other ones. Documents that are not relevant can be searched for in the file: negatives=N (--negatives N)"
        )

    def report(
        self, splits: Mapping[str, Examples[RerankExample]], encoded: Mapping[str, GroupSet], settings: ReadingSettings
    ) -> DataReport:
        lengths = {name: features.sequences.num_tokens_before for name, features in encoded.items()}
        return rerank_report(self.task, splits, lengths, settings)

    def encode(
        self,
        examples: Sequence[RerankExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> GroupSet:
        gains = gains_of(examples) if labelled else None
        if gains is not None and len(gains):
            _check_labels(float(gains.max()), settings.of(RerankTaskSettings).rank_loss)
        return featurize_candidates(examples, tokenizer, settings.max_length, gains=gains)

    def collate(self, encoded: GroupSet, rows: Sequence[int]) -> Batch:
        import torch

        from bertkit.batch import collate
        from bertkit.ragged import boundaries_of

        sequences = encoded.sequences
        batch = collate(sequences, encoded.sequences_of(rows), {"labels": sequences.labels})
        return batch.with_target("groups", torch.from_numpy(boundaries_of(encoded.sizes[list(rows)])))

    def head(self) -> Head:
        return {"id2label": {0: "relevance"}}

    def read_shape(self, path: Path) -> BertConfig:
        """Of an encoder; CheckpointError for BART and the like, which no other software reranks with."""
        return BertConfig.from_json_file(config_path(path))

    def network(self, shape: AnyConfig) -> Any:
        from bertkit.model.reranker import Reranker

        return Reranker

    def new_model(self, start: str | Path, *, seed: int, device: Device, settings: ReadingSettings) -> Any:
        return super().new_model(start, seed=seed, device=device, settings=self._pooled(start, settings))

    def start_shape(self, start: Path, settings: ReadingSettings) -> AnyConfig:
        return super().start_shape(start, self._pooled(start, settings))

    def _pooled(self, start: str | Path, settings: ReadingSettings) -> ReadingSettings:
        """The settings with the pooling of the checkpoint's config: other software knows no other for a classifier."""
        own = settings.pooling or self.read_shape(resolve(start)).pooling
        return settings.model_copy(update={"pooling": own})

    def _needs_new_head(self, file: AnyConfig, settings: ReadingSettings) -> bool:
        """A classifier of one output is a reranker already, whatever its output is called."""
        assert isinstance(file, BertConfig), "see read_shape"
        scores = file.num_labels == 1 and any(n.endswith("ForSequenceClassification") for n in file.architectures or ())
        return not scores or settings.pooling not in (None, file.pooling)

    def check_model(self, model: Network, name: str) -> None:
        if model.config.num_labels != 1:
            raise ConfigError(f"{name} has {model.config.num_labels} outputs; a reranker has one, the relevance")

    def set_up(self, model: AnyModel, train: GroupSet, settings: ReadingSettings) -> None:
        from bertkit.model.reranker import Reranker

        assert isinstance(model, Reranker)
        model.rank_loss = settings.of(RerankTaskSettings).rank_loss

    def loss_floor(self, train: GroupSet, settings: ReadingSettings) -> float:
        """The loss of a model that tells no document from another, above which a run is dead."""
        import torch

        from bertkit.model.reranker import RANK_LOSSES

        kind, gains = settings.of(RerankTaskSettings).rank_loss, torch.from_numpy(np.asarray(train.sequences.labels))
        share = float(gains.mean())
        level = np.log(share / (1 - share)) if kind == "pointwise" else 0.0
        generator = torch.Generator().manual_seed(0)
        total = count = 0.0
        for first in [*range(0, len(train), FLOOR_QUERIES)] * FLOOR_DRAWS:
            groups = train.groups[first : first + FLOOR_QUERIES + 1]
            own = gains[groups[0] : groups[-1]]
            # All scores the same, in a random order, which the lambda loss looks at; in the data's it may be right.
            scores = level + 1e-6 * torch.rand(own.shape, generator=generator)
            term = RANK_LOSSES[kind](scores, own, torch.from_numpy(groups - groups[0]))
            total, count = total + float(term.total), count + float(term.num_targets)
        return total / count

    def arrange(self, encoded: GroupSet, values: Floats, config: AnyConfig) -> Floats:
        return values[:, 0]

    def score(self, given: RerankPredicted) -> dict[str, float]:
        found = means(query_values(self.task, given.examples, given.outputs))
        return {**found, "loss": float(_losses(given).mean())}

    def prediction_rows(self, given: RerankPredicted) -> list[Row]:
        rows: list[Row] = []
        bounds, cut = given.encoded.groups, given.encoded.truncated.tolist()
        for number, example in enumerate(given.examples):
            scores = given.outputs[bounds[number] : bounds[number + 1]]
            rows.append(
                {
                    "row": example.row,
                    "query": example.query,
                    "documents": list(example.documents),
                    **({} if example.gains is None else {"gold": list(example.gains)}),
                    "predicted": np.argsort(-scores, kind="stable").tolist(),
                    "logits": scores.tolist(),
                    "truncated": cut[number],
                }
            )
        return rows

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        return {"predicted": ["int64"], "logits": ["float64"], "truncated": "bool"}

    def badness(self, given: RerankPredicted) -> npt.NDArray[np.float64] | None:
        return _losses(given) if self.has_labels(given.examples) else None

    def row_bounds(self) -> tuple[float, float] | None:
        return 0.0, 1.0

    def main_metric_of(self, given: RerankPredicted, draws: Draws) -> Drawn | None:
        only = replace(self.task, metrics=(self.task.main_metric,))
        return drawn_means(query_values(only, given.examples, given.outputs)[self.task.main_metric], draws)

    def diagnose(self, given: RerankPredicted) -> list[str]:
        if len(given.outputs) > 1 and bool(np.all(given.outputs == given.outputs[0])):
            return [f"all {len(given.outputs):,} documents get the same score: the model has learned nothing"]
        return []

    def table(self, given: RerankPredicted) -> str:
        return comparison_table(self.task, given.examples, given.outputs)

    def baseline(self, train: Examples[RerankExample], dev: Examples[RerankExample]) -> Row:
        return ranking_baseline(self.task, dev)

    def card(self) -> Card:
        return Card(
            pipeline="text-ranking",
            predicts="how relevant a document is to a query, the higher the more",
            call='pipe("a query", ["a document", "another one"])',
            limits="A query and a document are cut together after {max_length} word pieces. `CrossEncoder(FOLDER, "
            "max_length={max_length})` of sentence-transformers gives the same scores.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        return {
            "what_it_predicts": "relevance",
            "text_pairs": True,
            "rank_loss": settings.of(RerankTaskSettings).rank_loss,
            "negatives": self.task.negatives,
            "searcher": self.task.searcher if self.task.negatives else None,
        }


def _check_labels(highest: float, loss: RankLoss) -> None:
    if highest > (most := HIGHEST_LABEL[loss]):
        raise DataError(
            f"a label is {highest:g}, but the {loss} loss takes labels from 0 to {most:g}: divide them, or choose "
            "rank_loss='listwise' (--rank-loss listwise), which takes any"
        )


def _losses(given: RerankPredicted) -> npt.NDArray[np.float64]:
    """Listwise loss of each query, whatever the model was trained by; 0 for one without relevant documents."""
    bounds, found = given.encoded.groups, np.zeros(len(given.examples))
    for number, example in enumerate(given.examples):
        gains = np.asarray(example.gains, np.float64)
        scores = given.outputs[bounds[number] : bounds[number + 1]].astype(np.float64)
        scores -= scores.max()
        if gains.any():
            found[number] = (gains / gains.sum()) @ (np.log(np.exp(scores).sum()) - scores)
    return found
