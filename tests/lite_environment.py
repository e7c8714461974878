"""Wheels, environments that have ``bertkit-lite`` and its dependencies alone, and a machine that gives nothing more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
import wheels
from packaging.requirements import Requirement
from wheels import platform_here

import bertkit
from bertkit.engine.native.build import VARIANTS as ALL

ROOT = Path(__file__).resolve().parents[1]
HERE = platform_here()
LITE = f"bertkit_lite-{bertkit.__version__}-py3-none-any.whl"
COMPILED = f"bertkit_lite-{bertkit.__version__}-py3-none-{HERE}.whl"
FULL = f"bertkit-{bertkit.__version__}-py3-none-any.whl"
#: A shell script that makes every file system read-only, and then runs its arguments.
SEAL = """
mount --rbind / /mnt || exit 90
for place in $(cut -d ' ' -f 2 /proc/self/mounts | grep '^/mnt' | grep -v '^/mnt/\\(proc\\|sys\\|dev$\\|dev/pts\\)'); do
    mount -o remount,bind,ro "$place" 2> /dev/null
done
exec chroot /mnt "$@"
"""
#: With mounts and a network of its own, as root of a new namespace.
ALONE = ("unshare", "--map-root-user", "--mount", "--net", "sh", "-c", SEAL, "sh")


def build_wheels(folder: Path, variants: Iterable[str] = ("avx2", "neon", "plain")) -> Path:
    """The two distributions, and ``bertkit-lite`` with the encoder compiled for this machine.

    variants: those of the encoder; each takes seconds, and any processor runs the last of these.
    """
    known = {kind: {name: flags for name, flags in all_of.items() if name in variants} for kind, all_of in ALL.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wheels, "VARIANTS", known)
        patch.setattr(sys, "argv", ["wheels.py", "--out", str(folder), HERE])
        wheels.main()
    return folder


def build_whole_wheels(folder: Path) -> Path:
    """With every variant of the encoder, as they are given to users."""
    return build_wheels(folder, {name for kind in ALL.values() for name in kind})


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
    """A virtual environment, and the packages in it; without its own pip that of this one installs into it."""

    def __init__(self, folder: Path, requirements: list[Requirement], *, with_pip: bool = True) -> None:
        venv.create(folder, with_pip=with_pip)
        self.with_pip = with_pip
        self.bin = folder / "bin"
        self.clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        self.packages = next((folder / "lib").glob("python*")) / "site-packages"
        for name in needed(requirements, set()):
            files = distribution(name).files or ()
            for top in {file.parts[0] for file in files if not file.parts[0].startswith("..")} - {"__pycache__"}:
                source = Path(str(distribution(name).locate_file(top)))
                if source.exists() and not (self.packages / top).exists():
                    (self.packages / top).symlink_to(source)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        line = [str(self.bin / command[0]), *command[1:]]
        return subprocess.run(line, env=self.clean, capture_output=True, text=True, check=False, cwd=self.bin)

    def pip(self, *arguments: str) -> None:
        given = ("-m", "pip", "--quiet", "--disable-pip-version-check")
        if self.with_pip:
            done = self.run("python", *given, *arguments)
        else:
            line = [sys.executable, *given, "--python", str(self.bin / "python"), *arguments]
            done = subprocess.run(line, env=self.clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def sealed(self, *command: str) -> list[str]:
        """The command where all files are read-only, with no network, no home and no program but the environment's."""
        kept = [
            f"{name}={value}" for name, value in os.environ.items() if name.startswith("OPENBLAS_")
        ]  # numpy's kernels
        return [*ALONE, "/usr/bin/env", "-i", f"PATH={self.bin}", *kept, str(self.bin / command[0]), *command[1:]]


def can_seal() -> bool:
    """Whether this system lets a process take such things away from itself."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*ALONE, "/bin/sh", "-c", "true"], capture_output=True, check=False).returncode == 0
