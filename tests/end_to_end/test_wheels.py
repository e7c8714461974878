"""The two distributions: built, installed in an environment of their own, both, one, and one removed again.

The environment has the declared dependencies of ``bertkit-lite``, what these need in turn, and nothing else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import bertkit
from bertkit.engine.native.library import native_library, why_not
from bertkit.system.model_sources import INCLUDED
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
LITE = f"bertkit_lite-{bertkit.__version__}-py3-none-any.whl"
FULL = f"bertkit-{bertkit.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    isolated = () if find_spec("hatchling") is None else ("--no-build-isolation",)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *isolated, "--wheel-dir", str(folder)]
    subprocess.run([*command, str(ROOT), str(ROOT / "packaging" / "lite")], check=True, cwd=folder)
    return folder


def message_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def metadata_of(wheel: Path) -> list[Requirement]:
    return [Requirement(line) for line in message_of(wheel).get_all("Requires-Dist", [])]


def needed(requirements: list[Requirement], found: set[str]) -> set[str]:
    """Names of the distributions, with all that they need."""
    for requirement in requirements:
        name = requirement.name.lower()
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            needed([Requirement(line) for line in distribution(name).requires or ()], found)
    return found


class Environment:
    """A virtual environment, and the packages in it."""

    def __init__(self, folder: Path, requirements: list[Requirement]) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"
        self.clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        packages = next((folder / "lib").glob("python*")) / "site-packages"
        for name in needed(requirements, set()):
            files = distribution(name).files or ()
            for top in {file.parts[0] for file in files if not file.parts[0].startswith("..")} - {"__pycache__"}:
                source = Path(str(distribution(name).locate_file(top)))
                if source.exists() and not (packages / top).exists():
                    (packages / top).symlink_to(source)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        line = [str(self.bin / command[0]), *command[1:]]
        return subprocess.run(line, env=self.clean, capture_output=True, text=True, check=False, cwd=self.bin)

    def pip(self, *arguments: str) -> None:
        done = self.run("python", "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def environment(wheels: Path, tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv", metadata_of(wheels / LITE))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint, which the encoder in C computes; it is compiled here, not by the command."""
    if native_library() is None:
        pytest.skip(f"there is no compiled encoder: {why_not()}")
    return str(save_tiny(tmp_path_factory.mktemp("model")))


def test_what_is_in_the_wheels(wheels: Path) -> None:
    assert sorted(path.name for path in wheels.iterdir()) == sorted([LITE, FULL])
    with zipfile.ZipFile(wheels / FULL) as archive:
        assert all(".dist-info/" in name for name in archive.namelist())
    with zipfile.ZipFile(wheels / LITE) as archive:
        code = {name for name in archive.namelist() if name.startswith("bertkit/")}
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "bertkit").rglob("*") if path.is_file()}
    assert code == {name for name in files if "__pycache__" not in name}
    model = [name for name in code if name.startswith(f"bertkit/included/{INCLUDED}/")]
    assert {Path(name).name for name in model} >= {"README.md", "LICENSE", "NOTICE", "model.safetensors", "config.json"}
    with zipfile.ZipFile(wheels / LITE) as archive:
        assert sum(archive.getinfo(name).compress_size for name in model) <= 10_000_000
        (licenses,) = {name.rpartition("/")[0] for name in archive.namelist() if "/licenses/" in name}
        for name in ("LICENSE", "NOTICE"):
            assert archive.read(f"{licenses}/{name}") == archive.read(f"bertkit/included/{INCLUDED}/{name}")
    said = message_of(wheels / LITE)
    assert (said["License-Expression"], said.get_all("License-File")) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    always = [each for each in metadata_of(wheels / FULL) if each.marker is None]
    assert f"bertkit-lite=={bertkit.__version__}" in map(str, always)
    assert {"torch", "pyarrow", "scikit-learn", "scipy"} <= {each.name for each in always}
    assert not {"torch", "pyarrow", "scikit-learn", "scipy"} & needed(metadata_of(wheels / LITE), set())


@pytest.mark.campaign
def test_lite_alone(environment: Environment, wheels: Path, model: str) -> None:
    environment.pip("install", "--no-deps", str(wheels / LITE))
    done = environment.run("bertkit", "embed", "a film", "--model", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 32
    done = environment.run("bertkit", "doctor")
    assert (done.returncode, f"{INCLUDED} (" in done.stdout) == (0, True)
    done = environment.run("bertkit", "finetune", "csv", "--data", "x.csv", "--model", "m", "--out", "o")
    assert (done.returncode, "pip install bertkit" in done.stderr) == (5, True)
    assert environment.run("python", "-c", "import torch").returncode == 1, "control: it is not there"


@pytest.mark.campaign
def test_both_and_one_removed_again(environment: Environment, wheels: Path, model: str) -> None:
    embed = ("bertkit", "embed", "a film", "--model", model)
    environment.pip("install", "--no-deps", str(wheels / LITE), str(wheels / FULL))
    assert environment.run(*embed).returncode == 0
    done = environment.run("bertkit", "doctor")
    assert (done.returncode, "missing: " in done.stderr, "torch" in done.stderr) == (5, True, True)
    environment.pip("uninstall", "--yes", "bertkit")
    assert environment.run(*embed).returncode == 0, "the code belongs to bertkit-lite"
    assert environment.run("bertkit", "doctor").returncode == 0
    environment.pip("install", "--no-deps", str(wheels / FULL))
    environment.pip("uninstall", "--yes", "bertkit-lite")
    assert environment.run("python", "-c", "import bertkit").returncode == 1
    told = environment.run("python", "-m", "pip", "check")
    assert (told.returncode, "bertkit-lite" in told.stdout) == (1, True)
    environment.pip("install", "--no-deps", str(wheels / LITE))
    assert environment.run(*embed).returncode == 0
