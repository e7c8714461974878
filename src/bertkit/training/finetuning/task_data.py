"""The data of a fine-tuning run as token ids, with the report on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.system.json_files import printable
from bertkit.tasks import DataReport
from bertkit.tasks.reading_settings import ReadingSettings
from bertkit.tasks.run_rows import Rows
from bertkit.tasks.workflow import AnyWorkflow, Encoded
from bertkit.tokenization import PreTrainedTokenizer


@dataclass(frozen=True, slots=True)
class TaskData:
    """Examples with their token ids and the report on them; ``train``, ``dev`` and ``more`` are encoded.

    source: where the data was, as the user named it.
    """

    rows: Rows
    train: Encoded
    dev: Encoded
    report: DataReport
    more: Mapping[str, Encoded] = field(default_factory=dict)
    source: str = ""

    def facts(self, max_length: int) -> dict[str, Any]:
        """The part ``data`` of the protocol block."""
        rows, parts = self.rows, {"train": self.train, "dev": self.dev}
        files = {"train": rows.train.path, "dev": rows.dev.path}
        return {
            **{f"{split}_file": "" if path is None else printable(path.name) for split, path in files.items()},
            **({"hub_dataset": self.source.removeprefix("hub:")} if self.source.startswith("hub:") else {}),
            "dev_held_out_of_train": rows.held_out,
            "train_rows": len(rows.train),
            "train_rows_left_out": rows.num_before_cut - len(rows.train),
            "dev_rows": len(rows.dev),
            **{f"{name}_rows": len(examples) for name, examples in rows.more.items()},
            "bad_rows_left_out": {"train": len(rows.train.skipped), "dev": len(rows.dev.skipped)},
            "max_length": max_length,
            "truncated_share": {split: round(float(part.truncated.mean()), 6) for split, part in parts.items()},
            "dev_rows_also_in_train": self.report.overlap.get("dev", 0),
            "data_sha256": rows.sha256,
        }


def encode(
    rows: Rows, workflow: AnyWorkflow, tokenizer: PreTrainedTokenizer, settings: ReadingSettings, source: str | Path
) -> TaskData:
    """Token ids of all examples, and the data report; ``source`` is where the data was."""
    splits = {"train": rows.train, "dev": rows.dev, **rows.more}
    encoded = {name: workflow.encode(part, tokenizer, settings, labelled=True) for name, part in splits.items()}
    train, dev = encoded.pop("train"), encoded.pop("dev")
    report = workflow.report({"train": rows.train, "dev": rows.dev}, {"train": train, "dev": dev}, settings)
    return TaskData(rows, train, dev, report, encoded, str(source))
