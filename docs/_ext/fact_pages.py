"""Pages of facts, from the code that decides them: settings, exit codes, and decisions."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from bertkit import errors

DOCS = Path(__file__).parents[1]
DISTILLING = "bertkit.training.distillation.distill_settings"
#: Title -> module and class of settings.
SETTINGS = {
    "Fine-tuning": ("bertkit.training.finetuning.finetune_settings", "FinetuneConfig"),
    "Pre-training": ("bertkit.training.pretraining.pretrain_settings", "PretrainConfig"),
    "Adapting": ("bertkit.training.adapt_settings", "AdaptConfig"),
    "Distilling: the student": (DISTILLING, "Student"),
    "Distilling a task": (DISTILLING, "TaskDistillation"),
    "Distilling vectors": (DISTILLING, "VectorDistillation"),
    "Distilling relations": (DISTILLING, "RelationDistillation"),
    "Distilling states": (DISTILLING, "StateDistillation"),
    "Distilling: training on vectors": (DISTILLING, "VectorTraining"),
    "Server": ("bertkit.server.settings", "ServeSettings"),
    "Generation": ("bertkit.config.generation_settings", "GenerationSettings"),
}


def fact_pages() -> dict[str, str]:
    """Path of each page -> its Markdown."""
    return {
        "reference/settings.md": _settings(),
        "reference/exit-codes.md": _exit_codes(),
        "decisions/index.md": _decisions(),
    }


def _settings() -> str:
    parts = [
        "# Settings",
        "Every setting, with its default. As an option of a command a setting is written with hyphens: `batch_size` is "
        "`--batch-size`. *Chosen*: the default is chosen by the run, which says what it chose.",
    ]
    for title, (module, name) in SETTINGS.items():
        found = getattr(import_module(module), name)
        rows = "\n".join(_setting(field, found.model_fields[field]) for field in found.model_fields)
        parts.append(f"## {title}\n\n`{module}.{name}`\n\n| setting | default | what it is |\n|---|---|---|\n{rows}")
    return "\n\n".join(parts) + "\n"


def _setting(name: str, field: Any) -> str:
    default = field.get_default() if not field.is_required() else "required"
    shown = "*chosen*" if default is None else f"`{default}`"
    return f"| `{name}` | {shown} | {escaped(field.description or '')} |"


def _exit_codes() -> str:
    tree = (errors.__doc__ or "").partition("::\n\n")[2].partition("\n\nEach")[0]
    rest = "Each" + (errors.__doc__ or "").partition("\n\nEach")[2]
    rows = "\n".join(f"| {code} | {said} |" for code, said in CODES.items())
    lines = "\n".join(line[4:] for line in tree.splitlines())
    return (
        f"# Errors and exit codes\n\n| exit code | meaning |\n|---|---|\n{rows}\n\n"
        f"## The errors\n\n```text\n{lines}\n```\n\n"
        f"{rest.replace('``', '`').strip()}\n"
    )


CODES = {
    0: "done",
    1: "a bug in bertkit, with a traceback",
    2: "usage: an option, a setting or a call is wrong",
    3: "data: a file, row, text or label is wrong",
    4: "model or checkpoint: it is missing, damaged, or does not fit",
    5: "resources: memory, disk, network, or a package that is not installed",
    130: "interrupted by Ctrl-C",
    143: "interrupted by SIGTERM",
}


def _decisions() -> str:
    files = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    rows = "\n".join(f"| {file.name[:4]} | [{escaped(_title(file))}]({file.name}) |" for file in files)
    tree = "\n".join(file.stem for file in files)
    return (
        "# Decisions\n\nWhy it was done this way: context, options, choice, cost, and what did not work.\n\n"
        f"| number | decision |\n|---|---|\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def _title(file: Path) -> str:
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    return re.sub(r"^#\s*(\d{4})?[\s:.–-]*", "", first)


def escaped(text: str) -> str:
    """Text as it stands, in a cell of a Markdown table."""
    return re.sub(r"([\\*_<>\[\]{}$#|~])", r"\\\1", " ".join(text.split()))
