"""``bertkit doctor``: versions, devices and packages of this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit import __version__
from bertkit.checkpoints.inspect import inspect
from bertkit.cli.common_options import Common, write_json, write_line
from bertkit.errors import CheckpointError
from bertkit.system.model_sources import INCLUDED, included_model
from bertkit.system.processor import find_processor

#: The one that requires everything, and the one that holds the code.
DISTRIBUTIONS = ("bertkit", "bertkit-lite")
_EXTRA = re.compile(r"""extra == ["']([\w-]+)["']""")
VARIABLES = (
    "BERTKIT_CPU", "BERTKIT_NATIVE", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "OMP_NUM_THREADS", "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)  # fmt: skip


def doctor(
    *,
    clear_cache: Annotated[
        bool, Parameter(negative=(), help="Delete the cached features of frozen encoders, then report.")
    ] = False,
    common: Common = Common(),
) -> int:
    """Show versions, threads, devices, packages, the included model and the feature cache, for a bug report.

    Exit code 5 if a required package is missing.

    For example:

        bertkit doctor
    """
    from bertkit.training.finetuning import feature_cache

    if clear_cache:
        feature_cache.clear_cache()
    installed = {name: found for name in DISTRIBUTIONS if (found := _requirements(name)) is not None}
    declared = _declared([line for lines in installed.values() for line in lines])
    required = {name: _version(name) for name in declared.pop("", [])}
    report: dict[str, Any] = {
        "bertkit": __version__,
        "distributions": list(installed),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processor": find_processor().to_dict(),
        "compiled_encoder": _compiled_encoder(),
        "packages": required,
        "extras": {extra: {name: _version(name) for name in names} for extra, names in declared.items()},
        "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "included_model": _included_model(),
        "feature_cache": feature_cache.describe_cache(),
    }
    if required.get("torch") is not None and importlib.util.find_spec("torch") is not None:
        report["torch"] = _look_at_torch()
    if common.json:
        write_json(report)
    else:
        _print(report)
    missing = [name for name, found in required.items() if found is None]
    if missing:
        sys.stderr.write(f"bertkit doctor: missing: {', '.join(missing)}. Run: pip install {' '.join(installed)}\n")
    return 5 if missing else 0


def _compiled_encoder() -> str:
    from bertkit.engine.native.library import native_library, why_not

    found = native_library()
    return f"none: {why_not()}" if found is None else f"{found} ({found.path})"


def _included_model() -> str:
    try:
        found = inspect(included_model())
    except CheckpointError as error:
        return f"UNUSABLE: {error}"
    if not found.loadable:
        return f"UNUSABLE: {'; '.join(found.problems)}"
    weights = ", ".join(f"sha256 of {file.name} {file.sha256}" for file in found.files)
    return f"{INCLUDED} ({found.path}), {found.num_parameters:,} parameters, {weights}"


def _requirements(distribution: str) -> list[str] | None:
    try:
        return requires(distribution) or []
    except PackageNotFoundError:
        return None


def _declared(requirements: Sequence[str]) -> dict[str, list[str]]:
    """The packages by extra; under "" those that are always needed."""
    found: dict[str, list[str]] = {}
    for requirement in requirements:
        extra = _EXTRA.search(requirement)
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None, requirement
        found.setdefault(extra[1] if extra else "", []).append(name[0])
    found.pop("dev", None)
    return found


def _look_at_torch() -> dict[str, Any]:
    import torch

    gpus = [f"cuda:{number} {torch.cuda.get_device_name(number)}" for number in range(torch.cuda.device_count())]
    return {
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": torch.backends.mkl.is_available(),
        "onednn": torch.backends.mkldnn.is_available(),
        "devices": ["cpu", *gpus],
    }


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
