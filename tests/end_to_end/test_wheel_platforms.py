"""The libraries of all wheels: what is in the files, and what runs of them here, under emulators.

Debian has the emulators: ``apt install qemu-user libc6-arm64-cross wine musl-tools``. Without one a test is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wheels import PLATFORMS, compile_for

from bertkit.engine.native.build import FLAGS, FOLDER, NEUTRAL, VARIANT, VARIANTS, compile_library
from bertkit.engine.native.library import FUNCTIONS, shipped_name
from lite_environment import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.campaign]
lief = pytest.importorskip("lief")

PROGRAMS = ROOT / "tests" / "native"
ZIG = (sys.executable, "-m", "ziglang", "cc")
#: What a library may ask of its system, besides threads: memory, text of errors, and what the processor has.
ELF = set("calloc free getauxval madvise memcpy memset mmap munmap sched_yield strcmp vsnprintf".split())
MACOS = set(
    "bzero calloc dyld_stub_binder free memcpy memset_pattern16 mmap munmap sched_yield strcmp sysctlbyname "
    "vsnprintf".split()
)
THREADS = re.compile(r"_?_?(pthread_\w+|register_atfork)")
WINDOWS = re.compile(r"KERNEL32\.dll|api-ms-win-crt-(heap|runtime|stdio|string)-l1-1-0\.dll")


@pytest.fixture(scope="module")
def libraries(once: Callable[..., Any]) -> dict[str, Path]:
    def compiled(folder: Path) -> dict[str, Path]:
        found = {}
        for platform in PLATFORMS:
            (folder / platform).mkdir()
            found[platform] = compile_for(platform, folder / platform)
        return found

    made: dict[str, Path] = once("libraries-of-platforms", compiled)
    return made


def parsed(path: Path) -> Any:
    found = lief.parse(path)
    assert found is not None
    return found


@pytest.mark.parametrize("platform", PLATFORMS)
def test_names_and_size(libraries: dict[str, Path], platform: str) -> None:
    path = libraries[platform]
    family = PLATFORMS[platform].split("-")[0]
    assert path.stat().st_size < 300_000 * len(VARIANTS[family])
    assert path.name == shipped_name(path)
    assert str(Path.home()).encode() not in path.read_bytes()
    assert str(path.parent).encode() not in path.read_bytes(), "of the machine that built it"
    found = parsed(path)
    if isinstance(found, lief.PE.Binary):
        exported = {entry.name for entry in found.get_export().entries}
    else:
        exported = {symbol.name.removeprefix("_") for symbol in found.exported_symbols}
    assert exported - {"_mh_dylib_header", "__dso_handle"} == set(FUNCTIONS)


@pytest.mark.parametrize("platform", [name for name, target in PLATFORMS.items() if "linux" in target])
def test_linux(libraries: dict[str, Path], platform: str) -> None:
    found = parsed(libraries[platform])
    for symbol in found.imported_symbols:
        assert symbol.name in ELF or THREADS.fullmatch(symbol.name), symbol.name
        version = symbol.symbol_version
        if version is not None and version.symbol_version_auxiliary is not None:
            number = version.symbol_version_auxiliary.name.removeprefix("GLIBC_")
            assert tuple(map(int, number.split("."))) <= (2, 17), symbol.name
    assert set(found.libraries) <= {"libc.so.6", "libpthread.so.0", "libm.so.6", "libc.so"}
    kinds = {segment.type: segment for segment in found.segments}
    assert lief.ELF.Segment.FLAGS.X not in kinds[lief.ELF.Segment.TYPE.GNU_STACK]
    assert lief.ELF.Segment.TYPE.GNU_RELRO in kinds
    page = 65536 if "aarch64" in platform else 4096
    assert all(each.alignment >= page for each in found.segments if each.type == lief.ELF.Segment.TYPE.LOAD)


@pytest.mark.parametrize("platform", [name for name, target in PLATFORMS.items() if "macos" in target])
def test_macos(libraries: dict[str, Path], platform: str) -> None:
    found = parsed(libraries[platform])
    for symbol in found.imported_symbols:
        name = symbol.name.lstrip("_")
        assert name in MACOS or THREADS.fullmatch(name), symbol.name
    assert [library.name for library in found.libraries] == ["@rpath/bertkit.dylib", "/usr/lib/libSystem.B.dylib"]
    assert found.build_version.minos == [11, 0, 0]
    assert found.has_code_signature == platform.endswith("arm64"), "ARM runs nothing that is not signed"
    page = 16384 if platform.endswith("arm64") else 4096
    assert all(segment.virtual_address % page == 0 for segment in found.segments)


@pytest.mark.parametrize("platform", [name for name, target in PLATFORMS.items() if "windows" in target])
def test_windows(libraries: dict[str, Path], platform: str) -> None:
    found = parsed(libraries[platform])
    assert all(WINDOWS.fullmatch(each.name) for each in found.imports), [each.name for each in found.imports]
    kinds = lief.PE.Header.MACHINE_TYPES
    assert found.header.machine == (kinds.ARM64 if platform == "win_arm64" else kinds.AMD64)
    safe = lief.PE.OptionalHeader.DLL_CHARACTERISTICS
    assert {safe.NX_COMPAT, safe.DYNAMIC_BASE, safe.HIGH_ENTROPY_VA} <= set(
        found.optional_header.dll_characteristics_lists
    )


def test_a_name_too_many_is_seen(tmp_path: Path) -> None:
    """The control: the same library, of which everything is visible."""
    flags = [flag for flag in FLAGS if flag != "-fvisibility=hidden"]
    target = tmp_path / "open.so"
    compiler = (*ZIG, "-target", PLATFORMS["musllinux_1_2_x86_64"])
    assert compile_library(compiler, target, {"plain": VARIANTS["x86_64"]["plain"]}, flags) is None
    found = parsed(target)
    assert {symbol.name for symbol in found.exported_symbols} > set(FUNCTIONS)


def test_the_same_bytes_from_cold_caches(tmp_path: Path) -> None:
    built = []
    for name in ("first", "second"):
        caches = {f"ZIG_{which}_CACHE_DIR": str(tmp_path / name / which) for which in ("GLOBAL", "LOCAL")}
        (tmp_path / name / "tmp").mkdir(parents=True)
        command = [sys.executable, str(ROOT / "packaging" / "wheels.py"), "--out", str(tmp_path / name / "dist")]
        environment = {**os.environ, **caches, "TMPDIR": str(tmp_path / name / "tmp")}
        subprocess.run(command, env=environment, check=True, capture_output=True)
        built.append({path.name: path.read_bytes() for path in (tmp_path / name / "dist").iterdir()})
        shutil.rmtree(tmp_path / name)
    assert len(built[0]) == len(PLATFORMS) + 2
    assert built[0] == built[1]


def program(source: Path, target: str, folder: Path, *more: str) -> Path:
    """A program with the library's sources and all variants in it."""
    family = target.split("-")[0]
    common = ["-target", target, "-O2", *(flag for flag in FLAGS if flag not in ("-O3", "-fPIC")), f"-I{FOLDER}"]
    objects = []
    for name, flags in VARIANTS[family].items():
        objects.append(folder / f"{name}.o")
        own = [*flags, f"-DBERTKIT_VARIANT={name}", "-c", str(FOLDER / VARIANT), "-o", str(objects[-1])]
        subprocess.run([*ZIG, *common, *own], check=True)
    listed = "-DBERTKIT_VARIANTS=" + " ".join(f"X({name})" for name in VARIANTS[family])
    made = folder / source.stem
    files = [str(FOLDER / name) for name in NEUTRAL]
    command = [*ZIG, *common, listed, *files, str(source), *map(str, objects), "-o", str(made), "-lm", *more]
    subprocess.run(command, check=True)
    return made


