"""Files of settings that people write: TOML, or JSON by its ending."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bertkit.errors import BertkitError, SettingsFileError
from bertkit.habit_table import remedy
from bertkit.system.untrusted_files import Json, read_regular, strict_json

_MAX_BYTES = 1 << 20
T = TypeVar("T")


def read_settings_file(path: Path) -> tuple[dict[str, Json], str]:
    """The settings of a file, tables as mappings, and its text.

    Raises:
        SettingsFileError: no such file, not TOML or JSON; of YAML, which is not read, it translates the names.
    """
    form = {".json": "JSON", ".yaml": "YAML", ".yml": "YAML"}.get(path.suffix.lower(), "TOML")
    try:
        text = read_regular(path, max_bytes=_MAX_BYTES).decode()
        if form == "YAML":
            raise ValueError(_as_toml(path, text))
        values: Any = strict_json(text.encode()) if form == "JSON" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingsFileError(f"{path} cannot be read as {form}: {reason}") from None
    if not isinstance(values, dict):
        raise SettingsFileError(f"{path} holds a {type(values).__name__}, expected an object of settings")
    return values, text


def settings_of_table(kind: Callable[..., T], values: object, where: str) -> T:
    """``kind(**values)``; SettingsFileError for what is wrong, which begins with ``where`` they stand."""
    if not isinstance(values, dict):
        raise SettingsFileError(f"{where}: expected a table, got {values!r:.80}")
    try:
        return kind(**values)
    except BertkitError as error:
        raise SettingsFileError(f"{where}: {error}") from None


def _as_toml(path: Path, text: str) -> str:
    names = re.findall(r"^([A-Za-z]\w*):", text, re.MULTILINE)
    ours = [f"for {name}{answer.removeprefix(';')}" for name in names if (answer := remedy("settings", name, ()))]
    example = f"YAML is not read; name it {path.stem}.toml, with a line such as learning_rate = 2e-5 for each setting"
    return "; ".join([example, *ours[:10]])
