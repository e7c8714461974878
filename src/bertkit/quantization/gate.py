"""Whether a model in 8 bits may take the place of the original: its vectors, its scores, its speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.checkpoints.int8_figures import DevScores, Speed
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.errors import ConfigError, DataError
from bertkit.inference.run_files import read_task
from bertkit.inference.runs import Run, open_run
from bertkit.metrics.intervals import middle_of
from bertkit.model.padded import PackedModel
from bertkit.quantization.calibrate import VECTORS
from bertkit.ragged import Ragged
from bertkit.system.processor import find_processor
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.run_rows import score_set
from bertkit.tasks.workflow import Predicted

#: Rounds of the comparison of speed, and the texts of one.
ROUNDS, TIMED_TEXTS = 5, 128


@dataclass(frozen=True, slots=True)
class DevRows:
    """Labelled rows of a run's task, and the run, whose engine is that of the original model."""

    run: Run
    examples: Sequence[Any]
    split: str

    def compare(self, quantized: PackedModel) -> DevScores:
        """The scores of the run's model and of the same in 8 bits."""
        engines = (self.run.engine, InferenceEngine.of(quantized))
        (original, drawn), (changed, drawn_again) = [self._scored(replace(self.run, engine=each)) for each in engines]
        differences = np.subtract(drawn_again, drawn).tolist()
        low, high = middle_of(differences) if differences else (changed - original,) * 2
        return DevScores(self.run.task.main_metric, original, changed, low, high, len(self.examples))

    def _scored(self, run: Run) -> tuple[float, Sequence[float]]:
        """The main metric, and that of the rows drawn with replacement, in draws that are the same for every model."""
        workflow = run.workflow
        encoded = workflow.encode(self.examples, run.tokenizer, run.config, labelled=True)
        outputs = workflow.outputs(run.engine, encoded, label="scoring")
        scored = score_set(workflow, Predicted(self.examples, encoded, outputs, run.decision), self.split)
        return scored.scores[run.task.main_metric], scored.bootstrap or ()


def read_dev(path: Path, data: Path, model: PackedModel, on_error: OnError = "raise") -> DevRows:
    """The rows of ``data`` for the run at ``path``, whose model is ``model``."""
    if read_task(checkpoint_folder(path)) is None:
        raise ConfigError(f"{path} is not a run folder of 'bertkit finetune', so --dev cannot be scored; leave it out")
    run = replace(open_run(path), engine=InferenceEngine.for_scoring(model))
    split = "dev" if data.is_dir() else next(iter(run.workflow.splits(data)))
    examples = run.workflow.read(data, split, on_error=on_error)
    if not run.workflow.has_labels(examples):
        raise DataError(f"{data} has no labels, so there is nothing to score; give labelled rows of the run's task")
    return DevRows(run, examples, split)


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
    one, one_in_8, many, many_in_8 = (statistics.median(taken[key][1:]) for key in ((0, 0), (0, 1), (1, 0), (1, 1)))
    return Speed(one, one_in_8, many, many_in_8, str(find_processor()))
