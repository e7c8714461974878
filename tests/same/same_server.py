"""Run inside one tree by ``make same``: starts each job as a process of its own, without its second of imports.

Other people's packages are imported once; each job is then forked off, with nothing of this package loaded. A job is a
line of JSON on standard input (``argv``; ``stdin``, ``stdout``, ``stderr``: files; ``environment``: variables of its
own); the answer is its exit code and the seconds of processor time that it took.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from importlib import import_module

PACKAGES = (
    "torch torch._dynamo torch._refs torch.export torch.onnx torch.fx.experimental.symbolic_shapes numpy scipy.stats "
    "sklearn.feature_extraction.text sklearn.linear_model pyarrow.parquet pyarrow.dataset pydantic cyclopts "
    "rich.progress tokenizers safetensors.torch huggingface_hub.hf_api nupunkt onnx onnxscript matplotlib.pyplot "
    "seaborn"
)


def main() -> None:
    for package in PACKAGES.split():
        with contextlib.suppress(ImportError):  # an extra that is not installed
            import_module(package)
    assert "bertkit" not in sys.modules
    for line in sys.stdin:
        job = json.loads(line)
        sys.stdout.flush()
        number = os.fork()
        if number == 0:
            become(job)
            return
        _, status, used = os.wait4(number, 0)
        print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, flush=True)


def become(job: dict[str, object]) -> None:
    """Be ``python -m bertkit ARGUMENTS``, or ``python SCRIPT ARGUMENTS``."""
    for stream, (key, flags) in enumerate(
        (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY | os.O_CREAT), ("stderr", os.O_WRONLY | os.O_CREAT))
    ):
        opened = os.open(str(job[key]), flags, 0o644)
        os.dup2(opened, stream)
        os.close(opened)
    os.environ.update(job["environment"])  # type: ignore[call-overload]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # what was read ahead were other jobs
    arguments = list(job["argv"])  # type: ignore[call-overload]
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        sys.argv = ["bertkit", *arguments]
        runpy.run_module("bertkit", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
