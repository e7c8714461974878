"""Compiles the C library: with any variants by any compiler; on demand for this processor, kept in the user's cache."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

from bertkit.engine.native.library_cache import UnavailableError, find_library, keep_library, private_folder
from bertkit.system.atomic_files import draft_folder, remove_old_drafts
from bertkit.system.console import say
from bertkit.system.processor import SWITCH

FOLDER = Path(__file__).parent
DRAFT = "build"
#: Compiled once, for any processor of the kind; and once for each variant.
NEUTRAL = tuple(sorted(path.name for path in FOLDER.glob("*.c")))
VARIANT = "kernels/variant.c"
SOURCES = tuple(sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.[ch]")))
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-fvisibility=hidden")
AVX2 = ("-mavx2", "-mfma", "-mf16c")
AVX512 = (*AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl")
#: The variants of a processor family, the best first: name -> flags of the compiler. What a variant needs of a
#: processor, it says itself (``kernels/variant.c``).
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {
        "avx512_bf16": (*AVX512, "-mavx512vnni", "-mavx512vbmi", "-mavx512bf16"),
        "avx512_vbmi": (*AVX512, "-mavx512vnni", "-mavx512vbmi"),
        "avx512_vnni": (*AVX512, "-mavx512vnni"),
        "avx512": AVX512,
        "avx2_vnni": (*AVX2, "-mavxvnni"),
        "avx2": AVX2,
        "sse42": ("-msse4.2",),
        "plain": ("-DBERTKIT_PLAIN_C",),
    },
    "aarch64": {
        "neon_i8mm": ("-mcpu=generic+dotprod+i8mm+bf16",),
        "neon_dot": ("-mcpu=generic+dotprod",),
        "neon": ("-mcpu=generic",),
        "plain": ("-mcpu=generic", "-DBERTKIT_PLAIN_C"),
    },
}
#: Of ELF: the loader keeps the library when it is closed, as its workers never end.
KEPT_LOADED = ("-Wl,-z,nodelete",)
#: For this very processor, whatever that has; and the oracle of all others.
NATIVE, PLAIN = "native", "plain"
SECONDS_TO_COMPILE, SECONDS_TO_TEST = 120, 60


def family() -> str:
    """The processor family of this machine, as :data:`VARIANTS` calls it."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def library_file(folder: Path, variant: str | None = None) -> Path:
    """The library for these sources and this processor in ``folder``; built if it is not there.

    variant: its name; None: that for this very processor.
    """
    if os.name == "nt":
        raise UnavailableError("it is not built on Windows; pip install bertkit-lite brings it in a wheel")
    digest = hashlib.sha256(_processor(variant).encode())
    for name in SOURCES:
        digest.update((FOLDER / name).read_bytes())
    folder, name = private_folder(folder), f"encoder-{digest.hexdigest()[:20]}"
    remove_old_drafts(folder / DRAFT)
    return find_library(folder, name) or _build(folder, name, variants_here(variant))


def _processor(variant: str | None = None) -> str:
    """What code for this very processor depends on: a cache may be shared by machines of several kinds."""
    facts = [platform.system(), platform.machine(), *FLAGS, repr(variants_here(variant))]
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(16_384).splitlines()  # of the first processor
    except OSError:
        return " ".join([*facts, platform.processor()])
    kept = ("model name", "cpu family", "model\t", "flags", "Features", "CPU part")
    return "\n".join([*facts, *dict.fromkeys(line for line in lines if line.startswith(kept))])


def variants_here(asked: str | None = None) -> dict[str, tuple[str, ...]]:
    """The variants that are compiled on demand: for this processor, or the one asked for; and plain C."""
    known = VARIANTS.get(family(), {})
    plain = {PLAIN: known.get(PLAIN, ("-DBERTKIT_PLAIN_C",))}
    if asked is not None and asked in known:
        return {asked: known[asked], **plain}
    native = "-mcpu=native" if family() == "aarch64" else "-march=native"
    return {NATIVE: (native,), **plain}


def compilers() -> Iterator[tuple[str, ...]]:
    """The C compilers of this machine, the one that ``CC`` names first."""
    if given := os.environ.get("CC", "").split():
        yield tuple(given)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            yield (path,)
    if importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _build(folder: Path, name: str, variants: Mapping[str, Sequence[str]]) -> Path:
    tried: list[str] = []
    for compiler in compilers():
        if not tried:
            say("compiling the encoder for this processor (once; takes a few seconds)")
        with draft_folder(folder / DRAFT, 0o700) as scratch:
            draft = scratch / f"{name}.so"
            failure = compile_library(compiler, draft, variants) or _test(draft)
            if failure is None:
                return keep_library(draft, folder, name)
        tried.append(f"{' '.join(compiler)}: {failure}")
    if not tried:
        raise UnavailableError("no C compiler was found; install gcc or clang, or: pip install 'bertkit[native]'")
    raise UnavailableError(f"it could not be compiled; {'; '.join(tried)}")


def compile_library(
    compiler: Sequence[str],
    target: Path,
    variants: Mapping[str, Sequence[str]],
    flags: Sequence[str] = FLAGS,
    seconds: float | None = None,
) -> str | None:
    """Compile the sources with these variants, the best first; None, or what went wrong in one line.

    seconds: that each call of the compiler may take.
    """
    seconds = seconds or SECONDS_TO_COMPILE
    environment = {"TMPDIR": str(target.parent)}
    objects = []
    for name, own in variants.items():
        objects.append(str(target.with_name(f"{target.stem}-{name}.o")))
        variant = (*own, f"-DBERTKIT_VARIANT={name}", "-c", str(FOLDER / VARIANT), "-o", objects[-1])
        if failure := _run([*compiler, *flags, *variant], seconds, environment):
            return failure
    listed = "-DBERTKIT_VARIANTS=" + " ".join(f"X({name})" for name in variants)
    sources = [str(FOLDER / name) for name in NEUTRAL]
    command = [
        *compiler,
        *flags,
        listed,
        "-shared",
        *(KEPT_LOADED if target.suffix == ".so" and sys.platform != "darwin" else ()),
        "-o",
        str(target),
        *sources,
        *objects,
        "-pthread",
        "-lm",
    ]
    failure = _run(command, seconds, environment)
    for path in map(Path, objects):
        path.unlink(missing_ok=True)
    return failure if failure or target.exists() else "it wrote no file"


def _test(library: Path) -> str | None:
    """What is wrong with a library that was just compiled, in one line; None: nothing."""
    command = [sys.executable, "-P", "-m", "bertkit.engine.native.self_test", str(library)]
    failure = _run(command, SECONDS_TO_TEST, {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), SWITCH: "0"})
    return failure and f"the library that it wrote fails its test: {failure}"


def _run(command: Sequence[str], seconds: float, environment: Mapping[str, str]) -> str | None:
    """Run a program; None, or what went wrong in one line. One that takes too long is ended with all that it began."""
    with TemporaryFile() as said:
        try:
            with subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**os.environ, **environment},
                start_new_session=True,
            ) as process:
                try:
                    code = process.wait(seconds)
                except BaseException:
                    os.killpg(process.pid, signal.SIGKILL)
                    raise
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
    if not code:
        return None
    told = next((line for line in lines if "error" in line), (lines or [""])[-1])
    return told[:300] or (f"exit code {code}" if code > 0 else f"it ended with {signal.Signals(-code).name}")
