"""The data of a fine-tuning run as token ids, with the report on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bertkit.tasks import Examples
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.run_rows import Rows
from bertkit.tasks.workflow import AnyWorkflow, Report
from bertkit.tokenization import PreTrainedTokenizer


@dataclass(frozen=True, slots=True)
class TaskData:
    """Examples with their token ids and the report on them; ``train``, ``dev`` and ``more`` are encoded."""

    rows: Rows
    train: Any
    dev: Any
    report: Report
    more: dict[str, Any] = field(default_factory=dict)

    def facts(self, max_length: int) -> dict[str, Any]:
        """What the protocol block says of the data."""
        rows = self.rows
        more = {f"{name}_rows": len(examples) for name, examples in rows.more.items()}
        return {
            "train_file": _name(rows.train),
            "dev_file": _name(rows.dev),
            "dev_held_out_of_train": rows.held_out,
            "train_rows": len(rows.train),
            "train_rows_left_out": rows.num_before_cut - len(rows.train),
            "dev_rows": len(rows.dev),
            **more,
            "bad_rows_left_out": {"train": len(rows.train.skipped), "dev": len(rows.dev.skipped)},
            "max_length": max_length,
            "truncated_share": {
                "train": round(float(self.train.truncated.mean()), 6),
                "dev": round(float(self.dev.truncated.mean()), 6),
            },
            "dev_rows_also_in_train": self.report.overlap.get("dev", 0),
            "data_sha256": rows.sha256,
        }


def encode(rows: Rows, workflow: AnyWorkflow, tokenizer: PreTrainedTokenizer, settings: ReadingSettings) -> TaskData:
    """Token ids of all examples, and the data report."""
    train = workflow.encode(rows.train, tokenizer, settings, labelled=True)
    dev = workflow.encode(rows.dev, tokenizer, settings, labelled=True)
    report = workflow.report({"train": rows.train, "dev": rows.dev}, {"train": train, "dev": dev}, settings)
    more = {name: workflow.encode(examples, tokenizer, settings, labelled=True) for name, examples in rows.more.items()}
    return TaskData(rows, train, dev, report, more)


def _name(rows: Examples[Any]) -> str:
    return "" if rows.path is None else rows.path.name
