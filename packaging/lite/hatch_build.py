"""A wheel of ``bertkit-lite`` for one platform, with the compiled encoder; without it, the pure one.

``packaging/wheels.py`` compiles the library and says in the environment where it is and for which platform.
"""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Environment variables: the library's file, and the tag of the platform that it is for.
LIBRARY, PLATFORM = "BERTKIT_WHEEL_LIBRARY", "BERTKIT_WHEEL_PLATFORM"


class Hook(BuildHookInterface):  # type: ignore[misc]  # hatchling is there only while a wheel is built
    """Adds the library where ``engine/native/library.py`` looks for it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library, and name the platform."""
        if library := os.environ.get(LIBRARY):
            build_data["force_include"][library] = f"bertkit/engine/native/lib/{Path(library).name}"
            build_data["tag"] = f"py3-none-{os.environ[PLATFORM]}"
            build_data["pure_python"] = False
