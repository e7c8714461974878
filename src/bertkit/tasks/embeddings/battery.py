"""The checks of embedding tasks for :func:`bertkit.tasks.check_task`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bertkit.metrics.scores import METRICS
from bertkit.tasks.battery import CUT_LENGTH, Battery, character_tokenizer
from bertkit.tasks.embeddings.features import featurize_columns, number_texts
from bertkit.tasks.embeddings.scoring import DEPTH, Queries, nearer
from bertkit.tasks.embeddings.task import EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Split


class EmbeddingBattery(Battery[EmbeddingTask, EmbeddingExample]):
    """Texts that are compared."""

    cut_passed = f"cut to {CUT_LENGTH} tokens, every loss is reported"

    def check_rows(self, rows: Sequence[EmbeddingExample], split: Split) -> None:
        most = {"pairs": math.inf, "triplets": 3, "scores": 2}[self.task.compares]
        fewest = 3 if self.task.compares == "triplets" else 2
        for row in rows:
            assert all(text.strip() for text in row.texts), f"{row.where}: empty text"
            assert fewest <= len(row.texts) <= most, f"{row.where}: {len(row.texts)} texts"
            scored = self.task.compares == "scores"
            assert (row.score is not None) == scored or split == "test", f"{row.where}: score {row.score}"

    def perfect(self, rows: Sequence[EmbeddingExample]) -> dict[str, float]:
        if self.task.compares == "scores":
            right = [row.score for row in rows]
            return {name: METRICS[name](right, right) for name in self.task.metrics}  # type: ignore[arg-type]
        if self.task.compares == "triplets":
            return {"accuracy": float(nearer(np.ones(len(rows)), np.zeros(len(rows))).mean())}
        queries = Queries.of(number_texts(rows).columns)
        found = queries.values([list(positives)[:DEPTH] for positives in queries.positives], [self.task.main_metric])
        return {name: float(values.mean()) for name, values in found.items()}

    def check_cut(self, rows: Sequence[EmbeddingExample]) -> None:
        tokenizer = character_tokenizer(text for row in rows for text in row.texts)
        cut, whole = (featurize_columns(rows, tokenizer, max_length=length) for length in (CUT_LENGTH, 1 << 20))
        longer = whole.texts.lengths > CUT_LENGTH
        assert np.array_equal(cut.texts.truncated, longer), f"{cut.texts.truncated.sum()} marked, {longer.sum()} cut"
        of_rows = [any(longer[number] for number in row if number >= 0) for row in whole.columns.tolist()]
        assert cut.truncated.tolist() == of_rows, "a text was cut, and its row is not marked"
