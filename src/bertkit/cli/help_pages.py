"""Help pages (everyday options with ``--help``, all of them with ``--help-all``), and errors in the use of options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from bertkit.cli.task_options import EXAMPLES, RARE
from bertkit.errors import did_you_mean
from bertkit.habit_table import habits, instead_of, option_for

if TYPE_CHECKING:
    from cyclopts import CycloptsError
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions, RenderableType

    from bertkit.cli.task_pages import TaskPages

#: Title of a group of options -> those of it that ``--help`` shows; groups that are not listed are shown as a whole.
#: The settings of a kind of task and the options of files say it themselves.
EVERYDAY = {
    "Common options": {"--json", "--device", "--quiet"},
    "Masked-LM training": {"--adapt-epochs", "--adapt-steps"},
    "Generation": set("--max-new-tokens --num-beams --num-return-sequences --do-sample --temperature".split()),
    "Training": set(
        """--protocol --objective --learning-rate --epochs --batch-size --max-length --max-seq-length --max-steps --seed
        --seeds --freeze-encoder --lora --patience --metric-for-best --keep --max-train-rows --on-error --precision
        --few-shot --few-shot-method""".split()
    ),
    "Large inputs": {"--workers", "--engine", "--shard", "--refresh", "--max-errors"},
    "Server": set("--host --port --precision --threads --workers --api-key --playground --mcp --timeout --log".split()),
    "Fine-tuning": set("--learning-rate --epochs --batch-size --max-length --seed --seeds --max-train-rows".split()),
}
#: Options of the other groups that only ``--help-all`` shows.
EXPERT = set(
    """--function --stride --threshold --impossible --max-answer-len --max-seq-len --doc-stride --revision --lower-case
    --model-class --opset --check --format --engine --beside --held-out --peers-python --id""".split()
)


class HelpPage:
    """Renders one command's help page for ``cyclopts``; ``num_hidden`` are the options left out so far.

    A command with a task has a page for each, which leaves out what is for other tasks, and without one a page that
    lists the tasks instead of options.
    """

    def __init__(self, name: str, command: Callable[..., object], *, everything: bool, task: str | None) -> None:
        parameters = inspect.signature(command).parameters
        self.texts = [each.name.upper() for each in parameters.values() if each.kind is each.VAR_POSITIONAL]
        self.text, self.everything, self.num_hidden = reflow(command.__doc__), everything, 0
        self.tasks: Mapping[str, str] = {}
        self.task, self.others, self.everyday = "", set[str](), dict[str, bool]()
        if task is not None and next(iter(parameters), "") == "task":
            from bertkit.cli.task_pages import TaskPages, everyday_settings

            self.everyday = everyday_settings()
            self._of_task(TaskPages(name, getattr(import_module(command.__module__), "MORE_TASKS", {})), task)

    def _of_task(self, pages: TaskPages, task: str) -> None:
        lines = pages.lines()
        if task in lines:
            self.task, self.others, self.text = task, pages.others(task), pages.task_text(self.text, task)
        elif not self.everything:
            self.tasks, self.text = lines, pages.list_text(self.text)

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Render one group of options."""
        from cyclopts.help import DefaultFormatter, HelpEntry

        entries = [entry for entry in panel.entries if (entry.positive_names or ("",))[0] not in self.others]
        if self.tasks:
            first = str(panel.title) == "Arguments"
            shown = [HelpEntry(positive_names=(name,), description=self.tasks[name]) for name in self.tasks if first]
            self.num_hidden += 0 if first else len(entries)
            DefaultFormatter()(console, options, panel.copy(title="Tasks", entries=shown))
            return
        shown = [_plain(entry) for entry in entries if self.everything or self._is_everyday(panel, entry)]
        self.num_hidden += len(entries) - len(shown)
        DefaultFormatter()(console, options, panel.copy(entries=shown))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        """Render the first line, with the name of what may be repeated: ``[TEXT...]``."""
        label = self.texts[0] if self.texts else "ARGS"
        console.print(f"Usage: {usage}".replace("ARGS...", f"{label}..."), markup=False, highlight=False)

    def render_description(self, console: Console, options: ConsoleOptions, description: RenderableType) -> None:
        """Render the text between usage and options."""
        console.print(description)

    def _is_everyday(self, panel: HelpPanel, entry: HelpEntry) -> bool:
        name = (entry.positive_names or ("",))[0]
        if re.search(rf"(?<![\w-]){name}(?![\w-])", self.text.partition(EXAMPLES)[2]):
            return True  # what an example uses is not kept from its reader
        if name in self.everyday:
            return self.everyday[name]
        if name in RARE:
            return False
        everyday = EVERYDAY.get(str(panel.title))
        return entry.required or (name not in EXPERT if everyday is None else name in everyday)


