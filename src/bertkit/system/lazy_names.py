"""Modules of public names that load what they stand for when a name is first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from opcode import opname
from typing import Any

from bertkit.errors import needs_bertkit
from bertkit.habit_table import instead_of


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
            raise unknown_name(package, name, instead_of(entry, name))
        with needs_bertkit(f"{package}.{name}"):
            value = getattr(import_module(module_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted([*module_of, *modules])


def unknown_name(package: str, name: str, instead: str | None) -> AttributeError | ImportError:
    """The error that a module's ``__getattr__`` raises; instead: what to write for the name, if that is known.

    With such advice, ``from package import name`` gets an ImportError: Python replaces an AttributeError by its own
    words about the import. Elsewhere it is an AttributeError, so that ``hasattr`` says False. The error has the advice
    as ``instead``, too.
    """
    if instead is None:
        return AttributeError(f"module {package!r} has no attribute {name!r}")
    message = f"{package} has no {name!r}; write {instead}"
    caller = sys._getframe(2)
    imports = opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM"
    error = ImportError(message, name=package) if imports else AttributeError(message, name=name)
    error.instead = instead  # type: ignore[union-attr]
    return error
