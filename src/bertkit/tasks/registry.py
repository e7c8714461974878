"""The kinds of tasks, one line each, and the tasks that are built in.

A kind is a folder with modules of fixed names, imported when first used: ``task.py`` with its ``...Task``,
``workflow.py`` with its ``...Workflow``, ``battery.py`` with its ``...Battery`` for :func:`bertkit.tasks.check_task`;
``settings.py`` with its ``...TaskSettings``, if it has settings of its own; and ``columns.py`` with its ``...Files``,
if options say how files hold its data. To add a kind of task, write that folder and add a line to :data:`KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

from bertkit.errors import CheckpointError, ConfigError, shorten
from bertkit.habit_table import remedy
from bertkit.system.json_files import parsed


class NextStep(NamedTuple):
    """What to do after a command, and the line to type; names in braces are what that command was given."""

    why: str
    line: str


class Kind(NamedTuple):
    """Where a kind of task is.

    prefix: what the names of its classes begin with: ``SpanTask``, ``SpanWorkflow``, ``SpanBattery``.
    built_in: its tasks by name, each as ``module:CONSTANT`` in the folder.
    from_files: its tasks that are made from a user's files, by name, each with a line for people.
    next_steps: what people do with a trained model ``{out}`` of a run ``{run}``.
    """

    folder: str
    prefix: str
    built_in: Mapping[str, str] = {}
    from_files: Mapping[str, str] = {}
    next_steps: tuple[NextStep, ...] = ()


_TEXTS = {name: f"glue:{name.upper()}" for name in ("cola", "sst2", "mrpc", "stsb", "qqp", "rte", "wnli", "qnli")}
_TEXTS |= {"imdb": "glue:IMDB", "tweets": "glue:TWEETS", "mnli": "glue:MNLI", "ax": "glue:DIAGNOSTIC"}
#: The kinds by :attr:`Task.form`, which a run folder's JSON calls ``kind``.
KINDS: dict[str, Kind] = {
    "text": Kind(
        "bertkit.tasks.text",
        "Text",
        _TEXTS,
        {"csv": "a table of your own: texts, and a label or score each"},
        (
            NextStep("label new rows", "bertkit predict new.csv --model {out} --out predicted.xlsx"),
            NextStep("look at its mistakes", "bertkit visualize errors {run}"),
        ),
    ),
    "span": Kind(
        "bertkit.tasks.spans",
        "Span",
        {"squad": "task:SQUAD", "squad2": "task:SQUAD2"},
        next_steps=(NextStep("ask it", 'bertkit answer "Who?" --context-file text.txt --model {out}'),),
    ),
    "token": Kind(
        "bertkit.tasks.tokens",
        "Token",
        {},
        {"ner": "names and other entities, tagged by words or by characters"},
        (NextStep("find names", "bertkit tag --file new.txt --model {out} --out entities.xlsx"),),
    ),
    "choice": Kind(
        "bertkit.tasks.choices",
        "Choice",
        {"swag": "task:SWAG", "codah": "task:CODAH", "arc": "task:ARC"},
        next_steps=(NextStep("choose in new rows", "bertkit predict new.jsonl --model {out} --out predicted.xlsx"),),
    ),
    "rerank": Kind(
        "bertkit.tasks.rerank",
        "Rerank",
        {"rerank": "task:RERANK"},
        next_steps=(NextStep("rank documents", 'bertkit rerank "Your question" --file documents.txt --model {out}'),),
    ),
    "seq2seq": Kind(
        "bertkit.tasks.seq2seq",
        "Seq2Seq",
        {"summarize": "task:SUMMARIZE", "text2text": "task:TEXT2TEXT"},
        next_steps=(NextStep("write new texts", "bertkit generate --file new.txt --model {out}"),),
    ),
    "embedding": Kind(
        "bertkit.tasks.embeddings",
        "Embedding",
        {"pairs": "task:PAIRS", "triplets": "task:TRIPLETS", "scored-pairs": "task:SCORED_PAIRS"},
        next_steps=(NextStep("search texts with it", "bertkit search build index texts.csv --model {out}"),),
    ),
    "sparse": Kind(
        "bertkit.tasks.sparse",
        "Sparse",
        {"sparse-pairs": "task:SPARSE_PAIRS"},
        next_steps=(NextStep("get weights of words", 'bertkit embed --sparse --model {out} "A sentence."'),),
    ),
    "multi": Kind(
        "bertkit.tasks.multi",
        "Multi",
        next_steps=(NextStep("run all heads", "bertkit analyze --file new.csv --model {out} --out analyzed.xlsx"),),
    ),
}


class Task(Protocol):
    """What every task has, whatever it predicts. A frozen dataclass of plain values."""

    #: Key of its kind in :data:`KINDS`.
    form: ClassVar[str]

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def about(self) -> str:
        """One line for people."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of its scores, in the order in which they are shown."""

    @property
    def main_metric(self) -> str:
        """The one, of which more is better, that chooses the best checkpoint."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was inferred when the task was made from a user's file, one sentence each."""


