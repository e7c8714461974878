"""Pages of the commands, from the same tables and help pages that ``bertkit COMMAND --help-all`` shows."""

from __future__ import annotations

import inspect
import io
import re
from importlib import import_module
from typing import Any

from rich.console import Console

from bertkit.cli import ACTIONS, COMMANDS, NAMES, Command, build_app
from bertkit.cli.task_pages import TaskPages


def command_pages() -> dict[str, str]:
    """Path of each page -> its Markdown."""
    pages = {f"reference/commands/{name}.md": _page(name) for name in NAMES}
    pages["reference/commands/index.md"] = _table_of_commands()
    return pages


def _table_of_commands() -> str:
    parts = [
        "# Commands",
        "`bertkit COMMAND --help` shows the everyday options, `--help-all` all of them, as these pages.",
    ]
    for title, commands in COMMANDS.items():
        rows = "\n".join(f"| [`{name}`]({name}.md) | {_cell(about)} |" for name, about in commands.items())
        parts.append(f"## {title}\n\n| command | what it does |\n|---|---|\n{rows}")
    tree = "\n".join(NAMES)
    return "\n\n".join([*parts, f"```{{toctree}}\n:hidden:\n\n{tree}\n```"]) + "\n"


def _page(name: str) -> str:
    about = next(commands[name] for commands in COMMANDS.values() if name in commands)
    if name not in ACTIONS:
        return "\n\n".join([f"# bertkit {name}", *_command((name,))]) + "\n"
    parts = [f"# bertkit {name}", f"{about[0].upper()}{about[1:]}."]
    for action, said in ACTIONS[name].items():
        parts += [f"## {name} {action}", f"{said[0].upper()}{said[1:]}.", *_command((name, action))]
    return "\n\n".join(parts) + "\n"


class _Collector:
    """Takes the place of a help page's formatter, and keeps the groups of options in place of drawing them."""

    def __init__(self) -> None:
        self.panels: list[tuple[str, list[Any]]] = []

    def __call__(self, console: Any, options: Any, panel: Any) -> None:
        self.panels.append((str(panel.title), list(panel.entries)))

    def render_usage(self, console: Any, options: Any, usage: object) -> None:
        """Not needed: examples show the use."""

    def render_description(self, console: Any, options: Any, description: object) -> None:
        """Not needed: it is made from the docstring."""


def _command(command: Command) -> list[str]:
    """What the command does, its examples, its tasks, and a table of options for each group."""
    app: Any = build_app(command, everything=True)
    for word in command:
        app = app[word]
    page, collector = app.help_formatter, _Collector()
    app.help_formatter = collector
    app.help_print(console=Console(file=io.StringIO()))
    tables = [_panel_table(title, entries) for title, entries in collector.panels if entries]
    return [_prose(page.text), *_tasks(" ".join(command)), *tables]


def _names(entry: Any) -> str:
    options = (*entry.positive_names, *entry.positive_shorts, *entry.negative_names)
    labels = [entry.positional_label] if entry.positional_label else options
    said = ", ".join(f"`{name}`" for name in dict.fromkeys(labels))
    return f"{said} *{_escape(entry.metavar)}*" if entry.metavar and not entry.positional_label else said


def _described(entry: Any) -> str:
    said = _cell(_plain(entry.description))
    if entry.choices:
        said = f"{said.removesuffix('.')}. Choices: {', '.join(f'`{each}`' for each in entry.choices)}."
    if entry.default and str(entry.default) not in ("False", "None", "()"):
        said = f"{said.removesuffix('.')}. Default: `{entry.default}`."
    return said + (" Required." if entry.required else "")


def _plain(description: Any) -> str:
    text = getattr(description, "primary_renderable", description)
    return str(getattr(text, "plain", None) or getattr(text, "markup", None) or text or "")


def _panel_table(title: str, entries: list[Any]) -> str:
    lines = "\n".join(f"| {_names(entry)} | {_described(entry)} |" for entry in entries)
    return f"**{title}**\n\n| option | what it does |\n|---|---|\n{lines}"


def _tasks(name: str) -> list[str]:
    """The tasks that the first argument may name."""
    module = import_module(f"bertkit.cli.{name.partition(' ')[0].replace('-', '_')}")
    function = getattr(module, name.replace("-", "_"), None)
    if function is None or next(iter(inspect.signature(function).parameters), "") != "task":
        return []
    lines = TaskPages(name, getattr(module, "MORE_TASKS", {})).lines()
    rows = "\n".join(f"| `{task}` | {_cell(about)} |" for task, about in lines.items())
    return [f"**Tasks**\n\n| task | what it is |\n|---|---|\n{rows}"]


def _prose(text: str) -> str:
    """A help text as Markdown: indented lines become blocks, and what looks like markup stays as it is."""
    parts = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(" "):
            lines = "\n".join(line.removeprefix("    ") for line in paragraph.splitlines())
            parts.append(f"```console\n{lines}\n```")
        else:
            parts.append(_escape(paragraph))
    return "\n\n".join(parts)


def _escape(text: str) -> str:
    return re.sub(r"([\\`*_<>\[\]{}$#|~])", r"\\\1", text)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split()))
