"""Random encoders in C: variants beside the plain one, wrong arguments refused; the campaign: all, and sanitizers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from bertkit.engine.native.build import FLAGS, FOLDER, NEUTRAL, VARIANT
from native_helpers import INSTRUCTION_SETS, NATIVE, PLAIN

pytestmark = pytest.mark.slow

FUZZER = Path(__file__).parents[3] / "native" / "fuzz.c"
SANITIZERS = {
    "none": (),
    "address and undefined behaviour": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "threads": ("-fsanitize=thread",),
}


def fuzz(
    compiler: tuple[str, ...],
    folder: Path,
    flags: tuple[str, ...],
    rounds: int,
    sets: Collection[str] = INSTRUCTION_SETS,
) -> None:
    common = ["-g", "-O1", *(flag for flag in FLAGS if flag != "-O3"), *flags, f"-I{FOLDER}"]
    objects, names = [], []
    for name, own in ((name, own) for name, own in INSTRUCTION_SETS.items() if name in sets):
        target = folder / f"{name}.o"
        command = [*compiler, *common, *own, f"-DBERTKIT_VARIANT={name}", "-c", FOLDER / VARIANT, "-o", target]
        if own and not subprocess.run(command, capture_output=True).returncode:
            objects.append(target)
            names.append(f"X({name})")
    sources = [FOLDER / name for name in NEUTRAL]
    listed = "-DBERTKIT_VARIANTS=" + " ".join(names)
    program = folder / "fuzz"
    command = [*compiler, *common, listed, *sources, FUZZER, *objects, "-o", program, "-pthread", "-lm"]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip(f"the compiler has no library for {flags}")
    assert not built.returncode, built.stderr
    done = subprocess.run([program, "1", str(rounds)], capture_output=True, text=True)
    assert not done.returncode, f"{done.stdout[-2000:]}{done.stderr[:4000]}"
    refused = re.search(r"(\d+) wrong arguments refused", done.stdout)
    assert refused is not None
    assert int(refused[1]) > rounds
    print(done.stdout)


def test_random_encoders_agree_and_wrong_arguments_are_refused(compiler: tuple[str, ...], tmp_path: Path) -> None:
    fuzz(compiler, tmp_path, (), 60, (NATIVE, PLAIN))


@pytest.mark.campaign
@pytest.mark.parametrize("name", SANITIZERS)
def test_campaign_with_sanitizers(name: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    fuzz(compiler, tmp_path, SANITIZERS[name], 400)
