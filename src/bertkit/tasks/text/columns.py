"""How files of one's own hold texts and labels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import config_path
from bertkit.config.file_columns import Columns, Option
from bertkit.errors import ConfigError
from bertkit.tasks.own_files import Finished, LabelledTable, OwnFiles, columns_for
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.registry import Task
from bertkit.tasks.text.csv_task import csv_task
from bertkit.tasks.text.task import TextTask

#: The task that is made from a file.
MADE = "csv"


@dataclass(frozen=True)
class TextFiles(LabelledTable):
    """Tables of texts and labels; built-in tasks know theirs."""

    remarks = (
        "With --few-shot a handful of labelled texts is enough: the best way to learn from them is found by "
        "cross-validation, and without a dev file all are trained on."
    )

    multi_label: Annotated[bool, Option("The label column holds several labels, as in 'news|sport'.")] = False
    label_separator: Annotated[str, Option("Separator of labels, with --multi-label.", everyday=False)] = "|"
    merge_labels: Annotated[
        str | None, Option("Merge labels that differ only in 'case', in 'space', or in both: case,space.")
    ] = None
    drop_label: Annotated[tuple[str, ...], Option("Leave out the rows of this label; repeatable.")] = ()
    min_rows: Annotated[
        int | None, Option("Leave out the rows of labels with fewer rows; 1 keeps even the rarest.")
    ] = None

    @classmethod
    def taken_by(cls, name: str) -> Collection[str]:
        return super().taken_by(name) if name == MADE else ("encoding",)

    def task(self, name: str, data: Path, on_error: OnError = "raise", **known: Any) -> Task:
        """``known``, of a task made from a file: as in :func:`bertkit.tasks.csv_task`."""
        return self.from_table(data, on_error, **known) if name == MADE else super().task(name, data, on_error)

    def from_table(self, data: Path, on_error: OnError, **known: Any) -> TextTask:
        """The task that a table is made for."""
        if "label_separator" in self.given and not self.multi_label:
            raise ConfigError("--label-separator needs --multi-label; give both, or leave it out")
        if self.multi_label:
            known = {**known, "problem": "multi_label"}
        return csv_task(
            data,
            text=self.text,
            text_pair=self.text_pair,
            label=self.label.split(",") if self.label and "," in self.label else self.label,
            label_separator=self.label_separator,
            delimiter=self.separator,
            quoting=self.quoting,
            encoding=self.encoding,
            sheet=self.sheet,
            merge_labels=self.merge_labels,
            drop_label=self.drop_label,
            min_rows=self.min_rows,
            on_error=on_error,
            **known,
        )

    def task_for(self, name: str, data: Path, on_error: OnError, model: Finished) -> Task:
        """The same, with the labels of the model, and what is not given as in the data of its run."""
        same = model.task is not None and model.task.name == name and not self.given
        if name != MADE or same:
            return super().task_for(name, data, on_error, model)
        own = model.task if isinstance(model.task, TextTask) and model.task.name == name else None
        files = self if own is None else self._like(columns_for(model), several=own.multi_label)
        shape = read_any_config(config_path(model.path))
        if shape.problem_type == "regression" or shape.num_labels == 1:
            return files.from_table(data, on_error, problem="regression")
        problem = "multi_label" if shape.problem_type == "multi_label_classification" else "classification"
        task = files.from_table(data, on_error, problem=problem, labels=list(shape.id2label.values()))
        return task if task.cleaning or own is None else replace(task, cleaning=own.cleaning)

    def _like(self, columns: Columns, *, several: bool) -> TextFiles:
        """With what is not given as in a task that was made from a table."""
        places = self.places_or(columns, self.label)
        return replace(
            self,
            text=places.text[0],
            text_pair=next(iter(places.text_pair), None),
            label=",".join(places.label),
            label_separator=self.given.get("label_separator", columns.label_separator),
            multi_label=self.multi_label or several,
            **{name: getattr(places, name) for name in ("delimiter", "quoting", "encoding", "sheet")},
        )


def text_task(files: OwnFiles, name: str, data: Path, on_error: OnError, *, refusal: str, **known: Any) -> TextTask:
    """The task of texts of that name; ConfigError with ``refusal`` where it is of another kind."""
    if not isinstance(files, TextFiles):
        raise ConfigError(refusal)
    return cast(TextTask, files.task(name, data, on_error, **known))
