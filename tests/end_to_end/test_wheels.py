"""The two distributions: built, installed in an environment of their own, both, one, and one removed again.

The environment has the declared dependencies of ``bertkit-lite``, what these need in turn, and nothing else.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bertkit
from bertkit.engine.native.library import native_library, shipped_name, why_not
from bertkit.system.model_sources import INCLUDED
from lite_environment import (
    COMPILED,
    FULL,
    HERE,
    LITE,
    ROOT,
    Environment,
    build_wheels,
    build_whole_wheels,
    message_of,
    metadata_of,
    needed,
)
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(once: Callable[..., Any]) -> Path:
    folder: Path = once("wheels", build_wheels)
    return folder


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
    assert sorted(path.name for path in wheels.glob("*.whl")) == sorted([LITE, COMPILED, FULL])
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


def test_the_compiled_wheel_is_the_pure_one_with_one_file_more(wheels: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels / LITE) as pure, zipfile.ZipFile(wheels / COMPILED) as compiled:
        own, more = ({name for name in archive.namelist() if ".dist-info/" not in name} for archive in (pure, compiled))
        (library,) = more - own
        assert own < more
        assert all(pure.read(name) == compiled.read(name) for name in own)
        found = Path(compiled.extract(library, tmp_path))
        (said,) = (compiled.read(name).decode() for name in compiled.namelist() if name.endswith("/WHEEL"))
    assert library == f"bertkit/engine/native/lib/{shipped_name(found)}"
    assert "Root-Is-Purelib: false" in said
    assert {line for line in said.splitlines() if line.startswith("Tag: ")} == {
        f"Tag: py3-none-{tag}" for tag in HERE.split(".")
    }


#: Processors as an emulator has them, and with what a host may hide -> the variant that runs there.
LOWER = {
    "Nehalem": "sse42",
    "SandyBridge,-xsave": "sse42",
    "Haswell": "avx2",
    "Haswell,-avx2": "sse42",
    "max,-fma": "sse42",
}


@pytest.mark.campaign
@pytest.mark.parametrize("processor", LOWER)
def test_lower_processors(environment: Environment, once: Callable[..., Any], model: str, processor: str) -> None:
    """Emulated, instruction by instruction: one that the processor lacks would end the process."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None or platform.machine() != "x86_64":
        pytest.skip("needs qemu-x86_64 (Debian: qemu-user) on x86-64")
    environment.pip("install", "--no-deps", str(once("whole-wheels", build_whole_wheels) / COMPILED))
    code = f"""
import sys
sys.prefix = {str(environment.bin.parent)!r}
sys.path.insert(0, {str(environment.packages)!r})
from bertkit.engine.native.library import native_library
from bertkit.cli import main
print(native_library().name)
main(["embed", "a film", "--model", {model!r}, "--json"])
"""
    python = str((environment.bin / "python").resolve())
    clean = {name: value for name, value in environment.clean.items() if not name.startswith("OPENBLAS_")}
    command = [emulator, "-cpu", processor, python, "-c", code]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    name, answer = done.stdout.splitlines()
    expected = json.loads(environment.run("bertkit", "embed", "a film", "--model", model, "--json").stdout)
    assert name == LOWER[processor]
    assert json.loads(answer)["embedding"] == pytest.approx(expected["embedding"], abs=1e-5)


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
