"""The line with which a command ends that wrote something: what to do next. One table for all commands; what follows a
training is said by the kind of the task, see :data:`bertkit.tasks.registry.KINDS`.

It is for people: on a terminal only, on standard error, and never with ``--quiet`` or ``--json``.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from bertkit.cli import STANDARD_STREAM, Command
from bertkit.errors import ConfigError
from bertkit.system.console import say

#: What the command was given, by name; ``out`` is what it wrote.
Given = Mapping[str, Any]


#: What to do, and the line; names in braces are what the last command was given.
Step = tuple[str, str]

_TRAIN = ("train it on labelled rows", "bertkit finetune csv --data labelled.csv --model {out} --out run")
_SEARCH = ("search texts with it", "bertkit search build index texts.csv --model {out}")
_QUERY = ("search it", 'bertkit search query {index} "Your question" --out found.xlsx')
_ERRORS = ("look at its mistakes", "bertkit visualize errors {run}")
_INSPECT = ("see what it holds", "bertkit inspect {out}")

#: Command, and for some what it did. The table of all lines but those after a training.
NEXT: dict[str, Step] = {
    "vocab": ("tokenize the text", "bertkit prepare {corpus} --tokenizer {out} --out store"),
    "prepare": ("train a model on it", "bertkit pretrain {out} --recipe mini --max-time 20m --out own"),
    "pretrain": _TRAIN,
    "label": ("train on the labels", "bertkit finetune csv --data {out} --model {model} --out run --few-shot"),
    "distill task": ("measure its speed", "bertkit benchmark {out}"),
    "distill vectors": _SEARCH,
    "distill corpus": _TRAIN,
    "classify": _ERRORS,
    "predict": _ERRORS,
    "evaluate": _ERRORS,
    "search build": _QUERY,
    "search add": _QUERY,
    "search update": _QUERY,
    "search delete": _QUERY,
    "cluster": (
        "label texts by hand",
        'bertkit label {file} --labels "one, another" --model {model} --out labels.jsonl',
    ),
    "quantize": ("compare it with the original", "bertkit benchmark {model} --int8 {out}"),
    "export": _INSPECT,
    "convert": _INSPECT,
    "shrink": _TRAIN,
    "word-vectors train": ("look at neighbors", "bertkit word-vectors nearest bank --vectors {out}"),
    "word-vectors distill": _SEARCH,
}
NEXT["topics"] = NEXT["cluster"]


def tell_next(name: Command, arguments: Given) -> None:
    """Say what to do next, where a person reads it and something was written."""
    given = dict(_flat(arguments))
    unread = sys.stderr is None or not sys.stderr.isatty()
    if unread or given.get("json") or given.get("quiet"):
        return
    if line := next_line(name, given):
        say(line)


def next_line(name: Command, given: Given) -> str | None:
    """The line after a command that was given some values; None where there is none."""
    key, given = _key(name, given)
    steps = [NEXT[key]] if key in NEXT else _after_training(key)
    if "run" in given and not has_mistakes(Path(given["run"])):
        steps = [step for step in steps if step[1] != _ERRORS[1]]
    places = {field: _typed(value) for field, value in given.items()}
    lines = [f"{why}: {line.format_map(places)}" for why, line in steps]
    return f"next, {'; or '.join(lines)}" if lines else None


def _after_training(form: str) -> list[Step]:
    """What the kind of a task says; nothing for what is no kind."""
    from bertkit.tasks.registry import KINDS

    return [*KINDS[form].next_steps] if form in KINDS else []


def _key(name: Command, given: Given) -> tuple[str, Given]:
    """The key of :data:`NEXT` or the kind of a task, and the values with where the result is; else no key."""
    command = " ".join(name)
    change = _WRITTEN.get(command, _as_given)
    return change(command, given)


def _as_given(command: str, given: Given) -> tuple[str, Given]:
    return (command if given.get("out") else "", given)


def _trained(command: str, given: Given) -> tuple[str, Given]:
    from bertkit.tasks.registry import KINDS, form_of

    try:
        form = task if (task := given["task"]) in KINDS else form_of(task)
    except ConfigError:  # a name that stands for several tasks
        form = ""
    out = Path(given["out"]) / "with" if command == "adapt" else given["out"]
    return form, {**given, "out": out, "run": out}


def _distilled(command: str, given: Given) -> tuple[str, Given]:
    from bertkit.training.distillation.distill_settings import load_recipe

    method = load_recipe(given["recipe"]).method
    kind = method if method in ("task", "vectors") else "corpus"
    return f"distill {kind}", {**given, "out": Path(given["out"]) / ("with" if kind == "task" else "model")}


def _judged(command: str, given: Given) -> tuple[str, Given]:
    return command if command == "evaluate" or given.get("out") else "", {**given, "run": given["model"]}


#: Commands of which not the value of ``--out`` alone says what was written.
_WRITTEN: dict[str, Callable[[str, Given], tuple[str, Given]]] = {
    "finetune": _trained,
    "adapt": _trained,
    "distill": _distilled,
    "classify": _judged,
    "predict": _judged,
    "evaluate": _judged,
    "search": lambda _, given: (f"search {given['action']}", given),
    "convert": lambda command, given: (command, {**given, "out": given["target"]}),
    "pretrain": lambda command, given: (command, {**given, "out": Path(given["out"]) / "model"}),
    "label": lambda command, given: (command, {"model": "bertkit-tiny-en", **given}),
}


def has_mistakes(run: Path) -> bool:
    """Whether a run has predictions of one label each, of which 'bertkit visualize errors' lists the wrong ones."""
    try:
        with (run / "predictions-dev.jsonl").open(encoding="utf-8") as lines:
            first = json.loads(next(lines))
    except (OSError, StopIteration, ValueError):
        return False
    return isinstance(first.get("predicted"), str) and isinstance(first.get("probabilities"), dict)


def _flat(values: Given) -> Iterator[tuple[str, Any]]:
    """The options and arguments that were given, also those that stand in a class of options."""
    for name, value in values.items():
        if is_dataclass(value):
            yield from _flat(vars(value))
        else:
            yield name, value


def _typed(value: object) -> str:
    """A value as it is typed in a shell."""
    parts = value if isinstance(value, tuple | list) else [value]
    return " ".join(shlex.quote("text.txt" if part == STANDARD_STREAM else str(part)) for part in parts)
