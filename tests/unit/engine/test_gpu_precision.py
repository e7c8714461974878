"""What computes on a GPU by default, and that a GPU's process builds nothing for the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertkit import BertConfig, BertModel
from bertkit.engine.gpu_precision import half_type, half_type_of

SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        (None, None),  # no NVIDIA GPU
        ((6, 1), None),  # Pascal: products in 16 bits are slow
        ((7, 0), torch.float16),  # Volta
        ((7, 5), torch.float16),  # Turing
        ((8, 0), torch.bfloat16),  # Ampere
        ((9, 0), torch.bfloat16),  # Hopper
        ((12, 0), torch.bfloat16),  # Blackwell
    ],
)
def test_the_type_by_capability(capability: tuple[int, int] | None, expected: torch.dtype | None) -> None:
    assert half_type_of(capability) == expected


@pytest.mark.parametrize("place", ["cpu", "meta"])
def test_other_devices_keep_float32(place: str) -> None:
    assert half_type(torch.device(place)) is None


#: Uses a model on two other devices than a CPU, and counts how often the C library was asked for.
SCRIPT = """
import sys
import numpy as np
from bertkit import BertModel
from bertkit.engine.backend import Wanted
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native.library import _attempt
from bertkit.errors import ConfigError
from bertkit.ragged import Ragged
rows = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 3]), np.zeros(3, np.int8), np.array([3]))
wanted = Wanted(("last_hidden_state",), ("mean",))
def ask(place):
    if place == "cpu":
        return InferenceEngine.load(__import__("pathlib").Path(sys.argv[1]), "BertModel", device=place)
    if place == "cuda":
        return InferenceEngine.load(__import__("pathlib").Path(sys.argv[1]), "BertModel", device="cuda:7")
    return InferenceEngine.of(BertModel.from_pretrained(sys.argv[1]).to(place))
for place in sys.argv[2:]:
    try:
        ask(place).row_outputs(rows, wanted)
    except (RuntimeError, ConfigError) as error:
        print(place, type(error).__name__, str(error).splitlines()[0])
print(_attempt.cache_info().misses)
"""


@pytest.mark.campaign
def test_no_library_is_built_for_another_device(tmp_path: Path) -> None:
    """A GPU that is not there, and torch's device without memory, where torch says that it cannot compute."""
    BertModel(BertConfig(vocab_size=50, **SHAPE)).save_pretrained(tmp_path / "model")

    def asked(*places: str) -> list[str]:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "model"), *places]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()

    missing, meta, count = asked("cuda", "meta")
    assert "cuda:7" in missing
    assert meta.startswith("meta RuntimeError")
    assert count == "0"
    assert asked("cpu") == ["1"], "the control: a CPU asks for it"
