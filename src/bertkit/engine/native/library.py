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
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import Structure, c_char, c_char_p, c_float, c_int32, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar

from bertkit.engine.native.library_cache import UnavailableError, find_library, keep_library, private_folder
from bertkit.errors import ResourceError
from bertkit.system.atomic_files import draft_folder, remove_old_drafts
from bertkit.system.console import say
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.paths import cache_root
from bertkit.system.processor import SWITCH, level, own_products
from bertkit.weights.parts import WeightType

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
        "avx512_vnni": (*AVX512, "-mavx512vnni"),
        "avx512": AVX512,
        "avx2_vnni": (*AVX2, "-mavxvnni"),
        "avx2": AVX2,
        "plain": ("-DBERTKIT_PLAIN_C",),
    }
}
#: As the library numbers them; 4: in 8 bits.
KINDS: dict[WeightType, int] = {"float32": 0, "float24": 1, "float16": 2, "bfloat16": 3}
#: For this very processor, whatever that has; and the oracle of all others.
NATIVE, PLAIN = "native", "plain"
#: The present version of ``bertkit.h``.
VERSION = 4
SECONDS_TO_COMPILE, SECONDS_TO_TEST = 120, 60

_P = c_void_p
#: The functions of ``bertkit.h``: result and arguments. Addresses are numbers, which cost the least in a call.
FUNCTIONS: dict[str, tuple[type | None, tuple[type, ...]]] = {
    "bertkit_api_version": (c_int32, ()),
    "bertkit_build_info": (c_char_p, ()),
    "bertkit_status_name": (c_char_p, (c_int32,)),
    "bertkit_num_variants": (c_int32, ()),
    "bertkit_variant_info_of": (c_int32, (c_int32, _P, _P)),
    "bertkit_find_variant": (c_int32, (c_char_p, _P, _P)),
    "bertkit_builder_new": (c_int32, (_P, c_int32, _P, _P)),
    "bertkit_builder_set_matrix": (c_int32, (_P, c_int32, c_int32, _P, _P)),
    "bertkit_builder_add_matrix": (c_int32, (_P, _P, _P, _P)),
    "bertkit_builder_set_norm": (c_int32, (_P, c_int32, c_int32, _P, _P, _P)),
    "bertkit_builder_set_attention": (c_int32, (_P, c_int32, c_int32, c_int32, c_int32, _P, _P, _P)),
    "bertkit_builder_seal": (c_int32, (_P, _P, _P)),
    "bertkit_builder_free": (None, (_P,)),
    "bertkit_encoder_free": (None, (_P,)),
    "bertkit_encode": (c_int32, (_P, _P, _P, c_int32, _P)),
    "bertkit_multiply": (c_int32, (_P, c_int32, _P, c_int32, c_int32, _P, _P)),
    "bertkit_embed": (c_int32, (c_int32, c_int32, _P, _P, c_int32, c_int32, c_float, _P, _P, _P, _P)),
}
OK, NO_MEMORY, NO_ROW = 0, 30, 50


class NativeErrorText(Structure):
    """``bertkit_error``."""

    _fields_: ClassVar = [("status", c_int32), ("text", c_char * 252)]


