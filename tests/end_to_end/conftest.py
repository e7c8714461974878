"""What the end-to-end tests share: commands in this process, and a run of each kind that is made once.

Runs of these tests draw no pictures, which takes as long as their training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from finetune_data import no_pictures
from kind_runs import KINDS, Made
from pipeline_helpers import Command


@pytest.fixture(scope="module", autouse=True)
def undrawn(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module that looks at pictures says ``DRAWS = True``."""
    if getattr(request.module, "DRAWS", False):
        yield
        return
    with no_pictures():
        yield


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``bertkit`` with arguments: its exit code, output and messages."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="session")
def kinds(once: Callable[..., Any]) -> Iterator[Callable[[str], Made]]:
    """The run of a kind, see ``kind_runs``; nobody may write into its folder."""
    seen: dict[str, tuple[Made, dict[Path, int]]] = {}

    def files(made: Made) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in made.folder.rglob("*")}

    def get(name: str) -> Made:
        if name not in seen:
            made = Made(KINDS[name], once(f"kind-{name.replace(' ', '-')}", KINDS[name].make))
            seen[name] = made, files(made)
        return seen[name][0]

    yield get
    for made, before in seen.values():
        assert files(made) == before, "a test has written into a folder that others read"


@pytest.fixture(scope="session")
def begun(once: Callable[..., Any]) -> Callable[[str], Made]:
    """The data and the start checkpoint of a kind, without its run: for what is refused before it."""

    def get(name: str) -> Made:
        def make(folder: Path) -> Path:
            KINDS[name].write_data(folder / "data")
            KINDS[name].write_start(folder / "start")
            return folder

        return Made(KINDS[name], once(f"begun-{name.replace(' ', '-')}", make))

    return get


@pytest.fixture(scope="module")
def made(request: pytest.FixtureRequest, kinds: Callable[[str], Made]) -> Made:
    """The run of the kind that the module names as its ``KIND``."""
    return kinds(request.module.KIND)


@pytest.fixture(scope="module")
def data(made: Made) -> Path:
    return made.data


@pytest.fixture(scope="module")
def start(made: Made) -> Path:
    return made.start


@pytest.fixture(scope="module")
def run(made: Made) -> Path:
    return made.run