def load_class(form: str, part: Literal["task", "workflow", "battery", "taught"]) -> Any:
    """The class of a kind that ``part`` names; a CheckpointError if this version does not have the kind."""
    if form not in KINDS:
        raise CheckpointError(f"this version of bertkit has no tasks of kind {form!r}, only {', '.join(KINDS)}")
    kind = KINDS[form]
    return getattr(import_module(f"{kind.folder}.{part}"), f"{kind.prefix}{part.title()}")


def part_of(form: str, part: Literal["settings", "columns"]) -> Any:
    """The class of a part that a kind need not have; None where it has none."""
    kind = KINDS[form]
    if find_spec(f"{kind.folder}.{part}") is None:
        return None
    name = {"settings": "TaskSettings", "columns": "Files"}[part]
    return getattr(import_module(f"{kind.folder}.{part}"), f"{kind.prefix}{name}")


def get_task(name: str) -> Task:
    """The built-in task of that name.

    Raises:
        ConfigError: an unknown name, with the nearest known one; ``csv`` and ``ner``, which are made from files.
    """
    kind = KINDS[form_of(name)]
    if name in kind.from_files:
        raise ConfigError(f"task {name} is made from files: use bertkit.tasks.task_of({name!r}, data)")
    module, _, constant = kind.built_in[name].partition(":")
    return cast(Task, getattr(import_module(f"{kind.folder}.{module}"), constant))


def form_of(name: str) -> str:
    """The kind of the task of that name; ConfigError for an unknown one, with the nearest known one."""
    known = {task: form for form, kind in KINDS.items() for task in (*kind.built_in, *kind.from_files)}
    if name not in known:
        raise ConfigError(f"unknown task {name!r}{remedy('finetune', name, known)}; known: {', '.join(known)}")
    return known[name]


def task_to_dict(task: Task) -> dict[str, Any]:
    """Plain data for a run folder's JSON; :func:`task_from_dict` reads it back."""
    values = asdict(cast(Any, task))
    if values.get("cleaning", ...) is None:
        del values["cleaning"]  # as in run folders without it
    columns = values.get("columns", {})
    for name in ("encoding", "sheet"):
        if columns.get(name) is None:
            columns.pop(name, None)  # run folders of version 0.1.0 do not have it
    return values if task.form == "text" else {"kind": task.form, **values}


def task_from_dict(values: Mapping[str, Any]) -> Task:
    """The task that :func:`task_to_dict` wrote; without ``kind`` it is a text task.

    Raises:
        CheckpointError: a kind or a field that this version does not have, or a value of the wrong type.
    """
    found = load_class(values.get("kind", "text"), "task")
    plain = {key: value for key, value in values.items() if key != "kind"}
    unknown = plain.keys() - {field.name for field in fields(found)}
    if unknown:
        raise CheckpointError(f"a task has unknown fields, {shorten(sorted(unknown))}: written by a newer version?")
    return cast(Task, parsed(plain, found, "a task"))
