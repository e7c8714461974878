"""Modules of public names that load what they stand for when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from bertkit.errors import needs_bertkit
from bertkit.habit_table import habits


def lazy_names(
    package: str, names: Mapping[str, str], modules: Collection[str] = (), entry: str = "import"
) -> tuple[Callable[[str], Any], list[str]]:
    """``__getattr__`` and ``__all__`` of a module; ``names``: another module to its public names, parted by blanks.

    modules: names of modules in it. entry: of :mod:`bertkit.habit_table`, where names are that it does not have.
    """
    module_of = {name: module for module, listed in names.items() for name in listed.split()}

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            refuse_habit(package, entry, name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needs_bertkit(f"{package}.{name}"):
            value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted([*module_of, *modules])


def refuse_habit(package: str, entry: str, name: str) -> None:
    """ImportError with what to write for a name of another library that the table of habits answers.

    An AttributeError would be replaced by Python's own words about the import.
    """
    habit = habits().get((entry, name))
    if habit is not None:
        raise ImportError(f"{package} has no {name!r}; write {habit.ours}", name=package)
