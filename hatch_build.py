"""What an installation of ``bertkit`` has, which depends on how it is built.

A wheel holds no code: it requires ``bertkit-lite`` of the same version, which has it. An editable installation is for
whoever works on the code: it takes the code from here, and the dependencies of both. See
``docs/decisions/0130-lite.md``.
"""

import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):  # type: ignore[misc]  # hatchling is there only while a wheel is built
    """Adds what the metadata cannot say, because they are the same for both ways of building."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add dependencies, and to an editable installation the command."""
        if version != "editable":
            build_data["dependencies"].append(f"bertkit-lite=={self.metadata.version}")
            return
        lite = tomllib.loads((Path(self.root) / "packaging" / "lite" / "pyproject.toml").read_text(encoding="utf-8"))
        build_data["dependencies"].extend(lite["project"]["dependencies"])
        build_data["shared_scripts"][str(Path(self.root) / "packaging" / "bertkit")] = "bertkit"