def reflow(documentation: str | None) -> str:
    """A docstring for a terminal of any width: every paragraph on one line, indented lines (examples) as they are."""
    paragraphs = inspect.cleandoc(documentation or "").split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else " ".join(each.split()) for each in paragraphs)


def _plain(entry: HelpEntry) -> HelpEntry:
    """A switch that is off needs neither its default nor its opposite."""
    return entry.copy(default=None, negative_names=()) if entry.default == "False" else entry


def explain(error: CycloptsError, options: Collection[str], command: str = "", tokens: Sequence[str] = ()) -> str:
    """A parser's error in one sentence, with a suggestion out of the command's options, or what the table says.

    ``tokens``: what was typed. Where something is missing, an option that there is not may be what it is called there.
    """
    findings = getattr(error.__cause__, "errors", None)
    if callable(findings):  # of a settings class: its own words
        return "; ".join(str(finding.get("ctx", {}).get("error", finding["msg"])) for finding in findings()) + "."
    if isinstance(error, UnusedCliTokensError):
        first = next(iter(error.unused_tokens or ()), "")
        return f'{first!r} is one text too many; several values of an option are one: --labels "a, b".'
    if isinstance(error, MissingArgumentError):
        typed = [token for token in tokens if re.fullmatch(r"--[a-z][\w-]*(=.*)?", token, re.DOTALL)]
        others = [token for token in typed if token.partition("=")[0].replace("_", "-") not in {*options, "--help"}]
        return _unknown(others[0], options, command) if others else f"{error}{_in_place(error, tokens)}"
    if not isinstance(error, UnknownOptionError):
        is_action = error.argument is not None and error.argument.name == "ACTION"
        action = instead_of(f"bertkit {command}", "ACTION") if is_action else None
        return f"{error} Write {action}." if action else str(error)
    return _unknown(error.token.keyword or error.token.value, options, command)


def _in_place(error: MissingArgumentError, tokens: Sequence[str]) -> str:
    """What to write where a model or the data lack, or were typed without their option, as in ``predict RUN FILE``."""
    option = next((name for name in ("--model", "--data") if f" {name} " in str(error)), None)
    if option is None or error.argument is None:
        return ""
    free = [word for before, word in pairwise(tokens) if not before.startswith("--") and not word.startswith("-")]
    is_it = (lambda path: (path / "config.json").is_file()) if option == "--model" else Path.exists
    named = next((word for word in free[option == "--data" :] if is_it(Path(word))), None)
    return f" {option}: {error.argument.parameter.help}" if named is None else f" Write {option} {named}."


def _unknown(given: str, options: Collection[str], command: str) -> str:
    """What is said about an option that a command does not have."""
    if not re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", given, re.DOTALL):
        return f"{given!r} begins with '-' like an option; put such texts after --, as in: -- {given!r}."
    name = given.partition("=")[0]
    typed = name.replace("_", "-")
    if own := habits().get((f"bertkit {command}", typed)):
        return f"Unknown option: {name}; write {own.ours}."
    if ours := option_for(name, options):
        return f"Unknown option: {name}. Did you mean {ours}?"
    of_training = instead_of("settings", typed.lstrip("-").replace("-", "_")) if "--epochs" in options else None
    if of_training and "(" not in of_training:
        return f"Unknown option: {name}; write {of_training}."
    return f"Unknown option: {name}{did_you_mean(name, options)}."


def typed_options(message: str) -> str:
    """A message that names a setting of Python and, in brackets, its option, as ``lora=8 (--lora)``: that alone."""
    return re.sub(
        r"(?:(?<![\w.-])\w+=(?:'[^']*'|[^\s'()]+) )\((?:on the command line: )?(--[^()]+)\)", r"\1", message
    ).replace("(on the command line: ", "(")


def with_option_names(message: str, options: Iterable[str]) -> str:
    """A message about settings, named as on the command line: ``max_length=5`` becomes ``--max-length 5``."""
    for option in options:
        setting = option.removeprefix("--").replace("-", "_")
        start = rf"(?<![\w.-]){setting}"
        message = re.sub(rf"{start} ?= ?True\b", option, message)
        message = re.sub(rf"{start} ?= ?False\b", option.replace("--", "--no-", 1), message)
        message = re.sub(rf"{start} ?= ?|^{setting} (?=must )", f"{option} ", message)
        if "_" in setting:
            message = re.sub(rf"{start}(?!\w|\.\w)", option, message)
    return message
