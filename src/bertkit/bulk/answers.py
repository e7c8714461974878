"""What a model adds to the rows of a table: from named values to cells, whose types are known before any row is.

A task is answered by :class:`RunAnswers`, as ``bertkit predict`` does, or by a pipeline: :data:`PIPELINES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from bertkit.checkpoints.huggingface import heads_in
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.file_columns import Columns
from bertkit.engine.rows import same_packs
from bertkit.errors import ConfigError, DataError, InputError, TextError, did_you_mean
from bertkit.inference.analysis import open_any_run
from bertkit.inference.generation_tasks import RESULTS, kind_of
from bertkit.inference.open_pipeline import ALIASES, infer_task
from bertkit.inference.pipelines import pipeline
from bertkit.inference.predict_files import columns_of
from bertkit.inference.predict_table import fields_of
from bertkit.inference.row_cells import flat
from bertkit.inference.run_files import read_task
from bertkit.inference.runs import Run, open_run
from bertkit.system.console import quiet
from bertkit.system.model_sources import resolve
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.reading.bad_rows import is_missing
from bertkit.tasks.reading.tables import find_column, names_of
from bertkit.tasks.reading.text_rows import USUAL
from bertkit.tasks.registry import get_task
from bertkit.tasks.workflow import workflow_of

Cells = dict[str, Any]
#: Fields that a row may leave open.
_OPTIONAL = ("start",)


class Answers(Protocol):
    """An open model that answers one task."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """What is added to a table: of the task and the model alone."""

    def find(self, names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
        """The column of each field that is read; ``given`` are those that the caller has named."""

    def item_of(self, values: Mapping[str, Any]) -> Any:
        """What is asked of a row; TextError or InputError for a row that has nothing to ask."""

    def cells(self, items: Sequence[Any]) -> list[Cells]:
        """The cells of some rows, at least one. The last bits of a number depend on the rows of the same call."""


class RunAnswers:
    """Any kind of run, as :func:`bertkit.inference.predict_table.predict_table` answers it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.columns = run.answer_columns()

    def find(self, names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
        first, second = ((given[field],) if field in given else () for field in ("text", "text_pair"))
        places = Columns(first, second)
        found = columns_of(self.run, places)
        if found is None:
            renamed = {field: given.get(field, field) for field in self.run.workflow.fields}
            return check_named(renamed, names, given) or fields_of(self.run, names, None)
        return check_named({}, names, given) or fields_of(self.run, names, found)

    def item_of(self, values: Mapping[str, Any]) -> Any:
        for field, value in values.items():
            if value is None and field not in _OPTIONAL:
                raise TextError(f"the {field.replace('_', ' ')} is missing")
        return self.run.workflow.example_of(values, "the row")

    def cells(self, items: Sequence[Any]) -> list[Cells]:
        with same_packs():
            rows = [flat(row) for _, part in self.run.answered(items) for row in part]
        return [_marked({name: row.get(name) for name in self.columns}) for row in rows]


def _marked(cells: Cells) -> Cells:
    """With an error where the run says that the text is empty."""
    return {**cells, "error": "the text is empty"} if cells.get("empty") is True else cells


def check_named(fields: Mapping[str, str], names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The fields whose columns are there; DataError for a column that was named and is not."""
    for field, column in given.items():
        if column not in names:
            near = did_you_mean(column, names)
            raise DataError(f"no column {column!r} for {field!r}{near}; the columns are {names_of(names)}")
    return {field: column for field, column in fields.items() if column in names}


class Asked(NamedTuple):
    """How a pipeline is asked about rows, and what becomes of its answers.

    columns: of the open pipeline and its keywords. cells: of one answer.
    """

    fields: tuple[str, ...]
    options: Mapping[str, Any]
    columns: Callable[[Any, Mapping[str, Any]], dict[str, ColumnType]]
    cells: Callable[[Any], Cells]


def _constant(**columns: ColumnType) -> Callable[[Any, Mapping[str, Any]], dict[str, ColumnType]]:
    return lambda pipe, options: columns


def _vector_columns(pipe: Any, options: Mapping[str, Any]) -> dict[str, ColumnType]:
    if options.get("pooling") is None:
        raise ConfigError("a table has one vector a text: set pooling=, for example pooling='model'")
    return {"vector": ("float32", len(pipe(["a"], progress=False, **options)[0])), "truncated": "bool"}


def _guesses(found: Any) -> Cells:
    masks = found if isinstance(found[0], list) else [found]
    best = [
        {"mask": number, "token_str": guess["token_str"], "score": guess["score"]}
        for number, guesses in enumerate(masks)
        for guess in guesses
    ]
    return {"filled": best, "truncated": masks[0][0]["truncated"]}


def _best_label(found: Any) -> Cells:
    labels, scores = list(found["labels"]), list(found["scores"])
    return {"predicted": labels[0], "probability": scores[0], "labels": labels, "scores": scores}


_ENTITY: ColumnType = {
    "entity_group": "string", "score": "float64", "word": "string", "start": "int64", "end": "int64"
}  # fmt: skip
_TEXT, _PAIR = ("text",), ("text", "text_pair")
_CUT: Mapping[str, Any] = {"truncation": True}
#: Task -> how to call its pipeline, and which columns it adds.
PIPELINES: dict[str, Asked] = {
    "feature-extraction": Asked(
        _TEXT,
        {"pooling": "model", **_CUT},
        _vector_columns,
        lambda found: {"vector": np.asarray(found), "truncated": found.truncated},
    ),
    "sparse-encoding": Asked(
        _TEXT,
        _CUT,
        _constant(sparse={"indices": ["int32"], "values": ["float32"]}, truncated="bool"),
        lambda found: {
            "sparse": {"indices": found.ids.tolist(), "values": found.weights.tolist()},
            "truncated": found.truncated,
        },
    ),
    "token-classification": Asked(
        _TEXT,
        {"aggregation_strategy": "simple"},
        _constant(entities=[_ENTITY]),
        lambda found: {"entities": [{name: entity[name] for name in _ENTITY} for entity in found]},
    ),
    "fill-mask": Asked(
        _TEXT,
        _CUT,
        _constant(filled=[{"mask": "int64", "token_str": "string", "score": "float64"}], truncated="bool"),
        _guesses,
    ),
    "next-sentence": Asked(
        _PAIR,
        _CUT,
        _constant(predicted="string", probability="float64", is_next="float64", truncated="bool"),
        lambda found: {
            "predicted": found["label"], "probability": found["score"],
            **{name: found[name] for name in ("is_next", "truncated")},
        },
    ),
    "sentence-similarity": Asked(
        _PAIR,
        _CUT,
        _constant(similarity="float64", truncated="bool"),
        lambda found: {"similarity": float(found), "truncated": found.truncated},
    ),
    "zero-shot-classification": Asked(
        _TEXT,
        {},
        _constant(predicted="string", probability="float64", labels=["string"], scores=["float64"]),
        _best_label,
    ),
}  # fmt: skip
#: Tasks that are answered as by a run -> the kind of task to assume for a checkpoint that bertkit did not train.
RUNS: dict[str, str | None] = {
    "text-classification": None, "question-answering": "squad", "multiple-choice": "swag", "text-ranking": "rerank",
}  # fmt: skip
#: Of the pipelines that the kinds of tasks name, those that take pairs where single texts are the rule.
_VECTORS = {"sentence-similarity": "feature-extraction"}


def _generation(key: str) -> Asked:
    return Asked(
        _TEXT,
        _CUT,
        _constant(**{key: "string", "truncated": "bool"}),
        lambda found: {key: found[key], "truncated": bool(found.get("truncated"))},
    )


class PipelineAnswers:
    """A task of :data:`PIPELINES`, or generated text."""

    def __init__(self, task: str, pipe: Any, options: Mapping[str, Any]) -> None:
        key = kind_of(task)
        self.pipe, self.asked = pipe, PIPELINES[task] if key is None else _generation(RESULTS[key])
        self.options = {**self.asked.options, **options}
        if self.options.get("num_return_sequences", 1) != 1:
            raise ConfigError("a table has one text a row: leave num_return_sequences out")
        with quiet():
            self.columns = self.asked.columns(pipe, self.options)

    def find(self, names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
        unknown = [field for field in given if field not in self.asked.fields]
        if unknown:
            raise ConfigError(f"columns= names {unknown[0]!r}; this task reads {' and '.join(self.asked.fields)}")
        check_named({}, names, given)
        usual, found = {"text": USUAL, "text_pair": ("text_pair",)}, {}
        for field in self.asked.fields:
            wanted = (given[field],) if field in given else usual[field]
            advice = f"name it: columns={{{field!r}: ...}}"
            found[field] = find_column(Path("the table"), names, wanted, field.replace("_", " "), advice)
        return found

    def item_of(self, values: Mapping[str, Any]) -> Any:
        texts = [values[field] for field in self.asked.fields]
        for field, text in zip(self.asked.fields, texts, strict=True):
            if is_missing(text):
                raise TextError(f"the {field.replace('_', ' ')} is empty")
            if not isinstance(text, str):
                raise InputError(f"the {field.replace('_', ' ')} is a {type(text).__name__}, {text!r:.40}, not a text")
        return texts[0] if len(texts) == 1 else tuple(texts)

    def cells(self, items: Sequence[Any]) -> list[Cells]:
        with quiet(), same_packs():
            found = list(self.pipe(list(items), progress=False, **self.options))
        return [self.asked.cells(each) for each in found]


def task_of(model: str | Path, task: str | None) -> str:
    """The task that is answered: as named, else that of the run or of the model's head."""
    if task is not None:
        name = ALIASES.get(task, task)
        if name not in PIPELINES and name not in RUNS and kind_of(name) is None:
            known = [*RUNS, *PIPELINES, *RESULTS]
            raise InputError(f"no task {task!r}{did_you_mean(task, known)}; available: {', '.join(known)}")
        return name
    path = resolve(model)
    if path.is_dir() and heads_in(path):
        return "text-classification"
    own = read_task(checkpoint_folder(path))
    name = infer_task(path) if own is None else workflow_of(own).card().pipeline
    return _VECTORS.get(name, name)


def open_answers(
    model: str | Path, task: str | None, fields: Sequence[str], computing: Mapping[str, Any], options: Mapping[str, Any]
) -> Answers:
    """Open a model for a task of :func:`task_of`, or as its run answers; ``fields``: those that the caller named."""
    if task is None or task in RUNS or "tokens" in fields:
        if options:
            raise InputError(
                f"{', '.join(options)}: a run is read as in training, and task {task} takes no further settings"
            )
        own = None if task is None else RUNS.get(task)
        if own is not None and read_task(checkpoint_folder(resolve(model))) is None:
            return RunAnswers(open_run(model, get_task(own), **computing))
        return RunAnswers(open_any_run(model, **computing))
    if kind_of(task):
        computing = {name: value for name, value in computing.items() if name == "device"}
    opening = {name: value for name, value in options.items() if name == "method"}  # of zero-shot classification
    calling = {name: value for name, value in options.items() if name not in opening}
    return PipelineAnswers(task, pipeline(task, model, **computing, **opening), calling)
