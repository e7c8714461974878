"""The C library, built once for each instruction set by all the processes that run the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertkit.engine.native import library
from bertkit.engine.native.library import NativeLibrary
from native_helpers import INSTRUCTION_SETS, processor_runs

Build = Callable[[str], NativeLibrary]


@pytest.fixture(scope="session")
def compiler() -> tuple[str, ...]:
    found = next(library.compilers(), None)
    if found is None:
        pytest.skip("no C compiler on this machine")
    return found


@pytest.fixture(scope="session")
def build(compiler: tuple[str, ...], once: Callable[[str, Callable[[Path], Any]], Any]) -> Build:
    """The library for an instruction set by name; skips where the compiler or the processor does not have it."""

    @cache
    def made(name: str) -> NativeLibrary:
        flags, needed = INSTRUCTION_SETS[name]
        if not processor_runs(needed):
            pytest.skip(f"this processor has no {name}")

        def compiled(folder: Path) -> tuple[Path, str | None]:
            return folder / "encoder.so", library.compile_library(compiler, folder / "encoder.so", flags)

        target, failure = once(f"native-{name}", compiled)
        if failure is not None and "unrecognized" in failure:
            pytest.skip(f"this compiler has no {name}: {failure}")
        assert failure is None
        return library.load(target)

    return made


@pytest.fixture(scope="session")
def native(build: Build) -> NativeLibrary:
    """For all that this processor has."""
    return build("native")


@pytest.fixture(params=INSTRUCTION_SETS)
def any_library(request: pytest.FixtureRequest, build: Build) -> NativeLibrary:
    """Each in turn."""
    return build(request.param)
