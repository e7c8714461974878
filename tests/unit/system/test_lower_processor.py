"""What ``make test CPU=...`` runs under: every library says itself that it computes as a lower processor would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit.engine.native.build import VARIANTS
from bertkit.errors import ConfigError
from bertkit.system.processor import LEVELS, SWITCH, find_processor, own_products
from lower_processor import SWITCHES, numpy_features

SCRIPT = Path(__file__).parents[2] / "lower_processor.py"
REPORT = """
import json
import torch
from numpy._core._multiarray_umath import __cpu_features__
from threadpoolctl import threadpool_info
from bertkit.engine.native.library import native_library
from bertkit.system.processor import find_processor
library = native_library()
print(json.dumps({
    "torch": torch.backends.cpu.get_cpu_capability(),
    "blas": sorted({facts.get("architecture") or "" for facts in threadpool_info() if facts["user_api"] == "blas"}),
    "numpy": [name for name, there in __cpu_features__.items() if there],
    "sets": find_processor().instruction_sets,
    "lanes": None if library is None else library.lanes,
}))
"""


@pytest.mark.slow
@pytest.mark.skipif("AVX2" not in find_processor().instruction_sets, reason="nothing lower than this processor")
@pytest.mark.parametrize(
    ("level", "torch_says", "blas", "sets", "lanes"),
    [
        ("avx2", "AVX2", "Haswell", ["AVX2"], 8),
        pytest.param("plain", "DEFAULT", "Nehalem", [], 4, marks=pytest.mark.campaign),
    ],
)
def test_every_library_computes_as_told(
    level: str, torch_says: str, blas: str, sets: list[str], lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NPY_DISABLE_CPU_FEATURES", raising=False)
    command = [sys.executable, "-W", "error", str(SCRIPT), level, sys.executable, "-W", "error", "-c", REPORT]
    said = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert (said["torch"], said["sets"]) == (torch_says, sets)
    assert said["lanes"] in (lanes, None)
    assert set(said["blas"]) <= {blas, ""}
    assert not {"X86_V4", *(() if level == "avx2" else ("X86_V3",))} & set(said["numpy"])


def test_only_what_numpy_would_use_is_named() -> None:
    assert set(numpy_features("avx2")) <= set(numpy_features("plain"))
    assert not set(numpy_features("avx2")) & {"AVX2", "FMA3", "X86_V3"}


def test_every_level_has_every_switch() -> None:
    assert SWITCHES.keys() == LEVELS.keys() <= VARIANTS["x86_64"].keys()
    assert len({tuple(switches) for switches in SWITCHES.values()}) == 1


def test_a_level_that_there_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "avx512", "ls"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "avx2|plain COMMAND ...; got ['avx512', 'ls']" in done.stderr
    monkeypatch.setenv(SWITCH, "off")
    with pytest.raises(ConfigError, match="BERTKIT_NATIVE is 'off' in the environment, expected one of 0, 1, build, a"):
        own_products()
