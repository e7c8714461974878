"""What both demos share: their folder, their tokenizer, and the commands they recommend."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.tokenization import BertTokenizer

#: This file marks a folder as made by the demo, so that the demo may empty it.
MARKER = "made-by-bertkit-demo"


def make_room(out: Path, parts: tuple[str, ...]) -> None:
    """Create an empty folder with the marker; ``parts`` of it, which an earlier demo made, are deleted."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; name a folder")
    if (out / MARKER).exists():
        for part in parts:
            shutil.rmtree(out / part, ignore_errors=True)
    elif out.is_dir() and any(out.iterdir()):
        raise ConfigError(f"--out {out} is not empty and was not made by the demo; choose a new folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text(f"bertkit demo may delete {', '.join(parts)} in this folder\n", encoding="utf-8")


def learn_tokenizer(folder: Path, texts: Iterable[str], size: int) -> BertTokenizer:
    """Learn a vocabulary of at most ``size`` tokens and save its tokenizer."""
    from bertkit.tokenization import BertTokenizer
    from bertkit.tokenization.learn.wordpiece_learner import learn_vocabulary

    tokens = learn_vocabulary(texts, size, num_unused=99)
    tokenizer = BertTokenizer({token: number for number, token in enumerate(tokens)})
    tokenizer.save_pretrained(folder)
    return tokenizer


def as_typed(*command: str | Path) -> str:
    """A command of bertkit as it works in the shell that started this one.

    That is: ``bertkit``, ``.venv/bin/bertkit`` or ``python -m bertkit``, and the words of the command.
    """
    started, found = Path(sys.argv[0]), shutil.which("bertkit")
    if started.name == "__main__.py":
        program = f"{shlex.quote(sys.executable)} -m bertkit"
    elif started.name != "bertkit" or (found is not None and Path(found).resolve() == started.resolve()):
        program = "bertkit"
    else:
        program = shlex.quote(str(started))
    return f"{program} {shlex.join(map(str, command))}"


def pictures(run: Path) -> list[str]:
    """The plots in a run folder."""
    return [str(path) for path in sorted(run.glob("*.png"))]


def about_pictures(run: Path, name: str) -> str:
    """One line that lists the plots in a run folder, under a name."""
    return f"{name}: " + (", ".join(pictures(run)) or "none; for plots: pip install 'bertkit[plots]'")


def shorten_text(text: str, width: int = 90) -> str:
    """``text`` on one line of at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 4].rstrip() + " ..."
