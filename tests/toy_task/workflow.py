"""The toy kind of task for training, evaluation and prediction, from existing pieces: one row per text, a head of one
number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.ragged import Floats, Ragged
from bertkit.tasks.examples import Examples, Row, Split
from bertkit.tasks.hold_out import check_share, group_rows, part, take_groups
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import FileRules, NamedTask
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks
from bertkit.tasks.workflow import Card, Head, Predicted, Workflow
from bertkit.tokenization import PreTrainedTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.text_inputs import read_text
from toy_task.metrics import closeness
from toy_task.reading import RULES, read_tones
from toy_task.settings import ToneTaskSettings
from toy_task.task import ToneExample, ToneTask

if TYPE_CHECKING:
    from bertkit.batch import Batch

Answered = Predicted[ToneExample, Ragged, Floats]


class ToneWorkflow(Workflow[ToneExample, Ragged, Floats]):
    task: ToneTask
    model_class = "BertForSequenceClassification"
    fields = ("text",)

    @property
    def sources(self) -> tuple[NamedTask, FileRules]:
        return self.task, RULES

    def read_file(self, path: Path, split: Split, *, on_error: OnError = "raise") -> Examples[ToneExample]:
        return read_tones(self.task, path, split, on_error)

    def example_of(self, item: Mapping[str, object], where: str) -> ToneExample:
        return ToneExample(read_text(item, where)[0], None)

    def hold_out(
        self, train: Examples[ToneExample], share: float, seed: int
    ) -> tuple[Examples[ToneExample], Examples[ToneExample]]:
        check_share(share)
        groups = group_rows(example.text for example in train)
        np.random.default_rng(seed).shuffle(groups)
        return part(train, take_groups(groups, share))

    def content(self, example: ToneExample) -> object:
        return example.text, example.tone

    def has_labels(self, examples: Sequence[ToneExample]) -> bool:
        return examples[0].tone is not None

    def report(
        self, splits: Mapping[str, Examples[ToneExample]], encoded: Mapping[str, Ragged], settings: ReadingSettings
    ) -> DataReport:
        facts = {name: SplitFacts(rows, "text") for name, rows in splits.items()}
        return DataReport(self.task.name, facts, *find_leaks(splits, lambda example: example.text, "text"))

    def encode(
        self,
        examples: Sequence[ToneExample],
        tokenizer: PreTrainedTokenizer,
        settings: ReadingSettings,
        *,
        labelled: bool,
    ) -> Ragged:
        rows = featurize_texts([example.text for example in examples], None, tokenizer, max_length=settings.max_length)
        steps = settings.of(ToneTaskSettings).tone_steps
        tones = [example.tone for example in examples]
        return replace(rows, labels=np.round(np.array(tones, dtype=np.float32) * steps) / steps if labelled else None)

    def collate(self, encoded: Ragged, rows: Sequence[int]) -> Batch:
        from bertkit.batch import collate

        return collate(encoded, rows, {"labels": encoded.labels})

    def head(self) -> Head:
        return {"id2label": {0: "tone"}, "problem_type": "regression"}

    def loss_floor(self, train: Ragged, settings: ReadingSettings) -> float:
        return float(np.var(train.labels))

    def score(self, given: Answered) -> dict[str, float]:
        tones, right = given.outputs[:, 0], np.array([example.tone for example in given.examples])
        return {"closeness": closeness(tones, right), "loss": float(((tones - right) ** 2).mean())}

    def prediction_rows(self, given: Answered) -> list[Row]:
        rows = zip(given.examples, given.outputs[:, 0].tolist(), strict=True)
        return [{"row": example.row, "text": example.text, "predicted": tone} for example, tone in rows]

    def facts(self, settings: ReadingSettings) -> Row:
        return {"tone_steps": settings.of(ToneTaskSettings).tone_steps}

    def card(self) -> Card:
        return Card("text-classification", "a number for a text", 'pipe("a text")', "Texts are cut.")
