"""Checkpoints with a damaged file, computed by the C library: a clear error or the right answer, never a crash.

Of weights that bertkit wrote every change is seen or makes no difference. Those of others have no checksums, nor have
the files that people edit (``config.json``, vocabularies): a changed value is a value like any other, so there only a
crash or an answer that is not finite is a fault.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import pipeline
from bertkit.engine.native.library import native_library, why_not
from bertkit.engine.native.native_backend import NativeBackend
from bertkit.errors import BertkitError
from hostile_helpers import cut, flip
from pipeline_helpers import save_tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native_library() is None, reason=f"there is no compiled encoder: {why_not()}"),
]
TEXT = "the film was good ."


def answer(folder: Path) -> np.ndarray[Any, np.dtype[np.float32]]:
    pipe = pipeline("feature-extraction", str(folder), pooling="mean", device="cpu")
    assert isinstance(pipe.engine.backend, NativeBackend)
    return np.asarray(pipe(TEXT))


def foreign(folder: Path) -> Path:
    """As another library wrote it: without checksums."""
    from safetensors.numpy import load_file, save_file

    save_tiny(folder)
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("rounds", [40, pytest.param(1000, marks=pytest.mark.campaign)])
@pytest.mark.parametrize(("make", "is_ours"), [(save_tiny, True), (foreign, False)], ids=["bertkit's", "another's"])
def test_flips_and_cuts(make: Callable[[Path], Path], is_ours: bool, rounds: int, tmp_path: Path) -> None:
    folder = Path(make(tmp_path / "model"))
    right = answer(folder)
    files = sorted(path for path in folder.iterdir() if path.is_file())
    refused = same = other = 0
    for seed in range(rounds):
        draw = random.Random(seed)
        path = files[seed // 2 % len(files)] if seed % 2 else folder / "model.safetensors"
        content = bytearray(path.read_bytes())
        (flip if draw.random() < 0.8 else cut)(content, draw)
        shutil.copytree(folder, tmp_path / "damaged")
        (tmp_path / "damaged" / path.name).write_bytes(content)
        try:
            found = answer(tmp_path / "damaged")
        except BertkitError:
            refused += 1
        else:
            assert np.isfinite(found).all(), f"seed {seed}, {path.name}"
            same, other = same + np.array_equal(found, right), other + (not np.array_equal(found, right))
            if is_ours and path.name == "model.safetensors":
                assert np.array_equal(found, right), f"seed {seed}, {path.name}: another answer"
        shutil.rmtree(tmp_path / "damaged")
    assert refused > rounds / 4, "control: damage is seen"
    print(f"{rounds} damaged folders: {refused} refused, {same} with the same answer, {other} with another")
