"""Whether a model in 8 bits may take the place of the original: its vectors, its scores, its speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import DataError
from bertkit.inference.runs import Run, open_run
from bertkit.metrics.scores import interval_of
from bertkit.model.padded import PackedModel
from bertkit.quantization.calibrate import VECTORS
from bertkit.ragged import Ragged
from bertkit.tasks.run_rows import score_set
from bertkit.tasks.workflow import Predicted

#: How much of the main metric may be lost at most, by its paired interval: a score counts as lost only beyond it.
MAX_LOSS = 0.003
#: Rounds of the comparison of speed, and the texts of one.
ROUNDS, TIMED_TEXTS = 5, 128


@dataclass(frozen=True, slots=True)
class DevScores:
    """The main metric on labelled rows: of the original, in 8 bits, and a 95 % interval of the paired difference."""

    metric: str
    original: float
    quantized: float
    low: float
    high: float

    def acceptable(self) -> bool:
        """Whether no more than :data:`MAX_LOSS` is lost, or nothing that these rows can tell from chance."""
        return self.quantized >= self.original - MAX_LOSS or self.high >= 0.0

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.quantized:.4f}, original {self.original:.4f}, difference "
            f"{self.quantized - self.original:+.4f} (95 % interval {self.low:+.4f} to {self.high:+.4f})"
        )


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of the original and in 8 bits, medians: for one text of median length, and for many."""

    one_original: float
    one_quantized: float
    many_original: float
    many_quantized: float

    @property
    def gains(self) -> tuple[float, float]:
        """How many times as fast: one text, many texts."""
        return self.one_original / self.one_quantized, self.many_original / self.many_quantized

    def acceptable(self) -> bool:
        """Whether many texts take less time than before, and one text no more."""
        one, many = self.gains
        return many > 1.0 and one > 0.95

    def __str__(self) -> str:
        one, many = self.gains
        return f"{one:.2f} times as fast for one text ({self.one_quantized * 1e3:.2f} ms), {many:.2f} times for many"


def dev_scores(path: Path, data: Path, quantized: PackedModel) -> DevScores:
    """The scores of a run's model and of the same in 8 bits on the labelled rows of ``data``.

    Raises:
        DataError: the rows have no labels, or the folder is no fine-tuning run, so that its task is not known.
    """
    run = open_run(path)
    if run.task is None:
        raise DataError(f"{path} is not a run folder of 'bertkit finetune', so --dev cannot be scored; leave it out")
    workflow = run.workflow
    split = "dev" if data.is_dir() else next(iter(workflow.splits(data)))
    examples = workflow.read(data, split, on_error="raise")
    if not workflow.has_labels(examples):
        raise DataError(f"{data} has no labels, so there is nothing to score")
    found = [_scored(each, examples, split) for each in (run, replace(run, engine=InferenceEngine.of(quantized)))]
    (original, drawn), (changed, drawn_again) = found
    differences = np.subtract(drawn_again, drawn).tolist()
    low, high = interval_of(differences) or (changed - original,) * 2
    return DevScores(run.task.main_metric, original, changed, low, high)


def _scored(run: Run, examples: Sequence[Any], split: str) -> tuple[float, Sequence[float]]:
    """The main metric, and that of the rows drawn with replacement, in draws that are the same for every model."""
    workflow = run.workflow
    encoded = workflow.encode(examples, run.tokenizer, run.config, labelled=True)
    outputs = workflow.outputs(run.engine, encoded, label="scoring")
    scored = score_set(workflow, Predicted(examples, encoded, outputs, run.decision), split)
    return scored.scores[run.task.main_metric], scored.bootstrap or ()


def compare_speed(original: PackedModel, quantized: PackedModel, rows: Ragged) -> Speed:
    """Both models in turn, on the fastest arithmetic that each has here."""
    middle = np.argsort(rows.lengths)[len(rows) // 2]
    samples = (rows.select([middle]), rows.select(np.arange(min(len(rows), TIMED_TEXTS))))
    engines = [InferenceEngine.of(model).encoder() for model in (original, quantized)]
    taken: dict[tuple[int, int], list[float]] = {}
    for _ in range(ROUNDS + 1):
        for size, sample in enumerate(samples):
            for which, engine in enumerate(engines):
                start = time.perf_counter()
                for _ in range(10 if size == 0 else 1):
                    engine.run(sample, VECTORS, lambda pack, values: [None] * len(pack.lengths))
                seconds = (time.perf_counter() - start) / (10 if size == 0 else 1)
                taken.setdefault((size, which), []).append(seconds)
    medians = [statistics.median(taken[size, which][1:]) for size in (0, 1) for which in (0, 1)]
    return Speed(*medians)
