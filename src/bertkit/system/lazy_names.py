"""Modules of public names that load what they stand for when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from bertkit.errors import needs_bertkit


def lazy_names(package: str, names: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """``__getattr__`` and ``__all__`` of a module; ``names``: another module to its public names, parted by blanks."""
    module_of = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs_bertkit(f"{package}.{name}"):
            value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(module_of)
