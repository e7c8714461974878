"""Names of the files with weights in a folder."""

from __future__ import annotations

import os
from pathlib import Path

WEIGHTS = "model.safetensors"
#: Where a model is that other software would compute otherwise, mostly by its pooling, and must not find; see
#: ``OWN_MODEL_TYPE``.
POOLED_WEIGHTS = "model-pooled.safetensors"
INDEX = "model.safetensors.index.json"
#: A model in 8 bits: its weights, and beside them what was measured.
INT8_WEIGHTS, INT8_FACTS = "model.int8.safetensors", "quantization.json"


def single_file(path: Path) -> Path | None:
    """The file that has all weights of a folder, in 8 bits too, or a path that is one itself; None: there is none."""
    if path.suffix == ".safetensors":
        return path
    names = (WEIGHTS, POOLED_WEIGHTS, INT8_WEIGHTS)
    return next((path / name for name in names if os.path.lexists(path / name)), None)
