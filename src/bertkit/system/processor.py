"""The processor of this machine: its name, cores, instruction sets and memory.

What a kernel may use and a benchmark must name is found by each system's own means; what it does not tell is left out.
"""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bertkit.errors import ConfigError

#: Environment variable; with "build" the encoder is compiled here even if the wheel brings it; with 0 neither
#: the encoder in C (``engine/native``) nor oneDNN's products in place of MKL's (``model/kernels/products.py``) are
#: used. Products with prepacked weights are torch's either way. With a name of
#: :data:`LEVELS`, bertkit computes as on a lower processor; other libraries have switches of their own.
SWITCH = "BERTKIT_NATIVE"
#: Values of :data:`SWITCH` -> the instruction sets that are left of the processor's.
LEVELS = {"avx2": frozenset({"AVX2"}), "plain": frozenset[str]()}
#: Flag as Linux names it -> its usual name; those that decide how fast a matrix product is.
INSTRUCTION_SETS = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx_vnni": "AVX-VNNI",
    "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_int8": "AMX INT8",
    "amx_bf16": "AMX BF16",
    "asimd": "NEON",
    "asimddp": "DotProd",
    "i8mm": "I8MM",
    "bf16": "BF16",
    "sve": "SVE",
}
#: Those with products of bfloat16 numbers, and of 8-bit integers without saturation.
BF16_SETS = frozenset({"AVX-512 BF16", "AMX BF16", "BF16"})
INT8_SETS = frozenset({"AVX-VNNI", "AVX-512 VNNI", "AMX INT8", "DotProd", "I8MM"})


class Processor(NamedTuple):
    """A processor, as the system describes it; what it does not tell is empty or None.

    cores: that this process may use. vendor: such as ``GenuineIntel``, as x86 processors under Linux name it. cache:
    bytes of the last level, which cores share.
    """

    name: str
    cores: int
    instruction_sets: tuple[str, ...]
    memory: int | None
    vendor: str = ""
    cache: int | None = None

    @property
    def is_wide_without_mkl(self) -> bool:
        """Whether it has AVX-512, but MKL does not use it, because Intel did not make the processor."""
        return "AVX-512" in self.instruction_sets and self.vendor not in ("", "GenuineIntel")

    @property
    def has_bf16(self) -> bool:
        """Whether it multiplies bfloat16 numbers."""
        return not BF16_SETS.isdisjoint(self.instruction_sets)

    @property
    def has_int8(self) -> bool:
        """Whether it adds up products of 8-bit integers without saturation."""
        return not INT8_SETS.isdisjoint(self.instruction_sets)

    def to_dict(self) -> dict[str, str | int | list[str] | None]:
        """Plain data for JSON."""
        return {**self._asdict(), "instruction_sets": list(self.instruction_sets)}

    def __str__(self) -> str:
        sets = ", ".join(self.instruction_sets) or "instruction sets unknown"
        memory = "" if self.memory is None else f", {self.memory / 2**30:.0f} GB"
        return f"{self.cores} x {self.name} ({sets}){memory}"


def own_products() -> bool:
    """Whether what :data:`SWITCH` switches off may be used."""
    return _switch() != "0"


def builds_own() -> bool:
    """Whether the encoder is to be compiled on this machine even if the wheel brings one."""
    return _switch() == "build"


def level() -> str | None:
    """The one of :data:`LEVELS` that is asked for, if any."""
    return asked if (asked := _switch()) in LEVELS else None


def _switch() -> str:
    asked = os.environ.get(SWITCH) or "1"
    if asked not in ("0", "1", "build", *LEVELS):
        names = ", ".join(("0", "1", "build", *LEVELS))
        raise ConfigError(f"{SWITCH} is {asked!r} in the environment, expected one of {names}")
    return asked


@cache
def find_processor() -> Processor:
    """The processor of this machine."""
    info = Path("/proc/cpuinfo")
    vendor = ""
    if info.exists():
        name, vendor, flags = read_cpuinfo(info.read_text(encoding="utf-8", errors="replace"))
    elif sys.platform == "darwin":
        name, flags = _sysctl("machdep.cpu.brand_string"), _mac_flags()
    else:
        name, flags = "", set()
    sets = tuple(shown for flag, shown in INSTRUCTION_SETS.items() if flag in flags)
    if lower := level():
        sets = tuple(shown for shown in sets if shown in LEVELS[lower])
    name = name or platform.processor() or platform.machine()
    return Processor(name, usable_cores(), sets, _memory(), vendor, _last_cache())


def read_cpuinfo(text: str) -> tuple[str, str, set[str]]:
    """Name, vendor and flags of the first processor in Linux's ``/proc/cpuinfo``; ARM machines mostly lack a name."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    return facts.get("model name", ""), facts.get("vendor_id", ""), set(flags)


def _mac_flags() -> set[str]:
    """Apple's answers in Linux's names."""
    if platform.machine() == "x86_64":
        return set(_sysctl("machdep.cpu.leaf7_features").lower().split())
    answers = {"asimddp": "FEAT_DotProd", "i8mm": "FEAT_I8MM", "bf16": "FEAT_BF16"}
    return {"asimd", *(flag for flag, key in answers.items() if _sysctl(f"hw.optional.arm.{key}") == "1")}


def _sysctl(key: str) -> str:
    import subprocess

    return subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, check=False).stdout.strip()


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows
        return None


def _last_cache() -> int | None:
    sizes = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))  # by level
    try:
        text = sizes[-1].read_text(encoding="ascii").strip()
        return int(text.removesuffix("K")) * 1024
    except (IndexError, OSError, ValueError):
        return None