def needs(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}; on Debian: apt install qemu-user wine musl-tools")
    return found


def run(*command: object, **more: str) -> str:
    line = [str(part) for part in command]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, **more})
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def variants(told: str, word: str) -> set[str]:
    return {line.split()[1] for line in told.splitlines() if line.startswith(word)}


#: Processors of qemu -> the variants that they have.
ARM = {
    "max": {"neon_i8mm", "neon_dot", "neon", "plain"},
    "neoverse-n1": {"neon_dot", "neon", "plain"},
    "cortex-a53": {"neon", "plain"},
}


@pytest.fixture(scope="module")
def arm_fuzzer(once: Callable[..., Any]) -> Path:
    made: Path = once(
        "fuzzer-for-arm", lambda folder: program(PROGRAMS / "fuzz.c", "aarch64-linux-musl", folder, "-static")
    )
    return made


@pytest.mark.parametrize("processor", ARM)
def test_arm_computes_what_plain_c_does(arm_fuzzer: Path, processor: str) -> None:
    told = run(needs("qemu-aarch64"), "-cpu", processor, arm_fuzzer, 1, 200)
    assert variants(told, "ran:") == ARM[processor]
    print(told)


def test_windows_computes_what_plain_c_does(tmp_path: Path) -> None:
    wine = needs("wine")
    made = program(PROGRAMS / "fuzz.c", "x86_64-windows-gnu", tmp_path)
    told = run(wine, made, 1, 200, WINEPREFIX=str(tmp_path / "wine"), WINEDEBUG="-all")
    assert {"plain", "sse42"} <= variants(told, "ran:")
    print(told)


