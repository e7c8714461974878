"""Help pages of the commands that take a task: which tasks there are, and the options of one of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

from bertkit.cli.task_options import EXAMPLES
from bertkit.tasks.own_files import files_of
from bertkit.tasks.registry import KINDS, form_of, get_task, load_class
from bertkit.tasks.task_settings import settings_of_kind, uses
from bertkit.training.finetuning.finetune_settings import FEW_SHOT_FIELDS


@dataclass(frozen=True, slots=True)
class MoreTask:
    """What a command takes as a task beside those of the registry; ``forms`` are the kinds whose settings it takes."""

    about: str
    forms: Collection[str]
    remarks: str = ""


@dataclass(frozen=True, slots=True)
class TaskPages:
    """The pages of a command with a task; ``more`` it takes than the registry has, and then shows remarks on kinds."""

    command: str
    more: Mapping[str, MoreTask]

    def lines(self) -> dict[str, str]:
        """Every task with a line for people, those that are made from files of one's own first."""
        made = {name: about for kind in KINDS.values() for name, about in kind.from_files.items()}
        known = {name: get_task(name).about.partition(" (")[0] for kind in KINDS.values() for name in kind.built_in}
        return {**made, **known, **{name: task.about for name, task in self.more.items()}}

    def list_text(self, documentation: str) -> str:
        """Above the list of tasks: what the command does, and its first examples."""
        text, _, examples = documentation.partition(EXAMPLES)
        return f"{_paragraphs(text)[0]}\n\n{EXAMPLES}{''.join(_commands(examples)[:2])}"

    def task_text(self, documentation: str, task: str) -> str:
        """Above the options of a task: what the command does, the task, and the examples with it."""
        text, _, examples = documentation.partition(EXAMPLES)
        commands = _commands(examples)
        start = f"bertkit {self.command} "
        own = [each for each in commands if f"{start}{task} " in each]
        own = own or [re.sub(rf"{start}\S+ --data \S+", f"{start}{task} --data DATA", commands[0], count=1)]
        remarks = ""
        if self.more:
            remarks = self.more[task].remarks if task in self.more else files_of(form_of(task)).remarks
        first, *others = _paragraphs(text)
        said = [first, f"Task {task}: {self.lines()[task]}", *others, remarks, EXAMPLES.strip(), "".join(own)]
        return "\n\n".join(part for part in said if part)

    def others(self, task: str) -> set[str]:
        """The options that are for other tasks alone."""
        if task in self.more:
            forms: Collection[str] = self.more[task].forms
            taken: Collection[str] = ()
        else:
            forms = (form_of(task),)
            taken = files_of(form_of(task)).taken_by(task)
        shared = (name for form in forms for name in load_class(form, "workflow").shared_settings)
        own = {*taken, *shared, *(name for form in forms for name in settings_of_kind(form))}
        of_files = (part.name for form in KINDS for part in fields(files_of(form)))
        return {_option(name) for name in {*uses(), *FEW_SHOT_FIELDS, *of_files} - own}


def everyday_settings() -> dict[str, bool]:
    """The settings that not all kinds of tasks have, as options; whether ``--help`` shows them."""
    return {_option(name): use.everyday for name, use in uses().items()}


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _paragraphs(text: str) -> list[str]:
    return text.strip().split("\n\n")


def _commands(examples: str) -> list[str]:
    """Examples, each with the lines that continue it."""
    return re.findall(r"^    \S.*\n?(?:^     +\S.*\n?)*", examples, re.MULTILINE)