class VariantInfo(Structure):
    """``bertkit_variant_info``."""

    _fields_: ClassVar = [
        ("struct_size", c_size_t), ("name", c_char_p), ("runs", c_int32), ("lanes", c_int32), ("kinds", c_int32),
        ("fast_bytes", c_int32), ("lacks", c_char_p),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class NativeLibrary:
    """The library, loaded, and one of its variants.

    variant, name: of the variant. lanes: floats in one of its vectors. fast_bytes: whether it multiplies bytes faster
    than floats.
    """

    path: Path
    functions: ctypes.CDLL
    variant: int
    name: str
    lanes: int
    fast_bytes: bool
    bf16: bool

    def __str__(self) -> str:
        extras = [name for name, there in (("bf16", self.bf16), ("int8", self.fast_bytes)) if there]
        products = f", {' and '.join(extras)} products" if extras else ""
        return f"{32 * self.lanes}-bit vectors{products}, variant {self.name}"

    def with_variant(self, name: str) -> NativeLibrary:
        """The same library with another variant; UnavailableError if it has none of this name that runs here."""
        return _with_variant(self.path, self.functions, name)

    def variants(self) -> list[VariantInfo]:
        """All variants, the best first, also those that do not run here."""
        found = []
        for number in range(self.functions.bertkit_num_variants()):
            info = VariantInfo(struct_size=ctypes.sizeof(VariantInfo))
            check(self.functions, self.functions.bertkit_variant_info_of, number, ctypes.addressof(info))
            found.append(info)
        return found


def check(functions: ctypes.CDLL, function: Callable[..., int], *arguments: object) -> None:
    """Call a function of the library that can fail; its last argument, the error, is added here.

    Raises:
        ResourceError: no memory.
        AssertionError: another status, with the library's text: Python gave it wrong arguments.
    """
    error = NativeErrorText()
    status = function(*arguments, ctypes.addressof(error))
    if status == OK:
        return
    if status == NO_MEMORY:
        raise ResourceError(f"{error.text.decode()}: use shorter texts, a smaller model or fewer threads")
    name = functions.bertkit_status_name(status).decode()
    raise AssertionError(f"{name}: {error.text.decode(errors='replace')}")


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
    facts = [platform.system(), platform.machine(), *FLAGS, repr(variants_here())]
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = file.read(16_384).splitlines()  # of the first processor
    except OSError:
        return " ".join([*facts, platform.processor()])
    kept = ("model name", "cpu family", "model\t", "flags", "Features", "CPU part")
    return "\n".join([*facts, *dict.fromkeys(line for line in lines if line.startswith(kept))])


def variants_here() -> dict[str, tuple[str, ...]]:
    """The variants that are compiled on demand: for this processor, or a lower one as ``SWITCH`` says; and plain C."""
    known, asked = VARIANTS.get(platform.machine(), {}), level()
    plain = {PLAIN: known.get(PLAIN, ("-DBERTKIT_PLAIN_C",))}
    if asked is not None and asked in known:
        return {asked: known[asked], **plain}
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
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


def _build(folder: Path, name: str) -> Path:
    tried: list[str] = []
    for compiler in compilers():
        if not tried:
            say("compiling the encoder for this processor (once; takes a few seconds)")
        with draft_folder(folder / DRAFT, 0o700) as scratch:
            draft = scratch / f"{name}.so"
            failure = compile_library(compiler, draft, variants_here()) or _test(draft)
            if failure is None:
                return keep_library(draft, folder, name)
        tried.append(f"{' '.join(compiler)}: {failure}")
    if not tried:
        raise UnavailableError("no C compiler was found; install gcc or clang, or: pip install 'bertkit[native]'")
    raise UnavailableError(f"it could not be compiled; {'; '.join(tried)}")


def compile_library(
    compiler: Sequence[str], target: Path, variants: Mapping[str, Sequence[str]], flags: Sequence[str] = FLAGS
) -> str | None:
    """Compile the sources with these variants, the best first; None, or what went wrong in one line."""
    environment = {"TMPDIR": str(target.parent)}
    objects = []
    for name, own in variants.items():
        objects.append(str(target.with_name(f"{target.stem}-{name}.o")))
        variant = (*own, f"-DBERTKIT_VARIANT={name}", "-c", str(FOLDER / VARIANT), "-o", objects[-1])
        if failure := _run([*compiler, *flags, *variant], SECONDS_TO_COMPILE, environment):
            return failure
    listed = "-DBERTKIT_VARIANTS=" + " ".join(f"X({name})" for name in variants)
    sources = [str(FOLDER / name) for name in NEUTRAL]
    command = [
        *compiler,
        *flags,
        listed,
        "-shared",
        "-o",
        str(target),
        *sources,
        *objects,
        "-pthread",
        "-lm",
    ]
    failure = _run(command, SECONDS_TO_COMPILE, environment)
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


def load(path: Path, variant: str | None = None) -> NativeLibrary:
    """Load a library of this version, with a variant by name, or the best that runs here."""
    try:
        functions = ctypes.CDLL(str(path))
        version = functions.bertkit_api_version()
        if version != VERSION:
            raise UnavailableError(f"{path} has version {version}, not {VERSION}; delete it to have it built again")
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, list(arguments)
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"{path} cannot be loaded: {error}; delete it to have it built again") from None
    return _with_variant(path, functions, variant)


def _with_variant(path: Path, functions: ctypes.CDLL, name: str | None) -> NativeLibrary:
    number, error = c_int32(), NativeErrorText()
    asked = None if name is None else name.encode()
    if functions.bertkit_find_variant(asked, ctypes.addressof(number), ctypes.addressof(error)):
        raise UnavailableError(error.text.decode(errors="replace"))
    info = VariantInfo(struct_size=ctypes.sizeof(VariantInfo))
    check(functions, functions.bertkit_variant_info_of, number.value, ctypes.addressof(info))
    bf16 = bool(info.kinds >> KINDS["bfloat16"] & 1)
    return NativeLibrary(path, functions, number.value, info.name.decode(), info.lanes, bool(info.fast_bytes), bf16)
