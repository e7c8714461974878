"""Multiple choice: a score for each choice beside its context, softmax over the choices of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from bertkit.config.any_config import AnyConfig
from bertkit.config.file_columns import Columns
from bertkit.config.reading_settings import ReadingSettings
from bertkit.metrics.calibration import log_loss, log_losses
from bertkit.metrics.intervals import Drawn, Draws
from bertkit.metrics.probabilities import softmax
from bertkit.metrics.scores import METRICS
from bertkit.ragged import Floats, GroupSet
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.choices.baseline import choice_baseline
from bertkit.tasks.choices.features import featurize_choices
from bertkit.tasks.choices.reading import read_choices
from bertkit.tasks.choices.task import ChoiceExample, ChoiceTask
from bertkit.tasks.examples import Examples, Halves, Row, Split
from bertkit.tasks.hold_out import carve
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.report import DataReport
from bertkit.tasks.row_scores import RowScores
from bertkit.tasks.text.report import data_report
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import Card, Predicted, Workflow
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.batch import Batch

ChoicesPredicted = Predicted[ChoiceExample, GroupSet, Floats]


class ChoiceWorkflow(Workflow[ChoiceExample, GroupSet, Floats]):
    """Rows are questions with all their choices, as in the original; outputs are the logits ``(R, choices)``."""

    task: ChoiceTask
    model_class = "BertForMultipleChoice"
    fields = ("context", "choices", "start")

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[ChoiceExample]:
        return read_choices(path, split, on_error=on_error)

    def texts_of(self, example: ChoiceExample) -> Sequence[str]:
        return (example.context,)  # not the right choice, which would tell the label, nor wrong ones, which mislead

    def example_of(self, item: Mapping[str, object], where: str) -> ChoiceExample:
        return ChoiceExample.of(item, where)

    def hold_out(self, train: Examples[ChoiceExample], share: float, seed: int) -> Halves[ChoiceExample]:
        return carve(train, share, seed, key=lambda example: (example.context.casefold(), None))

    def train_fault(self, train: Examples[ChoiceExample]) -> str:
        return "" if len(train) > 1 else f"{len(train)} training question; training needs at least two"

    def report(
        self, splits: Mapping[str, Examples[ChoiceExample]], encoded: Mapping[str, GroupSet], settings: ReadingSettings
    ) -> DataReport:
        most = max(len(example.choices) for examples in splits.values() for example in examples)
        lengths = {name: features.sequences.num_tokens_before for name, features in encoded.items()}
        notes = (f"{most} choices a question; word pieces are those of a context with one choice", *self.task.notes)
        names = tuple(f"choice {number}" for number in range(most))
        shown = TextTask(
            self.task.name, names, ("accuracy",), "accuracy", Columns(("context",), ("choices",)), notes=notes
        )
        rows = cast(Mapping[str, Examples[Any]], splits)  # with a text, a second text and a label, as a text task's
        return data_report(shown, rows, lengths=lengths, max_length=settings.max_length)

    def encode(
        self,
        examples: Sequence[ChoiceExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> GroupSet:
        return featurize_choices(examples, tokenizer, settings.max_length, labelled=labelled)

    def collate(self, encoded: GroupSet, rows: Sequence[int]) -> Batch:
        from bertkit.batch import collate_groups

        return collate_groups(encoded, rows, labelled=True)

    def loss_floor(self, train: GroupSet, settings: ReadingSettings) -> float:
        return float(np.log(train.sizes).mean())

    def arrange(self, encoded: GroupSet, values: Floats, config: AnyConfig) -> Floats:
        return values.reshape(len(encoded), -1)

    def score(self, given: ChoicesPredicted) -> dict[str, float]:
        assert given.encoded.labels is not None
        predicted = given.outputs.argmax(axis=1)
        scores = {name: METRICS[name](predicted, given.encoded.labels) for name in self.task.metrics}
        return {**scores, "loss": log_loss(given.outputs, given.encoded.labels)}

    def prediction_rows(self, given: ChoicesPredicted) -> list[Row]:
        shares, cut = softmax(given.outputs.astype(np.float64)), given.encoded.truncated.tolist()
        return [
            {
                "row": example.row,
                "context": example.context,
                **({"start": example.start} if example.start else {}),
                "choices": list(example.choices),
                **({} if example.label is None else {"gold": example.label}),
                "predicted": int(share.argmax()),
                "probabilities": share.tolist(),
                "truncated": truncated,
            }
            for example, share, truncated in zip(given.examples, shares, cut, strict=True)
        ]

    def answer_columns(self, config: AnyConfig) -> dict[str, ColumnType]:
        return {"predicted": "int64", "probabilities": ["float64"], "truncated": "bool"}

    def badness(self, given: ChoicesPredicted) -> npt.NDArray[np.float64] | None:
        return None if given.encoded.labels is None else log_losses(given.outputs, given.encoded.labels)

    def row_bounds(self) -> tuple[float, float] | None:
        return (0.0, 1.0) if self.task.main_metric == "accuracy" else None

    def main_metric_of(self, given: ChoicesPredicted, draws: Draws) -> Drawn | None:
        assert given.encoded.labels is not None
        metric, predicted = METRICS[self.task.main_metric], given.outputs.argmax(axis=1)
        return np.array([metric(predicted[draw], given.encoded.labels[draw]) for draw in draws])

    def row_scores(self, rows: Sequence[Mapping[str, Any]]) -> RowScores:
        gold, predicted = (np.array([row[name] for row in rows], dtype=np.int64) for name in ("gold", "predicted"))
        metric = METRICS[self.task.main_metric]
        keys = [(row["context"], row.get("start"), tuple(row["choices"]), row["gold"]) for row in rows]
        return RowScores(
            keys=keys,
            shown=[row["context"] for row in rows],
            gold=[row["choices"][row["gold"]] for row in rows],
            predicted=[row["choices"][row["predicted"]] for row in rows],
            right=gold == predicted,
            metric=lambda some: float(metric(predicted[some], gold[some])),
        )

    def baseline(self, train: Examples[ChoiceExample], dev: Examples[ChoiceExample]) -> Row:
        return {"name": "TF-IDF + linear", **choice_baseline(train, dev, self.task)}

    def card(self) -> Card:
        return Card(
            pipeline="multiple-choice",
            predicts="which of several choices goes on from a context, or answers a question",
            call='pipe("The lamp went out.", choices=["It was dark.", "It was a boat."])',
            limits="A context and one choice are cut together after {max_length} word pieces; the context first.",
        )

    def facts(self, settings: ReadingSettings) -> Row:
        return {
            "what_it_predicts": "choice",
            "text_pairs": True,
            "truncation": "the end of the context; of a choice only where it does not fit by itself",
        }
