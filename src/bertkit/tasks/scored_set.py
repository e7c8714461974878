"""Score a labelled set, and say what is written of it: for fine-tuning and for ``evaluate``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bertkit.metrics.intervals import bootstrap_draws
from bertkit.tasks.examples import ExampleT, Fact, Row
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.workflow import Decision, EncodedT, OutputsT, Predicted, Workflow


@dataclass(frozen=True, slots=True)
class Scored:
    """A scored set.

    scores: metrics by name. rows: a line for each example. files: what is written, content by name.
    decision: under which it was scored. bootstrap: the main metric of resampled examples; None where not known.
    table: more for people. remarks: what no score should hide.
    """

    scores: dict[str, float]
    rows: list[Row]
    files: dict[str, str]
    decision: Decision
    bootstrap: list[float] | None
    table: str = ""
    remarks: Sequence[str] = ()


def score_set(
    workflow: Workflow[ExampleT, EncodedT, OutputsT],
    given: Predicted[ExampleT, EncodedT, OutputsT],
    split: str,
    *,
    settings: ReadingSettings | None = None,
    worst: int = 0,
    resample: bool = True,
) -> Scored:
    """Score a labelled set, encoded with targets.

    ``split`` names the files: ``predictions-SPLIT.jsonl`` and, of the ``worst`` examples (0: none),
    ``errors-SPLIT.jsonl``. With ``settings`` these examples are dev of a run and decide; without, ``given.decision``
    stands. ``resample`` also scores the examples drawn with replacement.
    """
    if settings is not None:
        given = replace(given, decision=workflow.decide(given, settings))
    rows = workflow.prediction_rows(given)
    files = {f"predictions-{split}.jsonl": to_jsonl(rows), **workflow.files(given, split)}
    badness = workflow.badness(given) if worst else None
    if badness is not None:
        files[f"errors-{split}.jsonl"] = to_jsonl(worst_rows(rows, badness, worst))
    drawn = workflow.main_metric_of(given, bootstrap_draws(len(given.examples))) if resample else None
    values = None if drawn is None else [round(value, 6) for value in drawn.tolist()]
    return Scored(
        workflow.score(given), rows, files, given.decision, values, workflow.table(given), workflow.diagnose(given)
    )


def worst_rows(rows: Sequence[Mapping[str, Fact]], badness: npt.NDArray[np.floating], count: int) -> list[Row]:
    """The ``count`` rows with the largest badness, the worst first, each with it as ``badness``; 0 is not bad."""
    order = np.argsort(-badness, kind="stable")[:count].tolist()
    return [{"badness": round(float(badness[row]), 6), **rows[row]} for row in order if badness[row] > 0]


def to_jsonl(rows: Iterable[Mapping[str, Fact]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
