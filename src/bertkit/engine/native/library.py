"""Finds the C library, in the wheel or built for this machine, loads it, and chooses a variant.

A wheel for this platform has it in the folder ``lib``. Its file's name ends in the CRC-32 of its content, so that a
damaged one is not run. Where there is none, or it cannot be loaded, ``build.py`` compiles one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from ctypes import Structure, c_char, c_char_p, c_float, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import ClassVar, NamedTuple
from zlib import crc32

from bertkit import __version__
from bertkit.engine.native.library_cache import UnavailableError
from bertkit.errors import ConfigError, ResourceError
from bertkit.system.console import say_once
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.paths import cache_root
from bertkit.system.processor import SWITCH, builds_own, level, own_products
from bertkit.weights.parts import WeightType

#: Environment variable: the variant that is to compute, by name.
VARIANT_SWITCH = "BERTKIT_CPU"
#: Of the wheel: one file, :func:`shipped_name`.
SHIPPED = Path(__file__).parent / "lib"
#: As the library numbers them; 4: in 8 bits.
KINDS: dict[WeightType, int] = {"float32": 0, "float24": 1, "float16": 2, "bfloat16": 3}
#: The present version of ``bertkit.h``.
VERSION = 7

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
    "bertkit_pool": (c_int32, (c_int32, c_int32, _P, _P, c_int32, c_int32, _P, _P)),
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


class NativeLibrary(NamedTuple):
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
    if not own_products():
        return f"{SWITCH}=0 switches it off"
    try:
        found = None if builds_own() else _shipped()
        return found or _built()
    except (UnavailableError, OSError) as error:
        return str(error)


def _shipped() -> NativeLibrary | None:
    """That of the wheel; None if there is none, or if it cannot be used, which is said."""
    faults = []
    if not any(SHIPPED.glob(f"bertkit-{__version__}-*")) and (others := sorted(SHIPPED.glob("bertkit-*"))):
        faults.append(f"{others[0]} is of another version, not {__version__}")
    for path in sorted(SHIPPED.glob(f"bertkit-{__version__}-*")):
        try:
            if path.name != shipped_name(path):
                raise UnavailableError(f"{path} is damaged")
            return _chosen(load(path))
        except (UnavailableError, OSError) as error:
            faults.append(str(error))
    if faults:
        reasons = "; ".join(faults)
        say_once(f"the compiled encoder of this installation cannot be used ({reasons}); reinstall bertkit-lite")
    return None


def shipped_name(path: Path) -> str:
    """What a library with the content of this file is called in a wheel."""
    return f"bertkit-{__version__}-{crc32(path.read_bytes()):08x}{path.suffix}"


def _built() -> NativeLibrary:
    from bertkit.engine.native.build import NATIVE, VARIANTS, family, library_file

    asked = os.environ.get(VARIANT_SWITCH)
    names = (NATIVE, *VARIANTS.get(family(), ()))
    if asked and asked not in names:
        raise ConfigError(f"{VARIANT_SWITCH} is {asked!r} in the environment; on this machine: {', '.join(names)}")
    return _chosen(load(library_file(cache_root() / "native", asked or level())))


def _chosen(library: NativeLibrary) -> NativeLibrary:
    """With the variant that the environment asks for: by name, or as the best of a lower processor."""
    running = [info.name.decode() for info in library.variants() if info.runs]
    if asked := os.environ.get(VARIANT_SWITCH):
        if asked not in running:
            raise ConfigError(f"{VARIANT_SWITCH} is {asked!r} in the environment; here run: {', '.join(running)}")
        return library.with_variant(asked)
    lower = level()
    return library.with_variant(lower) if lower is not None and lower in running else library


def load(path: Path, variant: str | None = None) -> NativeLibrary:
    """Load a library of this version, with a variant by name, or the best that runs here."""
    try:
        functions = ctypes.CDLL(str(path))
        version = functions.bertkit_api_version()
        if version != VERSION:
            raise UnavailableError(f"{path} has version {version}, not {VERSION}; delete it or reinstall bertkit-lite")
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(functions, name)
            function.restype, function.argtypes = result, list(arguments)
    except (OSError, AttributeError) as error:
        raise UnavailableError(f"{path} cannot be loaded: {error}; delete it or reinstall bertkit-lite") from None
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
