r"""Run a benchmark as on a processor with AVX2 and no AVX-512, for bertkit and its peers alike.

    python benchmarks/avx2_only.py --work avx2 --peers PEERS -- \
        python benchmarks/cpu_engine.py --peers-python avx2/peers/bin/python --models MiniLM-L6

``PEERS`` is a virtual environment with ONNX Runtime, OpenVINO and CTranslate2. Not all of these can be told to leave
AVX-512 alone, so WORK gets a copy of it in which every ``cpuid`` instruction of their libraries is a trap
(``int3; nop``), and a library that answers it as the processor does, without AVX-512 (``avx2_only.c``). The rest has
a switch: torch, oneDNN and MKL an environment variable, the compiler ``-march``, bertkit ``/proc/cpuinfo``, over which
another file is mounted for the command alone. Linux on x86-64, as root, with gcc and objdump.

What runs is AVX2 code, bertkit's compiled for a Zen 3, on a processor that has more: its caches, clock and memory are
its own. Zen 4 computes a 512-bit product in two halves, and the same number of products a cycle either way.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Libraries of the peers that look at the processor; from the folder of packages.
LIBRARIES = (
    "onnxruntime/capi/onnxruntime_pybind11_state*.so",
    "openvino/libs/libopenvino.so*",
    "openvino/libs/libopenvino_intel_cpu_plugin.so",
    "openvino/libs/libtbb.so*",
    "ctranslate2.libs/libctranslate2*",
)
CPUID, TRAP = b"\x0f\xa2", b"\xcc\x90"
#: Flags of /proc/cpuinfo that such a processor lacks.
NEWER = re.compile(r"\b(?:avx512|avx_vnni|avx10|amx_)\w*\b ?")
SWITCHES = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the copy; the same one is used again")
    parser.add_argument("--peers", type=Path, required=True, help="virtual environment of the peers")
    parser.add_argument("command", nargs="+", help="what to run, after --")
    args = parser.parse_args()
    work = args.work.resolve()
    peers = work / "peers"
    if not peers.exists():
        draft = work / "peers-unfinished"
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(args.peers, draft, symlinks=True)
        for pattern in LIBRARIES:
            for library in sorted(draft.glob(f"lib/python3*/site-packages/{pattern}")):
                print(f"{library.name}: {set_traps(library)} cpuid instructions", file=sys.stderr)
        draft.rename(peers)
    answers, flags, compiler = (work / name for name in ("avx2_only.so", "cpuinfo", "cc"))
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", answers, source], check=True)
    flags.write_text(NEWER.sub("", Path("/proc/cpuinfo").read_text(encoding="utf-8")), encoding="utf-8")
    compiler.write_text('#!/bin/sh\nexec gcc "$@" -march=znver3\n', encoding="utf-8")
    compiler.chmod(0o755)
    environment = {**os.environ, **SWITCHES, "LD_PRELOAD": str(answers), "CC": str(compiler)}
    environment["XDG_CACHE_HOME"] = str(work / "cache")
    mounted = f'mount --bind "{flags}" /proc/cpuinfo && exec "$@"'
    os.execvpe("unshare", ["unshare", "--mount", "sh", "-c", mounted, "sh", *args.command], environment)


def set_traps(library: Path) -> int:
    """Replace the cpuid instructions of a library; how many there were."""
    sections = []
    for line in objdump("--section-headers", "--wide", str(library)):
        fields = line.split()
        if "CODE" in line and fields[0].isdigit():
            size, address, _, offset = (int(field, 16) for field in fields[2:6])
            sections.append((address, size, offset))
    content = bytearray(library.read_bytes())
    found = 0
    for line in objdump("--disassemble", "--no-show-raw-insn", str(library)):
        if "\tcpuid" not in line:
            continue
        place = int(line.partition(":")[0], 16)
        at = next(offset + place - address for address, size, offset in sections if address <= place < address + size)
        assert content[at : at + 2] == CPUID, f"{library}: {line}"
        content[at : at + 2] = TRAP
        found += 1
    library.write_bytes(content)
    return found


def objdump(*arguments: str) -> Iterator[str]:
    """Its lines, one by one: a disassembled library is a gigabyte of text."""
    with subprocess.Popen(["objdump", *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        sys.exit(f"objdump failed: {' '.join(arguments)}")


if __name__ == "__main__":
    main()
