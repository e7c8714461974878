"""Score a labelled set, and say what is written of it: for fine-tuning and for ``evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bertkit.metrics.intervals import bootstrap_draws
from bertkit.tasks.prediction_rows import to_jsonl, worst_rows
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.workflow import AnyWorkflow, Decision, Predicted


@dataclass(frozen=True, slots=True)
class Scored:
    """A scored set.

    scores: metrics by name. rows: a line for each example. files: what is written, content by name.
    decision: under which it was scored. bootstrap: the main metric of resampled examples; None where not known.
    table: more for people. remarks: what no score should hide.
    """

    scores: dict[str, float]
    rows: list[dict[str, Any]]
    files: dict[str, str]
    decision: Decision
    bootstrap: list[float] | None
    table: str = ""
    remarks: Sequence[str] = ()


def score_set(
    workflow: AnyWorkflow,
    given: Predicted[Any, Any, Any],
    split: str,
    *,
    settings: ReadingSettings | None = None,
    worst: int = 0,
    resample: bool = True,
) -> Scored:
    """Score a labelled set.

    Args:
        workflow: of the task.
        given: labelled examples, encoded with targets, and what the model said of them.
        split: names the files: ``predictions-SPLIT.jsonl`` and, of the ``worst`` examples, ``errors-SPLIT.jsonl``.
        settings: of the run, where these examples are dev and decide; None: ``given.decision`` stands.
        worst: examples to list; 0 lists none.
        resample: also score the examples drawn with replacement.
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
