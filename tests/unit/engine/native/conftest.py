"""The C library, built once for each instruction set by all the processes that run the tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bertkit.engine.native import build as building
from bertkit.engine.native import library
from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.library_cache import UnavailableError
from bertkit.system.processor import level
from native_helpers import INSTRUCTION_SETS, PLAIN

#: Those of the package, with warnings as errors.
FLAGS = (*building.FLAGS, "-Wall", "-Wextra", "-Werror")
Build = Callable[[str], NativeLibrary]


@pytest.fixture(scope="session")
def compiler() -> tuple[str, ...]:
    found = next(building.compilers(), None)
    if found is None:
        pytest.skip("no C compiler on this machine")
    return found


@pytest.fixture(scope="session")
def build(compiler: tuple[str, ...], once: Callable[[str, Callable[[Path], Any]], Any]) -> Build:
    """The library with a variant by name; skips where the compiler or the processor does not have it.

    A variant that this compiler does not know is left out; warnings are errors. Each takes seconds to compile, so those
    of the campaign are a library of their own.
    """

    def compiled(folder: Path, everyday: bool) -> tuple[Path, str | None]:
        chosen = {name: flags for name, flags in INSTRUCTION_SETS.items() if (name in EVERYDAY) == everyday}
        variants = {name: flags for name, flags in chosen.items() if flags}
        target = folder / "encoder.so"
        failure = building.compile_library(compiler, target, variants, FLAGS)
        if failure is not None and "unrecognized" in failure:  # of some variant, which it does not name
            alone = {
                name: building.compile_library(compiler, target, {name: variants[name]}, FLAGS) for name in variants
            }
            variants = {name: variants[name] for name, fault in alone.items() if "unrecognized" not in (fault or "")}
            failure = building.compile_library(compiler, target, variants, FLAGS)
        return target, failure

    @cache
    def made(name: str) -> NativeLibrary:
        everyday = name in EVERYDAY
        kind = "native-variants" if everyday else "native-variants-between"
        target, failure = once(kind, lambda folder: compiled(folder, everyday))
        assert failure is None
        try:
            return library.load(target, name)
        except UnavailableError as error:
            pytest.skip(str(error))

    return made


@pytest.fixture(scope="session")
def native(build: Build) -> NativeLibrary:
    return build(OWN)


#: For all that this processor has, or a lower one has that the tests run as.
OWN = next(iter(building.variants_here(level())))
#: The others are left to the campaign: that of this very processor has nearly the kernels of one of them, and ``make
#: lower`` runs the tests as a processor without AVX-512.
EVERYDAY = {OWN, PLAIN, "sse42", "neon"}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.campaign] * (name not in EVERYDAY)) for name in INSTRUCTION_SETS]
)
def any_library(request: pytest.FixtureRequest, build: Build) -> NativeLibrary:
    """Each in turn."""
    return build(request.param)
