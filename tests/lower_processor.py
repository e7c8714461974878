"""Run a command as a lower processor would: ``python tests/lower_processor.py avx2|plain COMMAND ...``, no root needed.

Every library that chooses its code by the processor has a switch of its own; here they stand together. ONNX Runtime has
none and goes on as the processor can.
"""

from __future__ import annotations

import os
import sys

#: Level -> what each library wants to be told: torch, oneDNN, MKL, OpenBLAS, and bertkit itself.
SWITCHES = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
        "BERTKIT_NATIVE": "avx2",
    },
    "plain": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "OPENBLAS_CORETYPE": "Nehalem",
        "BERTKIT_NATIVE": "plain",
    },
}
#: What AVX2 has of numpy's features, which have changed their names; see :func:`numpy_features`.
AVX2_FEATURES = frozenset({"AVX", "AVX2", "F16C", "FMA3", "FMA4", "XOP", "X86_V3"})


def numpy_features(level: str) -> list[str]:
    """What numpy is to leave out: only what it has code for and the processor can may be named, else it complains."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    kept = AVX2_FEATURES if level == "avx2" else frozenset[str]()
    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name) and name not in kept]


def environment(level: str) -> dict[str, str]:
    """The variables that make libraries compute as on a processor of this level."""
    return {**SWITCHES[level], "NPY_DISABLE_CPU_FEATURES": ",".join(numpy_features(level))}


def main(arguments: list[str]) -> None:
    if len(arguments) < 2 or arguments[0] not in SWITCHES:
        sys.exit(f"usage: python {sys.argv[0]} {'|'.join(SWITCHES)} COMMAND ...; got {arguments}")
    level, *command = arguments
    os.environ.pop("NPY_DISABLE_CPU_FEATURES", None)
    os.execvpe(command[0], command, {**os.environ, **environment(level)})


if __name__ == "__main__":
    main(sys.argv[1:])
