"""What the page "try it here" is made of: its build script, its model's file, and all of it built."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def page_build() -> ModuleType:
    """``docs/try/build.py`` as a module."""
    spec = importlib.util.spec_from_file_location("try_build", REPOSITORY / "docs" / "try" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def page_folder(once: Callable[[str, Callable[[Path], Any]], Any]) -> Path:
    """The page as ``docs/try/build.py`` makes it; skips where there is no compiler for WebAssembly."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no compiler for WebAssembly; pip install ziglang")

    def make(folder: Path) -> Path:
        target = folder / "try"
        subprocess.run([sys.executable, REPOSITORY / "docs" / "try" / "build.py", target], check=True)
        return target

    return Path(once("try", make))


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node on this machine")
    return found
