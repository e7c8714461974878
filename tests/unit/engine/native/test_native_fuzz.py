"""Random encoders in C: variants beside the plain one, callers beside each other, wrong arguments refused.

The campaign: all variants, sanitizers, and a seed of the day.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import date
from pathlib import Path

import pytest

from bertkit.engine.native.build import FLAGS, FOLDER, NEUTRAL, VARIANT
from bertkit.engine.native.library import NativeLibrary
from native_helpers import INSTRUCTION_SETS

pytestmark = pytest.mark.slow

FUZZER = Path(__file__).parents[3] / "native" / "fuzz.c"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
COMMON = ["-g", "-O1", *(flag for flag in FLAGS if flag != "-O3"), *WARNINGS, f"-I{FOLDER}"]
SANITIZERS = {
    "none": (),
    "address and undefined behaviour": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "threads": ("-fsanitize=thread",),
}


def fuzz(
    compiler: tuple[str, ...],
    folder: Path,
    flags: tuple[str, ...],
    seed: int,
    rounds: int,
) -> None:
    common = [*COMMON, *flags]
    objects, names = [], []
    for name, own in INSTRUCTION_SETS.items():
        target = folder / f"{name}.o"
        command = [*compiler, *common, *own, f"-DBERTKIT_VARIANT={name}", "-c", FOLDER / VARIANT, "-o", target]
        if own and not subprocess.run(command, capture_output=True).returncode:
            objects.append(target)
            names.append(f"X({name})")
    sources = [FOLDER / name for name in NEUTRAL]
    listed = "-DBERTKIT_VARIANTS=" + " ".join(names)
    built = link(compiler, folder, *common, listed, *sources, *objects)
    if "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no library for {flags}")
    assert not built.returncode, built.stderr
    run_fuzzer(folder, seed, rounds)


def link(compiler: tuple[str, ...], folder: Path, *parts: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*compiler, FUZZER, *parts, "-o", folder / "fuzz", "-pthread", "-lm"]
    return subprocess.run(command, capture_output=True, text=True)


def run_fuzzer(folder: Path, seed: int, rounds: int) -> None:
    program = folder / "fuzz"
    done = subprocess.run([program, str(seed), str(rounds)], capture_output=True, text=True)
    assert not done.returncode, f"seed {seed}: {done.stdout[-2000:]}{done.stderr[:4000]}"
    counts = re.search(r"(\d+) wrong arguments refused, (\d+) calls beside others", done.stdout)
    assert counts is not None
    assert min(map(int, counts.groups())) > rounds
    print(done.stdout)


def test_random_encoders_agree_and_wrong_arguments_are_refused(
    compiler: tuple[str, ...], native: NativeLibrary, tmp_path: Path
) -> None:
    """By the library of the other tests, whose variants are compiled already."""
    built = link(compiler, tmp_path, *COMMON, f"-Wl,-rpath,{native.path.parent}", native.path)
    assert not built.returncode, built.stderr
    run_fuzzer(tmp_path, 1, 30)


@pytest.mark.campaign
@pytest.mark.parametrize("name", SANITIZERS)
def test_campaign_with_sanitizers(name: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    """Of the day: a number per day, a thousand apart, so that days have no encoder in common."""
    fuzz(compiler, tmp_path, SANITIZERS[name], date.today().toordinal() * 1000, 400)


@pytest.mark.campaign
def test_a_wrong_window_is_seen(compiler: tuple[str, ...], tmp_path: Path) -> None:
    """The control: a variant whose windows are a key too wide on one side differs from the plain one."""
    sources = tmp_path / "native"
    shutil.copytree(FOLDER, sources)
    attention = sources / "kernels" / "attention.h"
    text = attention.read_text(encoding="utf-8")
    wrong = text.replace("t = position + h->half_window + 1 - low", "t = position + h->half_window + 1 + WRONG - low")
    assert wrong != text
    attention.write_text(wrong, encoding="utf-8")
    objects = []
    for name, shift in (("moved", 1), ("plain", 0)):
        objects.append(tmp_path / f"{name}.o")
        flags = [*FLAGS, f"-DBERTKIT_VARIANT={name}", "-DBERTKIT_PLAIN_C", f"-DWRONG={shift}"]
        command = [*compiler, *flags, "-O1", "-c", sources / VARIANT, "-o", objects[-1]]
        subprocess.run(command, check=True)
    files = [*(sources / name for name in NEUTRAL), FUZZER, *objects]
    listed = "-DBERTKIT_VARIANTS=X(moved) X(plain)"
    command = [*compiler, *FLAGS, "-O1", listed, f"-I{sources}", *files, "-o", tmp_path / "fuzz", "-pthread", "-lm"]
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "fuzz", "1", "60"], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"seed \d+: kind \d differs by", done.stdout), done.stdout


@pytest.mark.campaign
def test_a_missing_lock_is_seen(compiler: tuple[str, ...], tmp_path: Path) -> None:
    """The control of the thread sanitizer: workspaces are handed out without a lock."""
    sources = tmp_path / "native"
    shutil.copytree(FOLDER, sources)
    workspace = sources / "workspace.c"
    text = workspace.read_text(encoding="utf-8")
    without = re.sub(r"\b(un)?lock_shared\(\);", "", text)
    assert without != text
    workspace.write_text(without, encoding="utf-8")
    flags = ["-g", *FLAGS, "-O1", *SANITIZERS["threads"], f"-I{sources}"]
    plain = [
        *flags,
        "-DBERTKIT_VARIANT=plain",
        "-DBERTKIT_PLAIN_C",
        "-c",
        sources / VARIANT,
        "-o",
        tmp_path / "plain.o",
    ]
    subprocess.run([*compiler, *plain], check=True)
    files = [*(sources / name for name in NEUTRAL), FUZZER, tmp_path / "plain.o"]
    program = tmp_path / "fuzz"
    command = [*compiler, *flags, "-DBERTKIT_VARIANTS=X(plain)", *files, "-o", program, "-pthread", "-lm"]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("the compiler has no library for the thread sanitizer")
    assert not built.returncode, built.stderr
    done = subprocess.run([program, "1", "30"], capture_output=True, text=True)
    assert done.returncode
    assert "data race" in done.stderr
