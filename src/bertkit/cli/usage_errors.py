"""Errors in the use of the command line: unknown options and refused values, with settings named as options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from cyclopts import UnknownOptionError

from bertkit.errors import did_you_mean

if TYPE_CHECKING:
    from cyclopts import CycloptsError

#: Options of other tools -> ours, suggested to commands that have it.
OTHER_NAMES = {
    "--lr": "--learning-rate",
    "--batch": "--batch-size",
    "--bs": "--batch-size",
    "--per-device-train-batch-size": "--batch-size",
    "--num-epochs": "--epochs",
    "--num-train-epochs": "--epochs",
    "--max-len": "--max-length",
    "--max-seq-length": "--max-length",
    "--model-name-or-path": "--model",
    "--output": "--out",
    "--output-dir": "--out",
    "--train-file": "--data",
    "--text-column": "--text",
    "--label-column": "--label",
    "--vocab-size": "--size",
    "--gpu": "--device",
}


def explain(error: CycloptsError, options: Collection[str]) -> str:
    """A parser's error in one sentence, with a suggestion out of the command's options."""
    findings = getattr(error.__cause__, "errors", None)
    if callable(findings):  # of a settings class: its own words
        return "; ".join(str(finding.get("ctx", {}).get("error", finding["msg"])) for finding in findings()) + "."
    if not isinstance(error, UnknownOptionError):
        return str(error)
    given = error.token.keyword or error.token.value
    if not re.fullmatch(r"--?[a-zA-Z][\w-]*(=.*)?", given, re.DOTALL):
        return f"{given!r} begins with '-' like an option; put such texts after --, as in: -- {given!r}."
    name = given.partition("=")[0]
    ours = OTHER_NAMES.get(name.replace("_", "-"))
    if ours in options:
        return f"Unknown option: {name}. Did you mean {ours}?"
    return f"Unknown option: {name}{did_you_mean(name, options)}."


def with_option_names(message: str, options: Iterable[str]) -> str:
    """A message about settings, named as on the command line: ``max_length=5`` becomes ``--max-length 5``."""
    for option in options:
        setting = option.removeprefix("--").replace("-", "_")
        start = rf"(?<![\w.-]){setting}"
        message = re.sub(rf"{start} ?= ?True\b", option, message)
        message = re.sub(rf"{start} ?= ?False\b", option.replace("--", "--no-", 1), message)
        message = re.sub(rf"{start} ?= ?", f"{option} ", message)
        if "_" in setting:
            message = re.sub(rf"{start}(?!\w|\.\w)", option, message)
    return message
