"""Builds all wheels on one Linux machine: ``bertkit``, and ``bertkit-lite`` pure and with the encoder compiled.

One compiler makes all of them, zig of PyPI's ``ziglang``, in the version of ``constraints.txt``: it brings the headers
and link libraries of every platform. The same sources give the same bytes. See ``docs/decisions/0290-wheels.md``.

    python packaging/wheels.py [--out dist] [PLATFORM ...]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from bertkit.engine.native.build import FLAGS, VARIANTS, compile_library, family
from bertkit.engine.native.library import shipped_name

ROOT = Path(__file__).resolve().parents[1]
LITE = ROOT / "packaging" / "lite"
#: As wheels name a platform -> as zig names it: the oldest glibc and macOS that are supported are part of both.
PLATFORMS = {
    "manylinux_2_17_x86_64.manylinux2014_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64.manylinux2014_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
    "win_arm64": "aarch64-windows-gnu",
}
SUFFIXES = {"linux": ".so", "macos": ".dylib", "windows": ".dll"}
#: For a call of the compiler, which builds the system libraries of a target at first use.
SECONDS = 900.0
#: A warning of any target's compiler stops the build; no byte of the code depends on it.
WARNINGS = ("-Wall", "-Wextra", "-Werror")
#: Without debugging information; and on macOS without the path of the file, which the linker would write into it.
LINKED = ("-g0", "-s")
LINKED_FOR = {"macos": ("-Wl,-install_name,@rpath/bertkit.dylib",)}


def platform_here() -> str:
    """The key of :data:`PLATFORMS` for this machine, a Linux with glibc."""
    return f"manylinux_2_17_{family()}.manylinux2014_{family()}"


def compile_for(platform: str, folder: Path) -> Path:
    """The library with all variants of the platform's processors, under the name that it has in a wheel."""
    target = PLATFORMS[platform]
    processors, system = re.split("[-.]", target)[:2]
    kept = [flag for flag in FLAGS if (flag, system) != ("-fPIC", "windows")]  # there all code is so
    flags = (*kept, *WARNINGS, *LINKED, *LINKED_FOR.get(system, ()))
    draft = folder / f"bertkit{SUFFIXES[system]}"
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", target)
    if failure := compile_library(compiler, draft, VARIANTS[processors], flags, SECONDS):
        raise SystemExit(f"{platform}: {failure}")
    return draft.rename(folder / shipped_name(draft))


def build(project: Path, out: Path, library: Path | None = None, platform: str = "") -> None:
    """Build the wheel of a project, with a library for a platform."""
    more = {} if library is None else {"BERTKIT_WHEEL_LIBRARY": str(library), "BERTKIT_WHEEL_PLATFORM": platform}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    if code := subprocess.run(command, cwd=project, env={**os.environ, **more}, check=False).returncode:
        raise SystemExit(code)


def main() -> None:
    """Build the wheels of the platforms that are named, or of all, and those without compiled code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platforms", nargs="*", metavar="PLATFORM", help=f"of {', '.join(PLATFORMS)}; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="default: dist")
    options = parser.parse_args()
    if unknown := set(options.platforms) - set(PLATFORMS):
        parser.error(f"{', '.join(sorted(unknown))} is not a platform; expected one of {', '.join(PLATFORMS)}")
    out = options.out.resolve()
    build(ROOT, out)
    build(LITE, out)
    print(f"compiling with ziglang {version('ziglang')}", file=sys.stderr)
    for platform in options.platforms or PLATFORMS:
        with TemporaryDirectory() as folder:
            build(LITE, out, compile_for(platform, Path(folder)), platform)


if __name__ == "__main__":
    main()