#: The wheel whose library a program is linked with -> the program's target, and what starts it here.
ARM_LINUX = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")
EMBEDS = {
    "musllinux_1_2_x86_64": ("x86_64-linux-musl", ()),
    "manylinux_2_17_aarch64.manylinux2014_aarch64": ("aarch64-linux-gnu.2.17", ARM_LINUX),
    "win_amd64": ("x86_64-windows-gnu", ("wine",)),
}


@pytest.mark.parametrize("platform", EMBEDS)
def test_a_program_embeds_a_text_by_the_library_of_the_wheel(
    libraries: dict[str, Path], platform: str, tmp_path: Path
) -> None:
    from embedding_program import expected_vector, write_weights

    target, starter = EMBEDS[platform]
    compiler: tuple[str, ...] = (*ZIG, "-target", target)
    if "musl" in target:
        compiler = (needs("musl-gcc"),)  # its C library is that of this machine, which zig's is not
    elif not all(Path(part).exists() for part in starter if part.startswith("/")):
        pytest.skip(f"needs {starter[-1]}; on Debian: apt install libc6-arm64-cross")
    else:
        needs(starter[0])
    ids = [3, 29, 0, 7, 7, 11, 12]
    write_weights(tmp_path / "weights")
    suffix = ".exe" if "windows" in target else ""
    library = shutil.copy(libraries[platform], tmp_path / f"bertkit{libraries[platform].suffix}")
    linked = [str(library)]
    if "windows" in target:  # which links with a list of the library's names
        names = "\n".join(["LIBRARY bertkit.dll", "EXPORTS", *FUNCTIONS])
        (tmp_path / "bertkit.def").write_text(names + "\n")
        command = [*ZIG[:-1], "dlltool", "-d", str(tmp_path / "bertkit.def"), "-l", str(tmp_path / "bertkit.lib")]
        subprocess.run([*command, "-m", "i386:x86-64"], check=True)
        linked = [str(tmp_path / "bertkit.lib")]
    made = tmp_path / f"embed{suffix}"
    where = [] if suffix else [f"-Wl,-rpath,{tmp_path}"]
    command = [*compiler, f"-I{FOLDER}", str(PROGRAMS / "embed.c"), *linked, "-o", str(made), *where]
    subprocess.run(command, check=True)
    told = run(*starter, made, tmp_path / "weights", *ids, WINEPREFIX=str(tmp_path / "wine"), WINEDEBUG="-all")
    np.testing.assert_allclose(np.array(told.split(), np.float32), expected_vector(ids), atol=1e-5)
