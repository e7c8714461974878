"""Paths as users write them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from bertkit.errors import ConfigError


def user_path(name: str | Path) -> Path:
    """The path with ``~`` replaced by the home folder; an unknown user's ``~name`` is a name like any other."""
    return Path(os.path.expanduser(name))


def refuse_address(out: str | Path) -> None:
    """ConfigError for an output such as ``s3://bucket/out``, which as a path would be a folder of the name ``s3:``."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):/+", str(out))  # one letter is a drive; a path keeps one slash
    if scheme is not None:
        raise ConfigError(
            f"{scheme[1]}://{str(out)[scheme.end() :]}: results are written to a file system: give a folder or file, "
            "and copy it when it is done"
        )


def cache_root() -> Path:
    """Where bertkit keeps what it can make or fetch again: below ``$XDG_CACHE_HOME``, or else ``~/.cache``."""
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bertkit"


def looked_in(path: Path) -> str:
    """`` (looked in FOLDER)`` for a message about a missing relative path; nothing for an absolute one."""
    return "" if path.is_absolute() else f" (looked in {Path.cwd()})"
