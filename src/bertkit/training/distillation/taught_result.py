"""The outcome of a task distillation: scores and costs of the student beside its teacher, and beside itself without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from bertkit.errors import counted
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json
from bertkit.training.distillation.distill_run import WITH, rendered
from bertkit.training.distillation.model_costs import Costs, costs_table
from bertkit.training.finetuning.finetune_results import FinetuneResult, scores_of

#: What makes the comparison with the teacher unfair.
SEEN = (
    "A TEACHER WAS TRAINED ON ROWS OF THIS DEV SET, so its score is too high, and the student knows of them through "
    "it; give data with a dev file that no teacher has seen"
)


@dataclass(frozen=True, slots=True)
class TaughtResult(Rendered):
    """The outcome of :func:`bertkit.training.distillation.distill_task.distill_task`.

    taught, alone: the runs with and, if asked for, without the teachers. teacher: scores on the same dev rows.
    costs: of the (first) teacher and of the student. teacher_has_seen: it was trained on dev rows.
    """

    folder: Path
    taught: FinetuneResult
    alone: FinetuneResult | None
    teacher: Mapping[str, float]
    costs: Mapping[str, Costs]
    texts: Mapping[str, int]
    teacher_has_seen: bool = False

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {
            "task": self.taught.task,
            "main_metric": self.taught.main_metric,
            "teacher": dict(self.teacher),
            **scores_of(self.taught, self.alone),
            "costs": {name: asdict(costs) for name, costs in self.costs.items()},
            "texts": dict(self.texts),
            "teacher_has_seen_dev": self.teacher_has_seen,
        }

    def render(self) -> str:
        """Scores and costs side by side, for people."""
        rows = [("metric", "teacher", "student", "share", "student alone")]
        for name, score, _ in self.taught.score_rows():
            top = self.teacher.get(name)
            share = f"{self.taught.mean[name] / top:.1%}" if top else ""
            alone = "not run" if self.alone is None else self.alone.score_line(name)
            rows.append((name, "" if top is None else f"{top:.4f}", score, share, alone))
        trained = counted(self.texts["labelled"], "labelled example")
        if self.texts["unlabelled"]:
            trained += f" and {self.texts['unlabelled']:,} without labels"
        headline = f"{self.taught.task} (dev): a student of {trained}"
        notes = [f"note: {SEEN}"] if self.teacher_has_seen else []
        return rendered(headline, [rows, costs_table(self.costs)], notes, self.folder / WITH)
