"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path


def user_path(name: str | Path) -> Path:
    """The path with ``~`` replaced by the home folder; an unknown user's ``~name`` is a name like any other."""
    return Path(os.path.expanduser(name))


def cache_root() -> Path:
    """Where bertkit keeps what it can make or fetch again: below ``$XDG_CACHE_HOME``, or else ``~/.cache``."""
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "bertkit"


def looked_in(path: Path) -> str:
    """`` (looked in FOLDER)`` for a message about a missing relative path; nothing for an absolute one."""
    return "" if path.is_absolute() else f" (looked in {Path.cwd()})"
