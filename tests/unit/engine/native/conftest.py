"""The C library, built once for each instruction set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
def build(compiler: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The library for an instruction set by name; skips where the compiler or the processor does not have it."""
    folder, built = tmp_path_factory.mktemp("libraries"), dict[str, NativeLibrary]()

    def made(name: str) -> NativeLibrary:
        if name not in built:
            flags, needed = INSTRUCTION_SETS[name]
            if not processor_runs(needed):
                pytest.skip(f"this processor has no {name}")
            target = Path(folder, f"{len(built)}.so")
            failure = library.compile_library(compiler, target, flags)
            if failure is not None and "unrecognized" in failure:
                pytest.skip(f"this compiler has no {name}: {failure}")
            assert failure is None
            built[name] = library.load(target)
        return built[name]

    return made


@pytest.fixture(scope="session")
def native(build: Build) -> NativeLibrary:
    """For all that this processor has."""
    return build("native")


@pytest.fixture(params=INSTRUCTION_SETS)
def any_library(request: pytest.FixtureRequest, build: Build) -> NativeLibrary:
    """Each in turn."""
    return build(request.param)
