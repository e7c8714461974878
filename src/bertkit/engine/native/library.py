"""Builds the C library once for this processor, keeps it in the user's cache, and loads it."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, c_float, c_int, c_int8, c_int32, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

from bertkit.engine.native.library_cache import UnavailableError, find_library, keep_library, private_folder
from bertkit.system.atomic_files import draft_folder, remove_old_drafts
from bertkit.system.console import say
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.paths import cache_root
from bertkit.system.processor import SWITCH, level, own_products

FOLDER = Path(__file__).parent
DRAFT = "build"
#: What is compiled; the others are included in it.
MAIN = "encoder.c"
SOURCES = (MAIN, "attention.h", "memory.h", "model.h", "products.h", "simd.h", "threads.h", "workspaces.h")
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared")
#: Flags for a lower processor than this one; see ``SWITCH``.
LEVEL_FLAGS = {"avx2": ("-mavx2", "-mfma", "-mf16c"), "plain": ("-DBERTKIT_PLAIN_C",)}
#: That of the sources; another one in a library means that it belongs to other sources.
VERSION = 2
SECONDS_TO_COMPILE, SECONDS_TO_TEST = 120, 60

_Floats = POINTER(c_float)
_Numbers = POINTER(c_int32)
FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "bertkit_version": (c_int, ()),
    "bertkit_features": (c_int, ()),
    "bertkit_new": (c_void_p, (c_int, c_int, _Numbers, c_int, c_int, c_int, c_int, c_float, c_int)),
    "bertkit_free": (None, (c_void_p,)),
    "bertkit_set_matrix": (c_int, (c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p, _Floats, c_float)),
    "bertkit_set_bytes": (
        c_int,
        (c_void_p, c_int, c_int, c_int, c_int, POINTER(c_int8), *[_Floats] * 4, c_int, c_int, _Numbers, _Floats),
    ),
    "bertkit_set_norm": (c_int, (c_void_p, c_int, c_int, _Floats, _Floats)),
    "bertkit_set_scores": (None, (c_void_p, c_int, c_int, c_int)),
    "bertkit_set_distances": (c_int, (c_void_p, c_int, c_int, _Floats, _Floats)),
    "bertkit_embed": (c_int, (c_int, *[c_void_p] * 5, c_int, c_int, c_float, c_void_p, c_void_p, c_void_p)),
    # Called for every text, with addresses as numbers, which cost the least.
    "bertkit_encode": (c_int, (c_void_p, c_void_p, c_int, *[c_void_p] * 5, c_int)),
}


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """The library, loaded.

    lanes: floats in one vector of the processor. fast_bytes: whether it multiplies bytes faster than floats.
    """

    path: Path
    functions: ctypes.CDLL
    lanes: int
    fast_bytes: bool
    bf16: bool

    def __str__(self) -> str:
        extras = [name for name, there in (("bf16", self.bf16), ("int8", self.fast_bytes)) if there]
        return f"{32 * self.lanes}-bit vectors" + (f", {' and '.join(extras)} products" if extras else "")


def native_library() -> NativeLibrary | None:
    """The library, built if need be; None where it cannot be had, for the reason that :func:`why_not` gives."""
    found = _outcome()
    return found if isinstance(found, NativeLibrary) else None


def why_not() -> str | None:
    """Why there is no library; None if there is one."""
    found = _outcome()
    return found if isinstance(found, str) else None


_lock = ForkSafeLock()


def _outcome() -> NativeLibrary | str:
    """That of the attempt, which threads that need the library at once make once."""
    with _lock:
        return _attempt()


@cache
def _attempt() -> NativeLibrary | str:
    try:
        return load(library_file(cache_root() / "native"))
    except (UnavailableError, OSError) as error:
        return str(error)


def library_file(folder: Path) -> Path:
    """The library for these sources and this processor in ``folder``; built if it is not there."""
    if not own_products():
        raise UnavailableError(f"{SWITCH}=0 switches it off")
    if os.name == "nt":
        raise UnavailableError("it is not built on Windows")
    digest = hashlib.sha256(_processor().encode())
    for name in SOURCES:
        digest.update((FOLDER / name).read_bytes())
    folder, name = private_folder(folder), f"encoder-{digest.hexdigest()[:20]}"
    remove_old_drafts(folder / DRAFT)
    return find_library(folder, name) or _build(folder, name)


def _processor() -> str:
    """What code for this very processor depends on: a cache may be shared by machines of several kinds."""
    facts = [platform.system(), platform.machine(), *FLAGS, *_level_flags()]
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(16_384).splitlines()  # of the first processor
    except OSError:
        return " ".join([*facts, platform.processor()])
    kept = ("model name", "cpu family", "model\t", "flags", "Features", "CPU part")
    return "\n".join([*facts, *dict.fromkeys(line for line in lines if line.startswith(kept))])


def _level_flags() -> tuple[str, ...]:
    return LEVEL_FLAGS.get(level() or "", ())


def compilers() -> Iterator[tuple[str, ...]]:
    """The C compilers of this machine, the one that ``CC`` names first."""
    if given := os.environ.get("CC", "").split():
        yield tuple(given)
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            yield (path,)
    if importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _build(folder: Path, name: str) -> Path:
    tried: list[str] = []
    for compiler in compilers():
        if not tried:
            say("compiling the encoder for this processor (once; takes a few seconds)")
        with draft_folder(folder / DRAFT, 0o700) as scratch:
            draft = scratch / f"{name}.so"
            failure = compile_library(compiler, draft, _level_flags()) or _test(draft)
            if failure is None:
                return keep_library(draft, folder, name)
        tried.append(f"{' '.join(compiler)}: {failure}")
    if not tried:
        raise UnavailableError("no C compiler was found; install gcc or clang, or: pip install 'bertkit[native]'")
    raise UnavailableError(f"it could not be compiled; {'; '.join(tried)}")


def compile_library(compiler: Sequence[str], target: Path, flags: Sequence[str] = ()) -> str | None:
    """Compile the sources for this processor, or as ``flags`` say; None, or what went wrong in one line."""
    native = () if flags else ("-mcpu=native",) if platform.machine() in ("aarch64", "arm64") else ("-march=native",)
    command = [*compiler, *FLAGS, *native, *flags, "-o", str(target), str(FOLDER / MAIN), "-pthread", "-lm"]
    failure = _run(command, SECONDS_TO_COMPILE, {"TMPDIR": str(target.parent)})
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


def load(path: Path) -> NativeLibrary:
    """Load a library that was built from these sources."""
    try:
        functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, list(arguments)
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"{path} cannot be loaded: {error}; delete it to have it built again") from None
    if functions.bertkit_version() != VERSION:
        raise UnavailableError(f"{path} belongs to another version; delete it to have it built again")
    features = functions.bertkit_features()
    return NativeLibrary(path, functions, features % 32, bool(features & 32), bool(features & 64))
