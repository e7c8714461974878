"""Help pages: the everyday options with ``--help``, all of them with ``--help-all``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

#: Title of a group of options -> those of it that ``--help`` shows; groups that are not listed are shown as a whole.
EVERYDAY = {
    "Common options": {"--json", "--device", "--quiet"},
    "Files of your own (task csv)": {"--text", "--text-pair", "--label", "--multi-label", "--encoding"},
    "CoNLL files (task ner)": set[str](),
    "Masked-LM training": {"--adapt-epochs", "--adapt-steps"},
    "Training": set(
        """--protocol --objective --learning-rate --epochs --batch-size --max-length --max-seq-length --max-steps --seed
        --seeds --freeze-encoder --pooling --patience --metric-for-best --keep --class-weights --max-train-rows
        --on-error --precision""".split()
    ),
    "Fine-tuning": set("--learning-rate --epochs --batch-size --max-length --seed --seeds --max-train-rows".split()),
}
#: Options of the other groups that only ``--help-all`` shows.
EXPERT = set(
    """--function --stride --threshold --impossible --max-answer-len --max-seq-len --doc-stride --revision --lower-case
    --model-class --opset --check --format --engine --beside --held-out""".split()
)


class HelpPage:
    """Renders one command's help page for ``cyclopts``; ``num_hidden`` are the expert options left out so far."""

    def __init__(self, command: Callable[..., object], *, everything: bool) -> None:
        parameters = inspect.signature(command).parameters.values()
        self.texts = [each.name.upper() for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL]
        self.everything = everything
        self.num_hidden = 0
        self._panels = DefaultFormatter()

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Render one group of options."""
        shown = [_plain(entry) for entry in panel.entries if self.everything or self._is_everyday(panel, entry)]
        self.num_hidden += len(panel.entries) - len(shown)
        self._panels(console, options, panel.copy(entries=shown))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        """Render the first line, with the name of what may be repeated: ``[TEXT...]``."""
        label = self.texts[0] if self.texts else "ARGS"
        console.print(f"Usage: {usage}".replace("ARGS...", f"{label}..."), markup=False, highlight=False)

    def render_description(self, console: Console, options: ConsoleOptions, description: RenderableType) -> None:
        """Render the text between usage and options."""
        console.print(description)

    @staticmethod
    def _is_everyday(panel: HelpPanel, entry: HelpEntry) -> bool:
        name = (entry.positive_names or ("",))[0]
        everyday = EVERYDAY.get(str(panel.title))
        return entry.required or (name not in EXPERT if everyday is None else name in everyday)


def reflow(documentation: str | None) -> str:
    """A docstring for a terminal of any width: every paragraph on one line, indented lines (examples) as they are."""
    paragraphs = inspect.cleandoc(documentation or "").split("\n\n")
    return "\n\n".join(each if each.startswith(" ") else " ".join(each.split()) for each in paragraphs)


def _plain(entry: HelpEntry) -> HelpEntry:
    """A switch that is off needs neither its default nor its opposite."""
    return entry.copy(default=None, negative_names=()) if entry.default == "False" else entry
